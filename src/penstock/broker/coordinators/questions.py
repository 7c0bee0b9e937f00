"""Routes a request to the shard that answers it, and combines the answers of several shards into one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TypeVar

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.shard import ShardT, Waiting
from penstock.broker.net.request import Request
from penstock.broker.slices import Slices
from penstock.coordinator.decision import Caller, Decision
from penstock.groups.shard import GroupShard
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.security.authorizer import Operation, group_resource, topic_resource

Key = TypeVar("Key")
Response = TypeVar("Response", bound=Message)


def caller_of(request: Request) -> Caller:
    """The client, as Kafka shows it: the host is an address with a slash in front."""
    return Caller(request.client_id or "", f"/{request.client_host}", request.version)


def member_of(request: Request) -> Caller:
    """Like `caller_of`, for members of groups, whose regular expressions match only topics they may know of."""
    return caller_of(request)._replace(
        may_describe=lambda name: request.could(Operation.DESCRIBE, topic_resource(name))
    )


def ask_group(
    groups: Coordinator[GroupShard],
    request: Request,
    group_id: str,
    operation: Callable[[GroupShard, Waiting, Caller, int], Decision],
    refusal: Callable[[ErrorCode], Response],
) -> Response | None:
    """Let the group's shard answer a member's request; returns the refusal if the client may not be a member."""
    if not request.may(Operation.READ, group_resource(group_id)):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    caller = member_of(request)
    waiting = Waiting(request.park(), refusal)
    groups.submit(group_id, lambda shard, token, now_ms: operation(shard, token, caller, now_ms), waiting)
    return None


def ask_each(slices: Slices, request: Request, keys: Iterable[Key], question: Callable[[Key], None]) -> None:
    """Ask in slices: a short request may name many keys, or keys with large answers.

    Other work takes turns with it: the timers of all groups would otherwise wait for the last key. Nothing more is
    asked for a client that has disconnected.
    """
    left = iter(keys)

    def work(until: float) -> bool:
        if not request.connection.is_closed:
            for key in left:
                question(key)
                if slices.is_over(until):
                    slices.add(work)
                    break
        return False

    slices.add(work)


class Gathering:
    """Waits for several answers: calls `done` after the last of them."""

    __slots__ = ("_done", "_left")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done
        if not count:
            done()

    def one_more(self) -> None:
        self._left -= 1
        if not self._left:
            self._done()


def ask_shards(
    coordinator: Coordinator[ShardT],
    request: Request,
    names: Collection[str],
    question: Callable[[ShardT, str, Waiting, int], Decision],
    *,
    check: Callable[[str], ErrorCode],
    refusal: Callable[[str, ErrorCode], Response],
    take: Callable[[Response], None],
    done: Callable[[], None],
) -> None:
    """Ask the shard of each name that `check` finds no error with. `take` gets each answer or refusal; then `done`."""

    def taken(response: Response) -> None:
        take(response)
        gathering.one_more()

    def ask(name: str) -> None:
        code = check(name)
        if code:
            taken(refusal(name, code))
            return
        coordinator.submit(
            name,
            lambda shard, token, now_ms: question(shard, name, token, now_ms),
            Waiting(taken, partial(refusal, name)),
        )

    gathering = Gathering(len(names), done)
    ask_each(coordinator.upkeep, request, names, ask)
