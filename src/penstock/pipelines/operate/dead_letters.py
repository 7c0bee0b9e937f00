"""Dead letters as they are stored in their topic, and the records that a replay sends: pure.

A dead letter is the original record, with headers that contain the reason and the origin. A replay sends the original
key, value, headers and timestamp. Instead of the headers `dead-letter.*` the record has `replayed.*`, which contain the
position of the dead letter and how often the record was replayed.

The replayed dead letters are known by their offsets (`Done`), because those that one call skips (another reason,
another pipeline) remain for the next.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

DEAD, REPLAYED = "dead-letter.", "replayed."
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    def text(self, name: str) -> str | None:
        """The text of a header; the last one of a name counts."""
        for each, value in reversed(self.headers):
            if each == name and value is not None:
                return value.decode(errors="replace")
        return None

    @property
    def reason(self) -> str:
        return self.text(f"{DEAD}reason") or UNKNOWN

    @property
    def pipeline(self) -> str:
        return self.text(f"{DEAD}pipeline") or UNKNOWN

    @property
    def field(self) -> str | None:
        """The fields that the reason is about, if it is about some."""
        return self.text(f"{DEAD}field")

    @property
    def origin(self) -> str | None:
        """Where the record was read: `topic-partition at offset N`, as far as its headers say."""
        partition, offset = self.text(f"{DEAD}partition"), self.text(f"{DEAD}offset")
        if self.source is None or partition is None:
            return self.source
        return f"{self.source}-{partition}" + (f" at offset {offset}" if offset is not None else "")

    @property
    def source(self) -> str | None:
        """The topic it was read from; None for rows that were not records."""
        return self.text(f"{DEAD}topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters to replay; an empty field matches all."""

    reason: str = ""
    """A part of the reason."""
    pipeline: str = ""
    places: frozenset[tuple[int, int]] = frozenset()
    """Partitions and offsets of single letters."""

    def takes(self, letter: Letter) -> bool:
        return (
            self.reason.lower() in letter.reason.lower()
            and self.pipeline in ("", letter.pipeline)
            and (not self.places or (letter.partition, letter.offset) in self.places)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A record to send."""

    topic: str
    partition: int | None
    """The original partition, if it returns to its topic; otherwise the key decides."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def replay(letter: Letter, to: str = "", edited: bytes | None = None) -> Replay:
    """To the topic it was read from, or to another one; with its own value, or an edited one."""
    topic = to or letter.source
    if topic is None:
        raise ValueError("it was no record of a topic")
    partition = _number(letter.text(f"{DEAD}partition"))
    timestamp = _number(letter.text(f"{DEAD}timestamp"))
    times = _number(letter.text(f"{REPLAYED}times")) or 0
    kept = [header for header in letter.headers if not header[0].startswith((DEAD, REPLAYED))]
    replayed: dict[str, str | int] = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "times": times + 1,
    }
    if edited is not None:
        replayed["edited"] = "true"
    return Replay(
        topic=topic,
        partition=None if to else partition,
        key=letter.key,
        value=letter.value if edited is None else edited,
        headers=(*kept, *((f"{REPLAYED}{name}", str(value).encode()) for name, value in replayed.items())),
        timestamp_ms=letter.timestamp_ms if timestamp is None else timestamp,
    )


class Cause(NamedTuple):
    """What letters have in common."""

    pipeline: str
    source: str | None
    field: str | None
    reason: str


@dataclass(slots=True)
class CauseSummary:
    """The letters of one cause."""

    letters: int = 0
    replayed: int = 0
    """Of them, those that were sent back."""
    first_ms: int = 0
    last_ms: int = 0
    """When the first and the last of them were written."""
    samples: list[Letter] = field(default_factory=list)
    """The newest of them."""

    def add(self, letter: Letter, *, replayed: bool, samples_max: int) -> None:
        self.first_ms = min(self.first_ms, letter.timestamp_ms) if self.letters else letter.timestamp_ms
        self.last_ms = max(self.last_ms, letter.timestamp_ms)
        self.letters += 1
        self.replayed += replayed
        self.samples.append(letter)
        self.samples.sort(key=lambda each: each.timestamp_ms, reverse=True)
        del self.samples[samples_max:]


@dataclass(slots=True)
class Done:
    """Offsets of one partition, as ranges: each from its first to its last, in order, with gaps between them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, first: int, last: int) -> None:
        below = [each for each in self.ranges if each[1] < first - 1]
        above = [each for each in self.ranges if each[0] > last + 1]
        touched = [each for each in self.ranges if each[1] >= first - 1 and each[0] <= last + 1]
        merged = (min([first, *(low for low, _ in touched)]), max([last, *(high for _, high in touched)]))
        self.ranges = [*below, merged, *above]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self.ranges, (offset, 2**63)) - 1
        return index >= 0 and self.ranges[index][0] <= offset <= self.ranges[index][1]

    def first_missing(self, begin: int) -> int:
        """The first offset from `begin` on that is not done: records before it need not be read."""
        return next((last + 1 for first, last in self.ranges if first <= begin <= last), begin)

    def count_from(self, begin: int) -> int:
        return sum(last - max(first, begin) + 1 for first, last in self.ranges if last >= begin)


def spans(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Offsets, in order, as ranges."""
    begin = end = None
    for offset in offsets:
        if begin is None or end is None:
            begin = end = offset
        elif offset == end + 1:
            end = offset
        else:
            yield begin, end
            begin = end = offset
    if begin is not None and end is not None:
        yield begin, end


def ledger_entry(topic_id: str, partition: int, offsets: list[int]) -> tuple[str, str]:
    """Key and value of the record that stores what a transaction replayed. It uses the topic's id: dead letters of a
    deleted topic are not those of a new one with the same name."""
    return f"{topic_id}/{partition}/{offsets[0]}", json.dumps({"replayed": list(spans(offsets))})


def read_ledger(topic_id: str, entries: Iterable[tuple[str | None, str | None]]) -> dict[int, Done]:
    """What was replayed, by partition."""
    done: dict[int, Done] = {}
    for key, value in entries:
        owner, _, place = (key or "").partition("/")
        if owner != topic_id or value is None:
            continue
        for first, last in json.loads(value)["replayed"]:
            done.setdefault(int(place.partition("/")[0]), Done()).add(first, last)
    return done


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
