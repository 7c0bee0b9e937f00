"""Batches for a table with history, and the versions it has after each."""

from __future__ import annotations

from datetime import UTC, datetime

Row = tuple[int, str, datetime]
Version = tuple[int, str, datetime, datetime | None, bool]


def at(minute: int) -> datetime:
    return datetime(2026, 5, 1, 12, minute, tzinfo=UTC)


BATCHES: tuple[tuple[str, list[Row], list[Version]], ...] = (
    (
        "first versions",
        [(1, "a", at(10)), (2, "x", at(10))],
        [(1, "a", at(10), None, True), (2, "x", at(10), None, True)],
    ),
    (
        "what is the same makes no version",
        [(1, "b", at(30)), (1, "a", at(20))],
        [(1, "a", at(10), at(30), False), (1, "b", at(30), None, True), (2, "x", at(10), None, True)],
    ),
    (
        "a late row gets its place; of the same time the last one counts",
        [(1, "c", at(20)), (2, "y", at(40)), (2, "z", at(40))],
        [
            (1, "a", at(10), at(20), False),
            (1, "c", at(20), at(30), False),
            (1, "b", at(30), None, True),
            (2, "x", at(10), at(40), False),
            (2, "z", at(40), None, True),
        ],
    ),
    (
        "a late row begins a version that was known to begin later",
        [(1, "b", at(25))],
        [
            (1, "a", at(10), at(20), False),
            (1, "c", at(20), at(25), False),
            (1, "b", at(25), None, True),
            (2, "x", at(10), at(40), False),
            (2, "z", at(40), None, True),
        ],
    ),
)
