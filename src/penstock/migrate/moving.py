"""Carries out the move of partitions: notes it in the topics' settings, copies, verifies, releases.

    for state in Move(admin, leaving, arriving).run(): show(state)

Each round observes the cluster, plans, and acts: at most `parallel` partitions are copied at once; those whose copies
are in sync are verified one after the other, and only then do their sources leave. Nothing is kept between rounds, so
the move can be stopped at any moment, by Ctrl-C or a crash of either side, and continued by running it again, from
anywhere. What the cluster was told goes on meanwhile: copies are completed, and nothing is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import TimedOut, Unreachable
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.cluster import MOVING, Cluster
from penstock.migrate import markers
from penstock.migrate.observe import Notes, notes_of, observe
from penstock.migrate.plan import CannotMove, Phase, Step, plan, undone
from penstock.migrate.state import ClusterState
from penstock.migrate.verify import ReplicaReader, Verified, verify
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

POLL_S: Final = 0.5
# How long a move goes on without an answer of the cluster.
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    steps: Sequence[Step]
    # What has been proven equal since the last report.
    verified: Sequence[Verified] = ()

    @property
    def done(self) -> bool:
        return all(step.phase is Phase.DONE for step in self.steps)


class Move:
    def __init__(
        self,
        admin: Admin,
        cluster: Cluster,
        leaving: Collection[int],
        arriving: Collection[int],
        *,
        parallel: int = 10,
        bytes_per_second: int | None = None,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._leaving = sorted(set(leaving))
        self._arriving = sorted(set(arriving))
        self._parallel = parallel
        self._rate = bytes_per_second

    def run(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Progress]:
        if self._rate is not None:
            throttle(self._admin, [*self._leaving, *self._arriving], self._rate)
        failing_since: float | None = None
        begun = False
        while True:
            try:
                progress = self._round()
            except (Unreachable, TimedOut, KafkaError, CannotMove) as error:
                if not begun if isinstance(error, CannotMove) else not _may_pass(error):
                    raise
                # A broker has died or restarts: the next round sees what is left. One that is fenced may come back.
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > PATIENCE_S:
                    raise
            else:
                failing_since, begun = None, True
                yield progress
                if progress.done:
                    break
            pause(POLL_S)
        if self._rate is not None:
            throttle(self._admin, [*self._leaving, *self._arriving], None)

    def _round(self) -> Progress:
        state = observe(self._admin)
        steps = plan(state, self._leaving, self._arriving)
        self._forget(state, [step for step in steps if step.phase is Phase.DONE])
        verified = self._release([step for step in steps if step.phase is Phase.RELEASE], state)
        self._copy(steps)
        return Progress(steps, verified)

    def _copy(self, steps: Sequence[Step]) -> None:
        under_way = sum(step.phase is Phase.COPYING for step in steps)
        starting = [step for step in steps if step.phase is Phase.COPY][: max(0, self._parallel - under_way)]
        if not starting:
            return
        by_topic: dict[str, list[Step]] = {}
        for step in starting:
            by_topic.setdefault(step.partition.topic, []).append(step)
        for topic, notes in notes_of(self._admin, list(by_topic)).items():
            note(self._admin, topic, notes, by_topic[topic])
        self._admin.reassignments.begin({step.partition: (*step.present, *step.added) for step in starting})

    def _release(self, steps: Sequence[Step], state: ClusterState) -> list[Verified]:
        proven: list[Verified] = []
        for step in steps:
            try:
                found = verify_partition(self._admin, self._cluster, state, step.partition, step.target, self._rate)
                self._admin.reassignments.begin({step.partition: step.target})
            except KafkaError as error:
                if error.code not in MOVING:
                    raise
                continue  # a leader has moved: the next round sees where it is
            proven += found
        return proven

    def _forget(self, state: ClusterState, done: Sequence[Step]) -> None:
        """Remove the notes of partitions that have been moved."""
        topics: dict[str, set[int]] = {}
        for step in done:
            if state.partitions[step.partition].originals is not None:
                topics.setdefault(step.partition.topic, set()).add(step.partition.partition)
        for topic, indexes in topics.items():
            forget(self._admin, topic, indexes)


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.code in MOVING


def note(admin: Admin, topic: str, notes: Notes, steps: Sequence[Step]) -> None:
    """Write down what the partitions had before, unless an earlier run has: see `markers`."""
    originals, copies = dict(notes.originals), dict(notes.copies)
    for step in steps:
        index = step.partition.partition
        originals.setdefault(index, step.present)
        copies[index] = tuple(dict.fromkeys([*copies.get(index, ()), *step.added]))
    values = {markers.LEADER_REPLICAS: markers.text_of(originals), markers.FOLLOWER_REPLICAS: markers.text_of(copies)}
    admin.configs.alter(ResourceType.TOPIC, topic, values)


def forget(admin: Admin, topic: str, partitions: Collection[int]) -> None:
    notes = notes_of(admin, [topic])[topic]
    for setting, noted in ((markers.LEADER_REPLICAS, notes.originals), (markers.FOLLOWER_REPLICAS, notes.copies)):
        marks = {index: kept for index, kept in noted.items() if index not in partitions}
        if marks:
            admin.configs.alter(ResourceType.TOPIC, topic, {setting: markers.text_of(marks)})
        else:
            admin.configs.alter(ResourceType.TOPIC, topic, delete=[setting])


def undo(admin: Admin) -> dict[TopicPartition, tuple[int, ...]]:
    """Take copies back that have not been released: the partitions have their original replicas again."""
    state = observe(admin)
    targets = undone(state)
    moving = [partition for partition in targets if state.partitions[partition].reassigning]
    if moving:
        admin.reassignments.cancel(moving)
    remaining = undone(observe(admin))
    if remaining:
        admin.reassignments.begin(remaining)
    topics: dict[str, set[int]] = {}
    for partition, replicas in state.partitions.items():
        if replicas.originals is not None:
            topics.setdefault(partition.topic, set()).add(partition.partition)
    for topic, indexes in topics.items():
        forget(admin, topic, indexes)
    return targets


def throttle(admin: Admin, broker_ids: Collection[int], bytes_per_second: int | None) -> None:
    """Limit how fast the noted replicas are copied; None removes the limit."""
    names = (markers.LEADER_RATE, markers.FOLLOWER_RATE)
    for broker_id in broker_ids:
        if bytes_per_second is None:
            admin.configs.alter(ResourceType.BROKER, str(broker_id), delete=names)
        else:
            values: Mapping[str, str] = dict.fromkeys(names, str(bytes_per_second))
            admin.configs.alter(ResourceType.BROKER, str(broker_id), values)


def verify_partition(
    admin: Admin,
    cluster: Cluster,
    state: ClusterState,
    partition: TopicPartition,
    brokers: Collection[int],
    bytes_per_second: int | None = None,
) -> list[Verified]:
    """Prove that these replicas have what the leader has."""
    leader = state.partitions[partition].leader
    if leader is None:
        raise CannotMove(f"{partition} has no leader: its replicas cannot be compared")
    (topic,) = cluster.topics([partition.topic])
    policy = next(
        (
            each.value
            for each in admin.configs.describe(ResourceType.TOPIC, partition.topic)
            if each.name == "cleanup.policy"
        ),
        "",
    )
    pace = _Pace(bytes_per_second)
    return [
        verify(
            ReplicaReader(cluster, leader, partition, topic.topic_id),
            ReplicaReader(cluster, broker_id, partition, topic.topic_id),
            partition,
            compacted="compact" in (policy or ""),
            read=pace.read,
        )
        for broker_id in brokers
        if broker_id != leader
    ]


class _Pace:
    """Reads no faster than the copies are made."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._begun = time.monotonic()
        self._bytes = 0

    def read(self, size: int) -> None:
        self._bytes += size
        if self._rate:
            ahead = self._bytes / self._rate - (time.monotonic() - self._begun)
            if ahead > 0:
                time.sleep(ahead)
