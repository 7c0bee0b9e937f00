"""The settings that note a move: of a topic, which replicas a partition has had and which it is copied to; of a broker,
how fast it may copy.

They are those of Kafka's own tool, so that its brokers and ours throttle exactly these replicas, and any tool shows
them. So one must be able to tell whose they are:

- `leader.replication.throttled.replicas` has the replicas before the move *and* the copies, each of which may lead
  meanwhile; `follower.replication.throttled.replicas` has the copies. Kafka's tool writes no broker into both.
- The rate of followers is one byte below that of leaders. Kafka's tool sets both to the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"

Marks = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a topic, by partition."""

    # The replicas before the move, and the copies.
    originals: Marks = field(default_factory=dict)
    copies: Marks = field(default_factory=dict)
    # Whether the settings have what a move does not write.
    of_others: bool = False

    def believed(self, partition: int, replicas: Collection[int]) -> bool:
        """Whether a partition with these replicas can be where the note says: on the way, or moved."""
        originals, copies = self.originals.get(partition), self.copies.get(partition, ())
        if originals is None or not set(replicas) <= {*originals, *copies}:
            return False
        return set(originals) <= set(replicas) or len(replicas) == len(originals)

    def settings(self) -> dict[str, str]:
        both = {index: (*self.originals[index], *self.copies[index]) for index in self.originals}
        return {LEADER_REPLICAS: _text_of(both), FOLLOWER_REPLICAS: _text_of(self.copies)}


def notes_from(settings: Mapping[str, str | None]) -> Notes:
    throttled, is_list = _parse(settings.get(LEADER_REPLICAS))
    copies, are_list = _parse(settings.get(FOLLOWER_REPLICAS))
    ours = {index for index in throttled if copies.get(index) and set(copies[index]) < set(throttled[index])}
    return Notes(
        {index: tuple(each for each in throttled[index] if each not in copies[index]) for index in sorted(ours)},
        {index: copies[index] for index in sorted(ours)},
        of_others=not (is_list and are_list and ours == throttled.keys() == copies.keys()),
    )


def rates(bytes_per_second: int) -> dict[str, str]:
    return {LEADER_RATE: str(bytes_per_second), FOLLOWER_RATE: str(bytes_per_second - 1)}


def are_ours(found: Mapping[str, str]) -> bool:
    return found.get(LEADER_RATE, "").isdecimal() and found == rates(int(found[LEADER_RATE]))


def _parse(text: str | None) -> tuple[Marks, bool]:
    """By partition, and whether this is all: `*` is not."""
    marks: Marks = {}
    for entry in filter(None, (part.strip() for part in (text or "").split(","))):
        partition, _, broker = entry.partition(":")
        if not (partition.isdecimal() and broker.isdecimal()):
            return {}, False
        marks[int(partition)] = (*marks.get(int(partition), ()), int(broker))
    return marks, True


def _text_of(marks: Mapping[int, Iterable[int]]) -> str:
    return ",".join(f"{partition}:{broker}" for partition in sorted(marks) for broker in marks[partition])
