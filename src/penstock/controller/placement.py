"""Placement: chooses the brokers for the replicas of new partitions.

The brokers are in one list that alternates between racks, and within a rack between hosts. Partition number k (counted
across topics, so that many small topics spread as well as a large one) is led by broker k of that list: leaders are
spread as evenly as possible.

A broker uses one core, so a host runs several. A follower goes to a host with the fewest replicas of the partition: no
host has two as long as another one has none. Among such hosts it goes to a rack with the fewest replicas. A rack
without a replica has hosts without one, so the rule for hosts never costs a rack: replicas are on as many racks as
there are, then on as many hosts. (If one host has brokers in several racks, the host counts.) If there is one host, or
no two brokers share one, racks alone decide.

Among the racks, and then among the brokers of a rack, the next one after the leader is chosen, and one further with
each turn around the list: a broker that dies leaves its leaderships to all others and not to one neighbour. That alone
would be uneven if racks differ in size. So a broker or rack that received more replicas than the least loaded one, by
more than a few, is skipped.

Replicas are counted from the last change of the set of brokers, not from the beginning: a broker that joins gets its
share of the new replicas, not all of them until it has caught up with the others.

The result depends only on the arguments and on earlier placements: same history, same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeVar

from penstock.model.errors import ErrorCode, KafkaError

Candidate = TypeVar("Candidate")


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool
    # None: not known, so that it shares a host with no other broker.
    host: str | None = None


# How many more replicas than the least loaded broker a broker may receive before others are preferred. It allows some
# variety, and is little compared to the hundreds of replicas of a broker.
TOLERANCE: Final = 3


class Placement:
    def __init__(self, number: int = 0) -> None:
        """`number`: the number of the next partition."""
        self.number = number
        self._brokers: list[UsableBroker] = []
        self._given: dict[int, int] = {}
        self._hosts_matter = False

    def copy(self) -> Placement:
        """A copy, for a placement that may be discarded."""
        copied = Placement(self.number)
        copied._brokers, copied._given = self._brokers, dict(self._given)
        copied._hosts_matter = self._hosts_matter
        return copied

    def place(
        self, brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int
    ) -> list[tuple[int, ...]]:
        """The replicas of each partition, its preferred leader first.

        Fenced brokers never lead a new partition, and get a replica only if there are not enough other brokers.
        """
        usable = sorted(brokers)
        active = alternate(broker for broker in usable if not broker.fenced)
        fenced = alternate(broker for broker in usable if broker.fenced)
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
            self._hosts_matter = 1 < len(set(map(host_of, usable))) < len(usable)
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
        racks: dict[str | None, list[UsableBroker]] = {}
        for broker in pool:
            racks.setdefault(broker.rack, []).append(broker)
        burden = {rack: sum(given[broker.broker_id] for broker in racks[rack]) / len(racks[rack]) for rack in racks}
        on_host = Counter(map(host_of, chosen))
        in_rack = Counter(broker.rack for broker in chosen)
        while racks and len(chosen) < replication_factor:
            usable = _on_hosts_with_fewest(racks, on_host) if self._hosts_matter else racks
            fewest = min(map(in_rack.__getitem__, usable))
            rack = _first_not_above([rack for rack in usable if in_rack[rack] == fewest], burden)
            broker_id = _first_not_above([broker.broker_id for broker in usable[rack]], given)
            broker = next(broker for broker in usable[rack] if broker.broker_id == broker_id)
            racks[rack].remove(broker)
            if not racks[rack]:
                del racks[rack]
            on_host[host_of(broker)] += 1
            in_rack[rack] += 1
            chosen.append(broker)


def host_of(broker: UsableBroker) -> str | int:
    """What two brokers on the same host have in common, and no others."""
    return broker.broker_id if broker.host is None else broker.host


def _on_hosts_with_fewest(
    racks: Mapping[str | None, Sequence[UsableBroker]], on_host: Mapping[str | int, int]
) -> dict[str | None, list[UsableBroker]]:
    fewest = min(on_host[host_of(broker)] for members in racks.values() for broker in members)
    found = {
        rack: [broker for broker in members if on_host[host_of(broker)] == fewest] for rack, members in racks.items()
    }
    return {rack: members for rack, members in found.items() if members}


def _first_not_above(candidates: Sequence[Candidate], given: Mapping[Candidate, float]) -> Candidate:
    """The first candidate that has not received more than the least loaded one plus the tolerance."""
    limit = min(map(given.__getitem__, candidates)) + TOLERANCE
    return next(candidate for candidate in candidates if given[candidate] <= limit)


def alternate(brokers: Iterable[UsableBroker]) -> list[UsableBroker]:
    """The brokers by id, one of each rack in turn, as long as racks have brokers left; in a rack, one of each host."""
    racks: dict[str, dict[str | int, list[UsableBroker]]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        racks.setdefault(broker.rack or "", {}).setdefault(host_of(broker), []).append(broker)
    return _in_turn([_in_turn(racks[rack].values()) for rack in sorted(racks)])


def _in_turn(groups: Iterable[list[UsableBroker]]) -> list[UsableBroker]:
    return [broker for ones in zip_longest(*groups) for broker in ones if broker is not None]


def refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
