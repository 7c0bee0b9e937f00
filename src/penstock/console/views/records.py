"""Records that were read, and what a search says on its way."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    topic: str
    partition: int
    offset: int
    timestamp_ms: float
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Progress:
    searched: int
    total: int
    matched: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Done:
    """The end: `complete` if every offset that existed when it began was looked at, and every match was given."""

    complete: bool
    searched: int
    total: int
    matched: int
    seconds: float
    partitions: tuple[int, ...] = ()


Event = Progress | Found | Done
