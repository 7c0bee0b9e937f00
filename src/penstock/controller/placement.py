"""Where the replicas of new partitions go.

The brokers are put in one list that alternates between racks. Partition number k (counted on from topic to topic, so
that many small topics spread as well as a large one) is led by broker k of that list, and its followers are taken from
the list behind the leader, first from racks the partition is not on yet. With each turn around the list the followers
start one further from the leader, so that a broker that dies leaves its leaderships to all others and not to one
neighbour.

Everything follows from the arguments: same brokers, same number, same placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


def place(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    """The replicas of each partition, its preferred leader first. `first` is the number of the first of them.

    Fenced brokers never lead a new partition, and hold one only when there are not enough others.
    """
    usable = list(brokers)
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
    return [_replicas(active, fenced, replication_factor, first + partition) for partition in range(partition_count)]


def alternate_racks(brokers: Iterable[UsableBroker]) -> list[UsableBroker]:
    """The brokers by id, one of each rack in turn for as long as the racks last."""
    racks: dict[str, list[UsableBroker]] = {}
    for broker in sorted(brokers):
        racks.setdefault(broker.rack or "", []).append(broker)
    ordered = [racks[rack] for rack in sorted(racks)]
    longest = max(map(len, ordered), default=0)
    return [rack[position] for position in range(longest) for rack in ordered if position < len(rack)]


def refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _replicas(
    active: Sequence[UsableBroker], fenced: Sequence[UsableBroker], replication_factor: int, number: int
) -> tuple[int, ...]:
    turn, position = divmod(number, len(active))
    leader = active[position]
    chosen = [leader]
    others = len(active) - 1
    followers = [active[(position + 1 + (turn + step) % others) % len(active)] for step in range(others)]
    for pool in (followers, fenced):
        remaining = list(pool)
        while remaining and len(chosen) < replication_factor:
            broker = _least_shared(remaining, chosen)
            remaining.remove(broker)
            chosen.append(broker)
    return tuple(broker.broker_id for broker in chosen)


def _least_shared(candidates: Sequence[UsableBroker], chosen: Sequence[UsableBroker]) -> UsableBroker:
    """The first candidate whose rack has the fewest of the chosen."""
    counts: dict[str | None, int] = {}
    for broker in chosen:
        counts[broker.rack] = counts.get(broker.rack, 0) + 1
    return min(candidates, key=lambda broker: counts.get(broker.rack, 0))
