"""What the describing requests of consumer, share and streams groups have in common.

Each group is described by its shard. A client sees a group only if it may describe all topics that the description
would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask_shards, caller_of
from penstock.broker.net.request import Request
from penstock.coordinator.decision import Caller, Decision
from penstock.groups.shard import GroupShard
from penstock.model.errors import ErrorCode
from penstock.security.authorizer import GROUP_OPERATIONS, Operation, group_resource, topic_resource

# In longer requests each group is described once: a short request could ask for a huge response.
REPEATED_MAX: Final = 100


class GroupKind(NamedTuple):
    """A kind of groups, by the messages of its describing request, which differ in their members only."""

    request: Callable[..., Any]
    response: Callable[..., Any]
    described_group: Callable[..., Any]
    describe: Callable[[GroupShard, Any, Any, Caller, int], Decision]
    # The topics that a description shows.
    topics_of: Callable[[Any], Iterable[str]]
    hidden: str = "The group has described topic(s) that the client is not authorized to describe."


def describe_groups(
    kind: GroupKind, is_served: bool, services: GroupServices, request: Request, group_ids: Iterable[str], message: Any
) -> None:
    response = kind.response()
    answer = request.park(mute=True)
    caller = caller_of(request)

    def check(group_id: str) -> ErrorCode:
        if not is_served:
            return ErrorCode.UNSUPPORTED_VERSION
        is_allowed = request.may(Operation.DESCRIBE, group_resource(group_id))
        return ErrorCode.NONE if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED

    def take(part: Any) -> None:
        for index, group in enumerate(part.groups):
            if not all(request.may(Operation.DESCRIBE, topic_resource(topic)) for topic in kind.topics_of(group)):
                part.groups[index] = kind.described_group(
                    group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=kind.hidden
                )
            elif message.include_authorized_operations and not group.error_code:
                group.authorized_operations = request.allowed_of(GROUP_OPERATIONS, group_resource(group.group_id))
        response.groups += part.groups

    names = list(group_ids)  # one that is named twice is described twice, as by Kafka
    if len(names) > REPEATED_MAX:
        names = list(dict.fromkeys(names))
    ask_shards(
        services.coordinators.groups,
        request,
        names,
        lambda shard, group_id, token, now_ms: kind.describe(
            shard, kind.request(group_ids=[group_id]), token, caller, now_ms
        ),
        check=check,
        refusal=lambda group_id, code: kind.response(groups=[kind.described_group(group_id=group_id, error_code=code)]),
        take=take,
        done=lambda: answer(response),
    )
