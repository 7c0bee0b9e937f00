"""Plans the move of partitions from some brokers to others.

Each partition goes through phases, and the phase follows from where its replicas are:

    COPY        some of its target brokers have no replica: add them beside the present ones
    COPYING     the new replicas are not in sync yet: wait
    WAIT        they are, but none of those that shall leave is: wait for one, to compare them with it
    RELEASE     all target brokers are in sync: prove their copies equal, then remove the other replicas
    DONE        it has exactly its target replicas

Replicas that are on brokers that stay are kept, so a plan that is made again, at any moment, continues the move. The
number of replicas of a partition never changes, and no replica is removed before all that replace it are in sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.migrate.state import ClusterState, Replicas
from penstock.model.ids import TopicPartition


class CannotMove(Exception):
    """Why the cluster cannot be moved as asked."""


class Phase(StrEnum):
    COPY = "copy"
    COPYING = "copying"
    WAIT = "wait"
    RELEASE = "release"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Step:
    partition: TopicPartition
    phase: Phase
    # The replicas that the partition has in the end, the preferred leader first.
    target: tuple[int, ...]
    # The replicas that it has now, and those of the target that it lacks.
    present: tuple[int, ...]
    added: tuple[int, ...] = ()


def plan(state: ClusterState, leaving: Collection[int], arriving: Collection[int]) -> list[Step]:
    """One step for each partition, in the order of their names."""
    gone, welcome = frozenset(leaving), sorted(set(arriving) - set(leaving))
    if not welcome:
        raise CannotMove("there is no broker to move to")
    unknown = [each for each in welcome if each not in state.brokers]
    if unknown:
        raise CannotMove(f"broker {unknown[0]} is not in the cluster")
    unready = [each for each in welcome if state.brokers[each].fenced]
    if unready:
        raise CannotMove(f"broker {unready[0]} is fenced: it takes no replicas")
    others = sorted(state.throttled_by_others)
    if others:
        raise CannotMove(
            f"topic {others[0]} has throttled replicas that are not of this move, in the settings "
            "leader.replication.throttled.replicas and follower.replication.throttled.replicas: let the other tool "
            "finish ('kafka-reassign-partitions.sh --verify'), or remove them"
        )
    placement = _Placement(state, gone, welcome)
    return [_step(partition, state.partitions[partition], gone, placement) for partition in sorted(state.partitions)]


def _step(partition: TopicPartition, replicas: Replicas, leaving: frozenset[int], placement: _Placement) -> Step:
    if not leaving & set(replicas.replicas) and not replicas.reassigning:
        return Step(partition, Phase.DONE, replicas.replicas, replicas.replicas)
    target = placement.target(partition, replicas)
    added = tuple(each for each in target if each not in replicas.replicas)
    if added:
        phase = Phase.COPY
    elif replicas.adding or not set(target) <= set(replicas.isr):
        phase = Phase.COPYING
    elif set(target) == set(replicas.replicas):
        phase = Phase.DONE
    elif set(replicas.isr) <= set(target):
        phase = Phase.WAIT
    else:
        phase = Phase.RELEASE
    return Step(partition, phase, target, replicas.replicas, added)


class _Placement:
    """Chooses brokers: least loaded first, spread over racks."""

    def __init__(self, state: ClusterState, leaving: frozenset[int], arriving: Sequence[int]) -> None:
        self._leaving = leaving
        self._arriving = arriving
        self._racks: Mapping[int, str | None] = {each: broker.rack for each, broker in state.brokers.items()}
        self._replicas = Counter(each for held in state.partitions.values() for each in held.replicas)
        self._leaders = Counter(
            held.replicas[0]
            for held in state.partitions.values()
            if held.replicas and held.replicas[0] not in leaving and not leaving & set(held.replicas)
        )

    def target(self, partition: TopicPartition, replicas: Replicas) -> tuple[int, ...]:
        kept = [each for each in replicas.replicas if each not in self._leaving][: replicas.factor]
        while len(kept) < replicas.factor:
            candidates = [each for each in self._arriving if each not in kept]
            if not candidates:
                raise CannotMove(
                    f"{partition} has {replicas.factor} replicas, and there are only {len(kept)} brokers to move them "
                    "to: add brokers first"
                )
            used = {self._racks.get(each) for each in kept} - {None}
            chosen = min(candidates, key=lambda each: (self._racks.get(each) in used, self._replicas[each], each))
            self._replicas[chosen] += 1
            kept.append(chosen)
        leader = min(kept, key=lambda each: (self._leaders[each], kept.index(each)))
        self._leaders[leader] += 1
        return (leader, *(each for each in kept if each != leader))


def undone(state: ClusterState) -> dict[TopicPartition, tuple[int, ...]]:
    """What takes an unfinished move back: partitions whose original replicas are all still there."""
    return {
        partition: replicas.originals
        for partition, replicas in state.partitions.items()
        if replicas.originals is not None
        and set(replicas.originals) <= set(replicas.replicas)
        and set(replicas.originals) != set(replicas.replicas)
    }


def progress(steps: Sequence[Step]) -> Counter[Phase]:
    return Counter(step.phase for step in steps)
