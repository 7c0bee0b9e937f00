"""What was acknowledged, and what came out: counted by key and sequence.

Nothing here is estimated. An event counts as there when its own key and sequence were read, and as twice there when
they were read at two places. Two readings of one place, which a consumer may make after a rebalance, are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EventId = tuple[str, str, int]
"""Topic, key and sequence."""


class Sequences:
    """A set of events, as one byte, 0 or 1, for each sequence of each key. Threads may look while others write."""

    def __init__(self) -> None:
        self._bits: dict[tuple[str, str], bytearray] = {}

    def add(self, topic: str, key: str, sequence: int) -> bool:
        """False if it was there already."""
        bits = self._bits.setdefault((topic, key), bytearray())
        if sequence >= len(bits):
            bits.extend(bytes(sequence + 1 - len(bits)))
        if bits[sequence]:
            return False
        bits[sequence] = 1
        return True

    def discard(self, topic: str, key: str, sequence: int) -> None:
        if (topic, key, sequence) in self:
            self._bits[topic, key][sequence] = 0

    def __contains__(self, event: EventId) -> bool:
        topic, key, sequence = event
        bits = self._bits.get((topic, key), b"")
        return sequence < len(bits) and bool(bits[sequence])

    def __len__(self) -> int:
        return sum(bits.count(1) for bits in list(self._bits.values()))

    def of_topic(self, topic: str) -> int:
        return sum(bits.count(1) for (of, _), bits in list(self._bits.items()) if of == topic)

    def without(self, other: Sequences) -> list[EventId]:
        """Those that the other does not have. Keys at once, as large numbers: there may be millions of events."""
        found: list[EventId] = []
        for (topic, key), bits in list(self._bits.items()):
            left = int.from_bytes(bits, "little") & ~int.from_bytes(other._bits.get((topic, key), b""), "little")
            if left:
                found += [
                    (topic, key, index) for index, there in enumerate(left.to_bytes(len(bits), "little")) if there
                ]
        return found


class Output:
    """A place where events come out: topics that are read from the beginning."""

    def __init__(self) -> None:
        self.seen = Sequences()
        self.doubled = 0
        self._positions: dict[tuple[str, int], int] = {}

    def is_new(self, topic: str, partition: int, offset: int) -> bool:
        """Whether this place was not read before; asked once for each record, in order."""
        if offset <= self._positions.get((topic, partition), -1):
            return False
        self._positions[topic, partition] = offset
        return True

    def see(self, topic: str, key: str, sequence: int) -> None:
        if not self.seen.add(topic, key, sequence):
            self.doubled += 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one output."""

    output: str
    expected: int
    arrived: int
    missing: tuple[EventId, ...]
    doubled: int
    letters: int = 0
    """Events that did not come out because they lie in a dead-letter topic: not lost, and nobody has them yet."""

    @property
    def is_good(self) -> bool:
        return not self.missing and not self.doubled

    @property
    def text(self) -> str:
        if self.is_good:
            lying = f"; {self.letters:,} still in the dead-letter topic" if self.letters else ""
            return f"{self.arrived:,} of {self.expected:,} acknowledged events, each once{lying}"
        parts = []
        if self.missing:
            topic, key, sequence = self.missing[0]
            parts.append(f"{len(self.missing):,} of {self.expected:,} are missing, first {key} #{sequence} of {topic}")
        if self.doubled:
            parts.append(f"{self.doubled:,} came more than once")
        return "; ".join(parts)


class Ledger:
    """Threads write to it, each to a part of its own."""

    def __init__(self, pipelines: Mapping[str, tuple[str, ...]]) -> None:
        """`pipelines`: the topics that each of them reads."""
        self._pipelines = pipelines
        self.acknowledged = Sequences()
        self.topics = Output()
        self.outputs = {name: Output() for name in pipelines}
        self.letters = Sequences()
        """Events that lie in a dead-letter topic and were not sent again."""

    def behind(self, pipeline: str) -> int:
        """How many acknowledged events are still to come out of it. Near enough while all of it moves."""
        topics = self._pipelines[pipeline]
        due = sum(self.acknowledged.of_topic(topic) - self.letters.of_topic(topic) for topic in topics)
        return max(0, due - len(self.outputs[pipeline].seen))

    def verdicts(self, *, pipelines: bool = True) -> list[Verdict]:
        """Sure only when nothing is written any more."""
        found = [self._verdict("topics", self.topics, None)]
        for name, topics in self._pipelines.items() if pipelines else ():
            found.append(self._verdict(f"pipeline {name}", self.outputs[name], topics))
        return found

    def _verdict(self, name: str, output: Output, topics: tuple[str, ...] | None) -> Verdict:
        within = [event for event in self.acknowledged.without(output.seen) if topics is None or event[0] in topics]
        missing = [event for event in within if topics is None or event not in self.letters]
        expected = len(self.acknowledged) if topics is None else sum(map(self.acknowledged.of_topic, topics))
        arrived, lying = expected - len(within), len(within) - len(missing)
        return Verdict(name, expected, arrived, tuple(missing), output.doubled, lying)
