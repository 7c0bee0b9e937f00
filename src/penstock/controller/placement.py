"""Placement: chooses the brokers for the replicas of new partitions.

The brokers are in one list that alternates between racks. Partition number k (counted across topics, so that many small
topics spread as well as a large one) is led by broker k of that list: leaders are spread as evenly as possible.

A follower goes to a rack with the fewest replicas of the partition, which keeps replicas on different racks as long as
there are enough. Among such racks, and then among the brokers of a rack, the next one after the leader is chosen, and
one further with each turn around the list: a broker that dies leaves its leaderships to all others and not to one
neighbour. That alone would be uneven if racks differ in size. So a broker or rack that received more replicas than the
least loaded one, by more than a few, is skipped.

Replicas are counted from the last change of the set of brokers, not from the beginning: a broker that joins gets its
share of the new replicas, not all of them until it has caught up with the others.

The result depends only on the arguments and on earlier placements: same history, same placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.model.errors import ErrorCode, KafkaError

Candidate = TypeVar("Candidate")


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


# How many more replicas than the least loaded broker a broker may receive before others are preferred. It allows some
# variety, and is little compared to the hundreds of replicas of a broker.
TOLERANCE: Final = 3


class Placement:
    def __init__(self, number: int = 0) -> None:
        """`number`: the number of the next partition."""
        self.number = number
        self._brokers: list[UsableBroker] = []
        self._given: dict[int, int] = {}

    def copy(self) -> Placement:
        """A copy, for a placement that may be discarded."""
        copied = Placement(self.number)
        copied._brokers, copied._given = self._brokers, dict(self._given)
        return copied

    def place(
        self, brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int
    ) -> list[tuple[int, ...]]:
        """The replicas of each partition, its preferred leader first.

        Fenced brokers never lead a new partition, and get a replica only if there are not enough other brokers.
        """
        usable = sorted(brokers)
        active = alternate_racks(broker for broker in usable if not broker.fenced)
        fenced = alternate_racks(broker for broker in usable if broker.fenced)
        if replication_factor <= 0:
            raise refusal(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
        if not active:
            raise refusal("All brokers are currently fenced, or have all their log directories cordoned.")
        if replication_factor > len(usable):
            raise refusal(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        if self._brokers != usable:
            self._brokers = usable
            self._given = dict.fromkeys((broker.broker_id for broker in usable), 0)
        return [self._replicas(active, fenced, replication_factor) for _ in range(partition_count)]

    def _replicas(
        self, active: Sequence[UsableBroker], fenced: Sequence[UsableBroker], replication_factor: int
    ) -> tuple[int, ...]:
        turn, position = divmod(self.number, len(active))
        self.number += 1
        leader = active[position]
        chosen = [leader]
        others = len(active) - 1
        followers = [active[(position + 1 + (turn + step) % others) % len(active)] for step in range(others)]
        for pool in (followers, fenced):
            if len(chosen) < replication_factor and pool:
                self._choose(pool, chosen, replication_factor)
        for broker in chosen:
            self._given[broker.broker_id] += 1
        return tuple(broker.broker_id for broker in chosen)

    def _choose(self, pool: Sequence[UsableBroker], chosen: list[UsableBroker], replication_factor: int) -> None:
        """Add brokers of the pool to `chosen` until there are enough, or the pool is exhausted."""
        given = self._given
        racks: dict[str | None, list[int]] = {}
        for broker in pool:
            racks.setdefault(broker.rack, []).append(broker.broker_id)
        used: dict[str | None, int] = {}
        for broker in chosen:
            used[broker.rack] = used.get(broker.rack, 0) + 1
        burden = {rack: sum(map(given.__getitem__, members)) / len(members) for rack, members in racks.items()}
        while racks and len(chosen) < replication_factor:
            fewest = min(used.get(rack, 0) for rack in racks)
            candidates = [rack for rack in racks if used.get(rack, 0) == fewest]
            rack = _first_not_above(candidates, burden)
            broker_id = _first_not_above(racks[rack], given)
            racks[rack].remove(broker_id)
            if not racks[rack]:
                del racks[rack]
            used[rack] = used.get(rack, 0) + 1
            chosen.append(UsableBroker(broker_id, rack, False))


def _first_not_above(candidates: Sequence[Candidate], given: Mapping[Candidate, float]) -> Candidate:
    """The first candidate that has not received more than the least loaded one plus the tolerance."""
    limit = min(map(given.__getitem__, candidates)) + TOLERANCE
    return next(candidate for candidate in candidates if given[candidate] <= limit)


def alternate_racks(brokers: Iterable[UsableBroker]) -> list[UsableBroker]:
    """The brokers by id, one of each rack in turn, as long as racks have brokers left."""
    racks: dict[str, list[UsableBroker]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    ordered = [racks[rack] for rack in sorted(racks)]
    longest = max(map(len, ordered), default=0)
    return [rack[position] for position in range(longest) for rack in ordered if position < len(rack)]


def refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
