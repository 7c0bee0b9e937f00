"""Carries out the move of partitions: notes it in the topics' settings, copies, verifies, releases.

    for state in Move(admin, cluster, leaving, arriving).run(): show(state)

Each round observes the cluster, plans, and acts: at most `parallel` partitions are copied at once; those whose copies
are in sync are verified one after the other, for some seconds until the next round. Sources leave only after the
partition has been looked at once more. Nothing is kept between rounds, so the move can be stopped at any moment, by
Ctrl-C or a crash of either side, and continued by running it again, from anywhere. What the cluster was told goes on
meanwhile: copies are completed, and nothing is released.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.client.errors import TimedOut, Unreachable
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.cluster import Cluster
from penstock.migrate import markers
from penstock.migrate.markers import Notes
from penstock.migrate.observe import notes_of, observe, replicas_of
from penstock.migrate.patience import PATIENCE_S, POLL_S, may_pass, patiently
from penstock.migrate.plan import CannotMove, Phase, Step, plan, undone
from penstock.migrate.replica_reader import ReplicaReader
from penstock.migrate.state import Broker, ClusterState, Kind, Replicas
from penstock.migrate.verify import Cleanup, Verified, verify
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

# Partitions are verified for so long, before the cluster is observed again and other copies are started.
ROUND_S: Final = 5.0


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
        read: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`read` is called with the bytes that are read to compare them."""
        self._admin = admin
        self._cluster = cluster
        self._leaving = sorted(set(leaving))
        self._arriving = sorted(set(arriving))
        self._parallel = parallel
        self._rate = bytes_per_second
        self._read = read
        # Partitions that could not be verified just now: after the others.
        self._late: set[TopicPartition] = set()

    def run(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Progress]:
        failing_since: float | None = None
        begun = False
        while True:
            progress = Progress(())
            try:
                progress = self._round()
            except (Unreachable, TimedOut, KafkaError, CannotMove) as error:
                if not begun if isinstance(error, CannotMove) else not may_pass(error):
                    raise
                # A broker has died or restarts: the next round sees what is left. One that is fenced may come back.
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > PATIENCE_S:
                    raise
            else:
                failing_since, begun = None, True
                yield progress
                if progress.done:
                    return
            if not progress.verified:
                pause(POLL_S)

    def _round(self) -> Progress:
        state = observe(self._admin)
        steps = plan(state, self._leaving, self._arriving)
        progress = Progress(steps)
        self._limit(state, None if progress.done else self._rate)
        self._forget(state, [step for step in steps if step.phase is Phase.DONE])
        self._copy(steps, state)
        return replace(progress, verified=self._release(steps, state))

    def _limit(self, state: ClusterState, bytes_per_second: int | None) -> None:
        sides = {*self._leaving, *self._arriving}
        limit(self._admin, (each for each in state.brokers.values() if each.broker_id in sides), bytes_per_second)

    def _copy(self, steps: Sequence[Step], state: ClusterState) -> None:
        under_way = sum(step.phase is Phase.COPYING for step in steps)
        starting = [step for step in steps if step.phase is Phase.COPY][: max(0, self._parallel - under_way)]
        if not starting:
            return
        by_topic: dict[str, list[Step]] = {}
        for step in starting:
            by_topic.setdefault(step.partition.topic, []).append(step)
        for topic, notes in notes_of(self._admin, list(by_topic)).items():
            note(self._admin, topic, notes, by_topic[topic], state)
        self._admin.reassignments.begin({step.partition: (*step.present, *step.added) for step in starting})

    def _release(self, steps: Sequence[Step], state: ClusterState) -> list[Verified]:
        proven: list[Verified] = []
        until = time.monotonic() + ROUND_S
        ready = [step for step in steps if step.phase is Phase.RELEASE]
        for step in sorted(ready, key=lambda each: each.partition in self._late):
            self._late.discard(step.partition)
            try:
                proven += self._released(step, state.partitions[step.partition])
            except KafkaError as error:
                if not may_pass(error):
                    raise
                self._late.add(step.partition)  # a leader has moved: the next round sees where it is
            if time.monotonic() >= until:
                break
        return proven

    def _released(self, step: Step, held: Replicas) -> list[Verified]:
        """What was proven before its sources were removed; empty if they were not, because something has changed."""
        pace = _Pace(self._rate, self._read)
        found = verify_step(self._admin, self._cluster, held, step, pace.read)
        now = replicas_of(self._admin, step.partition)
        if now is None or not may_release(step, now):
            self._late.add(step.partition)
            return []
        self._admin.reassignments.begin({step.partition: step.target})
        return found

    def _forget(self, state: ClusterState, done: Sequence[Step]) -> None:
        """Remove the notes of partitions that have been moved."""
        topics: dict[str, set[int]] = {}
        for step in done:
            if state.partitions[step.partition].originals is not None:
                topics.setdefault(step.partition.topic, set()).add(step.partition.partition)
        for topic, indexes in topics.items():
            forget(self._admin, topic, indexes)


