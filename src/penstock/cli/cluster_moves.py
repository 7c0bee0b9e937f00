"""Carries out a plan of moves: a few partitions at a time, throttled, and so that it can end at any moment.

Kafka throttles replication in two parts: topics list the replicas that are throttled, brokers have the rate. Both are
set before the first partition moves and removed after the last one, whatever ends the run: completion, an error, Ctrl-C
or SIGTERM. A run that is interrupted takes back the moves that are under way (their partitions stay where they are);
the moves that are done stay done. So the cluster is whole, and the same command plans what is left.

Only `kill -9` leaves moves and throttles behind: the moves complete, and `--cancel` removes the throttles.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.output import CommandFailed, fail
from penstock.client.errors import ClientError
from penstock.client.wire.admin.configs import ResourceType
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.controller.balance import Move

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
POLL_S: Final = 0.1
ORDERED_AT_ONCE: Final = 100

Report = Callable[[int, int], None]
"""Called with the number of moves that are done, and the bytes they copied."""


class Throttles:
    def __init__(self, admin: Admin, brokers: Iterable[int]) -> None:
        """`brokers`: those that are alive; the others need no limit, and could not get one."""
        self._admin = admin
        self._brokers = sorted(brokers)

    def check_unset(self, topics: Iterable[str]) -> None:
        """Throttles that are there belong to someone else: the end of this run would remove them."""
        for resource, name, found in self._set_now(topics):
            fail(
                f"{resource.name.lower()} {name} has {found} already; end the other move first, or remove what an "
                "interrupted one left with penstock cluster balance --cancel"
            )

    def set(self, moves: Sequence[Move], bytes_per_second: int) -> None:
        by_topic: dict[str, list[Move]] = {}
        for move in moves:
            by_topic.setdefault(move.topic, []).append(move)
        involved = {replica for move in moves for replica in (*move.before, *move.after)}
        for broker_id in self._brokers:
            if broker_id in involved:
                rates = {LEADER_RATE: str(bytes_per_second), FOLLOWER_RATE: str(bytes_per_second)}
                self._admin.configs.alter(ResourceType.BROKER, str(broker_id), rates)
        for topic, ours in by_topic.items():
            leaders = ",".join(f"{move.partition}:{replica}" for move in ours for replica in move.before)
            followers = ",".join(f"{move.partition}:{replica}" for move in ours for replica in move.adding)
            values = {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}
            self._admin.configs.alter(ResourceType.TOPIC, topic, values)

    def remove(self, topics: Iterable[str]) -> int:
        """Remove what is set, everywhere; how many topics and brokers had something. All are tried before it fails."""
        problems: list[Exception] = []
        cleared = 0
        for resource, name, _ in self._set_now(topics):
            settings = [LEADER_RATE, FOLLOWER_RATE]
            if resource is ResourceType.TOPIC:
                settings = [LEADER_REPLICAS, FOLLOWER_REPLICAS]
            try:
                self._admin.configs.alter(resource, name, delete=settings)
                cleared += 1
            except (KafkaError, ClientError) as error:
                problems.append(error)
        if problems:
            fail(f"throttles are left behind: {problems[0]}; remove them with penstock cluster balance --cancel")
        return cleared

    def _set_now(self, topics: Iterable[str]) -> Iterator[tuple[ResourceType, str, str]]:
        resources = [(ResourceType.BROKER, str(broker_id), "DYNAMIC_BROKER_CONFIG") for broker_id in self._brokers]
        resources += [(ResourceType.TOPIC, topic, "DYNAMIC_TOPIC_CONFIG") for topic in sorted(set(topics))]
        for resource, name, source in resources:
            for entry in self._admin.configs.describe(resource, name):
                ours = entry.name in (LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS)
                if ours and entry.source == source and entry.value:
                    yield resource, name, entry.name
                    break


def carry_out(
    admin: Admin,
    moves: Sequence[Move],
    *,
    throttle: int | None,
    at_once: int,
    brokers: Iterable[int],
    report: Report,
) -> None:
    """Make the moves. `throttle`: bytes per second of each broker; None for no limit. `brokers`: those alive."""
    copying = [move for move in moves if move.adding]
    throttles = Throttles(admin, brokers)
    topics = [move.topic for move in copying]
    with _interruptible():
        _reorder(admin, [move for move in moves if not move.adding])
        report(len(moves) - len(copying), 0)
        if throttle is not None and copying:
            throttles.check_unset(topics)
        try:
            if throttle is not None and copying:
                throttles.set(copying, throttle)
            _copy(admin, copying, at_once, lambda count, size: report(len(moves) - len(copying) + count, size))
        finally:
            if throttle is not None:
                with _uninterrupted():
                    throttles.remove(topics)
        admin.reassignments.elect_preferred(TopicPartition(move.topic, move.partition) for move in copying)


def _reorder(admin: Admin, moves: Sequence[Move]) -> None:
    for first in range(0, len(moves), ORDERED_AT_ONCE):
        part = moves[first : first + ORDERED_AT_ONCE]
        admin.reassignments.begin({TopicPartition(move.topic, move.partition): move.after for move in part})
        # At once: an interruption later must not leave them with their old leaders.
        admin.reassignments.elect_preferred(TopicPartition(move.topic, move.partition) for move in part)


def _copy(admin: Admin, moves: Sequence[Move], at_once: int, report: Report) -> None:
    waiting = list(reversed(moves))
    under_way: dict[TopicPartition, Move] = {}
    count = copied = 0
    try:
        while waiting or under_way:
            begun = {}
            while waiting and len(under_way) < at_once:
                move = waiting.pop()
                partition = TopicPartition(move.topic, move.partition)
                begun[partition] = move.after
                under_way[partition] = move
            if begun:
                admin.reassignments.begin(begun)
            moving = {TopicPartition(each.topic, each.partition) for each in admin.reassignments.list()}
            for partition in [partition for partition in under_way if partition not in moving]:
                count, copied = count + 1, copied + under_way.pop(partition).copied_bytes
            report(count, copied)
            if under_way:
                time.sleep(POLL_S)
    except BaseException as interruption:
        with _uninterrupted():
            back = admin.reassignments.cancel(under_way) if under_way else []
        left = len(waiting) + len(under_way)
        if isinstance(interruption, KeyboardInterrupt):
            raise CommandFailed(
                f"interrupted: {count} partitions were copied, {len(back)} taken back, {left} are left; "
                "the same command continues"
            ) from None
        raise


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not end the cleaning up after the first."""
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
