"""Decides which filters of a batch query limit the offsets that are read, and which Spark applies.

Partition, topic and offset determine a record's place, so comparisons of them with constants are exact: Spark need not
check again. Timestamps need not increase along the log. A lower bound on the time still says where to begin: brokers
find the first record of a partition at or after the time, and no earlier record matches. Spark then filters the rest.
An upper bound on the time does not say where to end, as older records may come later, so it is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from penstock.model.ids import TopicPartition
from penstock.spark.source.planning import Piece

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_OF_TIME = 2**63 - 1
_NEVER_NULL = ("topic", "partition", "offset", "timestampType")

Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of the partitions to read."""

    topics: tuple[Test, ...] = ()
    partitions: tuple[Test, ...] = ()
    first: int = 0
    end: int = _END_OF_TIME
    from_time: int | None = None  # milliseconds

    def takes(self, partition: TopicPartition) -> bool:
        return all(test(partition.topic) for test in self.topics) and all(
            test(partition.partition) for test in self.partitions
        )

    def narrow(self, piece: Piece, from_time: int | None) -> Piece:
        """`from_time` is the offset of the partition's first record at or after the filter's time."""
        first = max(piece.first, self.first, from_time or 0)
        return piece._replace(first=first, end=max(first, min(piece.end, self.end)))


def push(filters: list[Filter]) -> tuple[Selection, list[Filter]]:
    """What to read, and the filters that Spark must still apply."""
    selection, remaining = Selection(), []
    for each in filters:
        selection, exact = _pushed(selection, each)
        if not exact:
            remaining.append(each)
    return selection, remaining


def _pushed(selection: Selection, each: Filter) -> tuple[Selection, bool]:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1:
        return selection, False
    column = path[0]
    if isinstance(each, IsNotNull):
        return selection, column in _NEVER_NULL
    value = getattr(each, "value", None)
    if column == "topic" or column == "partition":
        test = _test(each, value, str if column == "topic" else int)
        if test is None:
            return selection, False
        if column == "topic":
            return replace(selection, topics=(*selection.topics, test)), True
        return replace(selection, partitions=(*selection.partitions, test)), True
    if column == "offset":
        return _by_offset(selection, each, value)
    if column == "timestamp":
        return _by_time(selection, each, value), False
    return selection, False


def _test(each: Filter, value: Any, kind: type) -> Test | None:
    if isinstance(each, In):
        values = frozenset(value)
        return values.__contains__ if all(_is(kind, one) for one in values) else None
    if not _is(kind, value):
        return None
    tests: dict[type[Filter], Test] = {
        EqualTo: lambda found: bool(found == value),
        EqualNullSafe: lambda found: bool(found == value),
        GreaterThan: lambda found: bool(found > value),
        GreaterThanOrEqual: lambda found: bool(found >= value),
        LessThan: lambda found: bool(found < value),
        LessThanOrEqual: lambda found: bool(found <= value),
    }
    # Spark compares text by its UTF-8 bytes, Python by code points; the order is the same.
    return tests.get(type(each))


def _by_offset(selection: Selection, each: Filter, value: Any) -> tuple[Selection, bool]:
    if isinstance(each, In):
        values = [one for one in value if one is not None]
        if not all(_is(int, one) for one in values):
            return selection, False
        first, end = (min(values), max(values) + 1) if values else (0, 0)
        return _between(selection, first, end), end - first == len(set(values))
    if not _is(int, value):
        return selection, False
    if isinstance(each, EqualTo | EqualNullSafe):
        return _between(selection, value, value + 1), True
    if isinstance(each, GreaterThan):
        return _between(selection, value + 1, _END_OF_TIME), True
    if isinstance(each, GreaterThanOrEqual):
        return _between(selection, value, _END_OF_TIME), True
    if isinstance(each, LessThan):
        return _between(selection, 0, value), True
    if isinstance(each, LessThanOrEqual):
        return _between(selection, 0, value + 1), True
    return selection, False


def _between(selection: Selection, first: int, end: int) -> Selection:
    return replace(selection, first=max(selection.first, first), end=min(selection.end, end))


def _by_time(selection: Selection, each: Filter, value: Any) -> Selection:
    if isinstance(each, In):
        times = [one for one in value if isinstance(one, datetime)]
        value = min(times) if times and len(times) == len(value) else None
    if not isinstance(value, datetime):
        return selection
    if not isinstance(each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | In):
        return selection
    earliest = _milliseconds(value)
    if earliest <= 0:
        return selection  # brokers search for times since 1970 only, and records may have earlier ones
    return replace(selection, from_time=max(earliest, selection.from_time or 0))


def _milliseconds(moment: datetime) -> int:
    """The last millisecond at or before the moment: no matching record has an earlier timestamp."""
    aware = moment if moment.tzinfo is not None else moment.astimezone()
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