def may_release(step: Step, now: Replicas) -> bool:
    """Whether a partition is still as it was when it was planned: comparing it may have taken hours."""
    return set(now.replicas) == set(step.present) and not now.reassigning and set(step.target) <= set(now.isr)


def note(admin: Admin, topic: str, notes: Notes, steps: Sequence[Step], state: ClusterState) -> None:
    """Write down what the partitions had before, unless an earlier run has: see `markers`."""
    originals, copies = dict(notes.originals), dict(notes.copies)
    for step in steps:
        index = step.partition.partition
        originals[index] = state.partitions[step.partition].before
        copies[index] = tuple(dict.fromkeys([*copies.get(index, ()), *step.added]))
    admin.configs.alter(ResourceType.TOPIC, topic, Notes(originals, copies).settings())


def forget(admin: Admin, topic: str, partitions: Collection[int]) -> None:
    notes = notes_of(admin, [topic])[topic]
    originals, copies = (
        {index: kept for index, kept in marks.items() if index not in partitions}
        for marks in (notes.originals, notes.copies)
    )
    if originals:
        admin.configs.alter(ResourceType.TOPIC, topic, Notes(originals, copies).settings())
    else:
        admin.configs.alter(ResourceType.TOPIC, topic, delete=[markers.LEADER_REPLICAS, markers.FOLLOWER_REPLICAS])


def undo(admin: Admin, pause: Callable[[float], None] = time.sleep) -> dict[TopicPartition, tuple[int, ...]]:
    """Take copies back that have not been released: the partitions have their original replicas again."""
    state = patiently(lambda: observe(admin))
    targets = undone(state)
    moving = [partition for partition in targets if state.partitions[partition].reassigning]
    if moving:
        admin.reassignments.cancel(moving)
    deadline = time.monotonic() + PATIENCE_S
    while remaining := undone(patiently(lambda: observe(admin))):
        if time.monotonic() > deadline:
            raise CannotMove(f"{min(remaining)} still has its copies: run the command again when its replicas are back")
        patiently(lambda: admin.reassignments.begin(remaining))
        pause(POLL_S)
    topics: dict[str, set[int]] = {}
    for partition, replicas in state.partitions.items():
        if replicas.originals is not None:
            topics.setdefault(partition.topic, set()).add(partition.partition)
    for topic, indexes in topics.items():
        forget(admin, topic, indexes)
    limit(admin, state.brokers.values(), None)
    return targets


def limit(admin: Admin, brokers: Iterable[Broker], bytes_per_second: int | None) -> None:
    """Limit how fast the noted replicas are copied; None removes the limit. A limit of others is left alone.

    A broker that does not answer has its limit when it is back, in a later round.
    """
    wanted = {} if bytes_per_second is None else markers.rates(bytes_per_second)
    for broker in brokers:
        if broker.throttle == wanted or broker.kind is Kind.UNKNOWN:
            continue
        if broker.throttle and not markers.are_ours(broker.throttle):
            if not wanted:
                continue
            raise CannotMove(
                f"broker {broker.broker_id} has a throttle that is not of this move "
                f"({', '.join(f'{name}={value}' for name, value in sorted(broker.throttle.items()))}): remove it, or "
                "move without --throttle"
            )
        if wanted:
            admin.configs.alter(ResourceType.BROKER, str(broker.broker_id), wanted)
        else:
            admin.configs.alter(ResourceType.BROKER, str(broker.broker_id), delete=sorted(broker.throttle))


def verify_step(
    admin: Admin, cluster: Cluster, held: Replicas, step: Step, read: Callable[[int], None]
) -> list[Verified]:
    """Prove that each replica that stays has what one of those that leave has, whichever of them leads."""
    partition = step.partition
    sources = [each for each in held.isr if each not in step.target]
    if not sources:
        raise CannotMove(f"{partition}: none of the replicas that shall leave is in sync, so nothing can be compared")
    source = held.leader if held.leader in sources else sources[0]
    (topic,) = cluster.topics([partition.topic])
    cleanup = cleanup_of(admin, partition.topic)

    def reader(broker_id: int) -> ReplicaReader:
        return ReplicaReader(cluster, broker_id, partition, topic.topic_id)

    return [verify(reader(source), reader(each), partition, cleanup, read=read) for each in step.target]


def cleanup_of(admin: Admin, topic: str) -> Cleanup:
    names = ("cleanup.policy", "retention.ms", "retention.bytes")
    found = admin.configs.of_topics([topic], names)[topic]
    policy, milliseconds, size = (found.get(name) or "" for name in names)
    return Cleanup("compact" in policy, "delete" in policy, int(milliseconds or -1), int(size or -1))


class _Pace:
    """Reads no faster than the copies are made."""

    def __init__(self, bytes_per_second: int | None, report: Callable[[int], None]) -> None:
        self._rate = bytes_per_second
        self._report = report
        self._begun = time.monotonic()
        self._bytes = 0

    def read(self, size: int) -> None:
        self._report(size)
        self._bytes += size
        if self._rate:
            ahead = self._bytes / self._rate - (time.monotonic() - self._begun)
            if ahead > 0:
                time.sleep(ahead)
