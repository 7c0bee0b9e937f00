"""Counts the events that were acknowledged and those that came out, by key and sequence.

Nothing here is estimated. An event has arrived when its own key and sequence were read, and is doubled when they were
read at two offsets. A consumer may read one offset twice after a rebalance; that counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.demo.workload import EventId


class EventSet:
    """One byte, 0 or 1, for each sequence of each key. Threads may read it while others write."""

    def __init__(self) -> None:
        self._bits: dict[tuple[str, str], bytearray] = {}

    def add(self, event: EventId) -> bool:
        """False if it was there already."""
        topic, key, sequence = event
        bits = self._bits.setdefault((topic, key), bytearray())
        if sequence >= len(bits):
            bits.extend(bytes(sequence + 1 - len(bits)))
        if bits[sequence]:
            return False
        bits[sequence] = 1
        return True

    def discard(self, event: EventId) -> None:
        if event in self:
            self._bits[event.topic, event.key][event.sequence] = 0

    def __contains__(self, event: EventId) -> bool:
        topic, key, sequence = event
        bits = self._bits.get((topic, key), b"")
        return sequence < len(bits) and bool(bits[sequence])

    def __len__(self) -> int:
        return sum(bits.count(1) for bits in list(self._bits.values()))

    def of_topic(self, topic: str) -> int:
        return sum(bits.count(1) for (of, _), bits in list(self._bits.items()) if of == topic)

    def without(self, other: EventSet) -> list[EventId]:
        """The events that the other set lacks. Compares whole keys, as large numbers: there may be millions of
        events."""
        found: list[EventId] = []
        for (topic, key), bits in list(self._bits.items()):
            left = int.from_bytes(bits, "little") & ~int.from_bytes(other._bits.get((topic, key), b""), "little")
            if left:
                missing = left.to_bytes(len(bits), "little")
                found += [EventId(topic, key, index) for index, is_missing in enumerate(missing) if is_missing]
        return found


class Output:
    """Topics that are read from the beginning."""

    def __init__(self) -> None:
        self.seen = EventSet()
        self.doubled = 0
        self._positions: dict[tuple[str, int], int] = {}

    def is_new(self, topic: str, partition: int, offset: int) -> bool:
        """Whether this offset was not read before; call it once for each record, in order."""
        if offset <= self._positions.get((topic, partition), -1):
            return False
        self._positions[topic, partition] = offset
        return True

    def see(self, event: EventId) -> None:
        if not self.seen.add(event):
            self.doubled += 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one output."""

    output: str
    expected: int
    arrived: int
    missing: tuple[EventId, ...]
    doubled: int
    dead_letters: int = 0
    """Events that did not come out because they are in a dead-letter topic: not lost, and not processed yet."""

    @property
    def is_good(self) -> bool:
        return not self.missing and not self.doubled

    @property
    def text(self) -> str:
        if self.is_good:
            waiting = f"; {self.dead_letters:,} still in the dead-letter topic" if self.dead_letters else ""
            return f"{self.arrived:,} of {self.expected:,} acknowledged events, each once{waiting}"
        parts = []
        if self.missing:
            topic, key, sequence = self.missing[0]
            parts.append(f"{len(self.missing):,} of {self.expected:,} are missing, first {key} #{sequence} of {topic}")
        if self.doubled:
            parts.append(f"{self.doubled:,} came more than once")
        return "; ".join(parts)


class Ledger:
    """Several threads write to it, each to its own part."""

    def __init__(self, pipelines: Mapping[str, tuple[str, ...]]) -> None:
        """`pipelines`: the topics that each of them reads."""
        self._pipelines = pipelines
        self.acknowledged = EventSet()
        self.topics = Output()
        self.outputs = {name: Output() for name in pipelines}
        self.dead_letters = EventSet()
        """Events that are in a dead-letter topic and were not sent again."""

    def lag(self, pipeline: str) -> int:
        """How many acknowledged events have not come out of it yet; approximate while events flow."""
        topics = self._pipelines[pipeline]
        due = sum(self.acknowledged.of_topic(topic) - self.dead_letters.of_topic(topic) for topic in topics)
        return max(0, due - len(self.outputs[pipeline].seen))

    def verdicts(self, *, pipelines: bool = True) -> list[Verdict]:
        """Final only when nothing is written any more."""
        found = [self._verdict("topics", self.topics, None)]
        for name, topics in self._pipelines.items() if pipelines else ():
            found.append(self._verdict(f"pipeline {name}", self.outputs[name], topics))
        return found

    def _verdict(self, name: str, output: Output, topics: tuple[str, ...] | None) -> Verdict:
        absent = [event for event in self.acknowledged.without(output.seen) if topics is None or event.topic in topics]
        missing = [event for event in absent if topics is None or event not in self.dead_letters]
        expected = len(self.acknowledged) if topics is None else sum(map(self.acknowledged.of_topic, topics))
        arrived, dead_letters = expected - len(absent), len(absent) - len(missing)
        return Verdict(name, expected, arrived, tuple(missing), output.doubled, dead_letters)
