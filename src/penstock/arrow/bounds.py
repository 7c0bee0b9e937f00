"""Resolves the bounds of a read, given as words, offsets or times, to an offset range for each partition.

A bound is "earliest", "latest", an offset, a time, or a mapping with one of these for each partition. `start` is
inclusive, `end` is exclusive. A time stands for the first record at or after it, or for the end if there is none.
"latest" is the end as this reader sees it: under read_committed, the last stable offset.

Offsets outside the log are refused before anything is read, unless the caller asks to skip lost records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from penstock.arrow.errors import BadBounds, DataLost
from penstock.client.wire.admin.topics import EARLIEST, LATEST
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.log_offsets import READ_COMMITTED, LogOffsets
from penstock.model.ids import TopicPartition

PointInLog = str | int | datetime
Bound = PointInLog | Mapping[int | TopicPartition, PointInLog] | None
PartitionChoice = Iterable[int | TopicPartition] | None

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OffsetRange(NamedTuple):
    first: int
    end: int  # exclusive


def choose_partitions(leaders: Leaders, topics: list[str], wanted: PartitionChoice) -> list[TopicPartition]:
    """All partitions of the topics, or the requested ones, which must exist."""
    existing = [TopicPartition(name, index) for name in topics for index in sorted(leaders.topics[name].leaders)]
    if wanted is None:
        return existing
    chosen = sorted({_partition(entry, topics) for entry in wanted})
    missing = [str(each) for each in chosen if each not in existing]
    if missing:
        raise BadBounds(f"no such partition: {', '.join(missing)}")
    return chosen


def resolve_ranges(
    leaders: Leaders,
    partitions: list[TopicPartition],
    start: Bound,
    end: Bound,
    *,
    isolation: int,
    skip_lost: bool,
    timeout: float,
) -> dict[TopicPartition, OffsetRange]:
    """An offset range for each partition. Without an `end` it is unbounded."""
    topics = sorted({partition.topic for partition in partitions})
    points_at_start = _points(start, partitions, topics, "start")
    points_at_end = {} if end is None else _points(end, partitions, topics, "end")
    asking = LogOffsets(leaders, isolation, timeout)
    earliest, latest = asking.at(partitions, EARLIEST), asking.at(partitions, LATEST)
    firsts = _resolve(asking, points_at_start, earliest, latest)
    ends = _resolve(asking, points_at_end, earliest, latest)
    ranges: dict[TopicPartition, OffsetRange] = {}
    for partition in partitions:
        first, last = firsts[partition], ends.get(partition, 2**63 - 1)
        low, high = earliest[partition], latest[partition]
        if first < low:
            if not skip_lost:
                raise DataLost(partition, first, low)
            first = low
        behind = first if first > high else last if end is not None and last > high else None
        if behind is not None:
            what = "the last stable offset" if isolation == READ_COMMITTED else "the end of the log"
            raise BadBounds(f"{partition}: {'start' if behind == first else 'end'} {behind} is behind {what}, {high}")
        if last < first and all(isinstance(points[partition], int) for points in (points_at_start, points_at_end)):
            raise BadBounds(f"{partition}: end {last} is before start {first}")
        ranges[partition] = OffsetRange(first, max(first, last))
    return ranges


def _partition(entry: int | TopicPartition, topics: list[str]) -> TopicPartition:
    if isinstance(entry, tuple):
        return TopicPartition(*entry)
    if len(topics) != 1:
        raise BadBounds(f"partition {entry} of which topic? With several topics, say TopicPartition(topic, {entry})")
    return TopicPartition(topics[0], entry)


def _points(
    bound: Bound, partitions: list[TopicPartition], topics: list[str], name: str
) -> dict[TopicPartition, PointInLog]:
    if isinstance(bound, Mapping):
        points = {_partition(entry, topics): point for entry, point in bound.items()}
        unknown = [str(each) for each in points if each not in partitions]
        if unknown:
            raise BadBounds(f"{name} names {', '.join(unknown)}, which is not read here")
        absent = [str(each) for each in partitions if each not in points]
        if absent:
            raise BadBounds(f"{name} says nothing of {', '.join(absent)}")
    else:
        points = {partition: _required(bound, name) for partition in partitions}
    for point in points.values():
        _check(point, name)
    return points


def _required(bound: Any, name: str) -> PointInLog:
    if bound is None:
        raise BadBounds(f"{name} must be 'earliest', 'latest', an offset or a time")
    point: PointInLog = bound
    return point


def _check(point: Any, name: str) -> None:
    if isinstance(point, datetime):
        if point.tzinfo is None:
            raise BadBounds(f"{name}={point!r} has no time zone; say e.g. datetime(..., tzinfo=UTC)")
    elif isinstance(point, bool) or not (point in _WORDS if isinstance(point, str) else isinstance(point, int)):
        raise BadBounds(f"{name}={point!r} is not 'earliest', 'latest', an offset or a time")
    elif isinstance(point, int) and point < 0:
        raise BadBounds(f"{name}={point}: offsets begin at 0")


def _milliseconds(point: datetime) -> int:
    """The first millisecond at or after the point."""
    return -((_EPOCH - point) // timedelta(milliseconds=1))


def _resolve(
    asking: LogOffsets,
    points: Mapping[TopicPartition, PointInLog],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    by_time: dict[int, list[TopicPartition]] = {}
    for partition, point in points.items():
        if isinstance(point, datetime):
            by_time.setdefault(_milliseconds(point), []).append(partition)
        elif isinstance(point, str):
            found[partition] = (earliest if point == "earliest" else latest)[partition]
        else:
            found[partition] = point
    for timestamp, partitions in by_time.items():
        for partition, offset in asking.at(partitions, timestamp).items():
            found[partition] = offset if 0 <= offset < latest[partition] else latest[partition]
    return found
