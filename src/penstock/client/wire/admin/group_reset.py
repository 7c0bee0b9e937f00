"""Offset resets: converts a reset target to an offset for each partition.

A target is a Python value: an offset is a number, a point in time a `datetime`, a duration before now a `timedelta`.
The result is limited to the range of the partition, from its first offset to its end; a remark says if that changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from penstock.client.errors import ClientError
from penstock.client.wire.admin.group_offsets import CommittedOffset
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """A number of records forward, or back if negative, from the committed offset."""

    records: int


ResetTarget: TypeAlias = Literal["earliest", "latest", "current"] | int | datetime | timedelta | ShiftBy


@dataclass(frozen=True, slots=True)
class OffsetReset:
    topic: str
    partition: int
    old: int | None  # None: never committed
    new: int
    remark: str | None  # why it differs from the requested offset


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of a partition: its first offset, its end, and the first offset at or after a time (None: none)."""

    start: int
    end: int
    at_time: int | None = None


def time_of(target: ResetTarget, now: datetime) -> int | None:
    """Return the time that a target refers to, in milliseconds; None if it refers to none."""
    if isinstance(target, timedelta):
        target = now - target
    if not isinstance(target, datetime):
        return None
    if target.tzinfo is None:
        raise ValueError(f"{target.isoformat()} has no time zone")
    milliseconds = (target - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return max(0, milliseconds)


def plan(
    target: ResetTarget,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    bounds: Mapping[TopicPartition, Bounds],
) -> list[OffsetReset]:
    resets = []
    for partition in sorted(set(partitions)):
        old = committed[partition].offset if partition in committed else None
        wanted, remark = _wanted(target, partition, old, bounds[partition])
        new = min(max(wanted, bounds[partition].start), bounds[partition].end)
        if new != wanted:
            remark = f"{wanted} is {'before the first' if wanted < new else 'after the last'} record"
        resets.append(OffsetReset(partition.topic, partition.partition, old, new, remark))
    return resets


def _wanted(target: ResetTarget, partition: TopicPartition, old: int | None, bounds: Bounds) -> tuple[int, str | None]:
    match target:
        case "earliest":
            return bounds.start, None
        case "latest":
            return bounds.end, None
        case "current":
            return (bounds.end, "nothing committed: the end") if old is None else (old, None)
        case datetime() | timedelta():
            return (bounds.end, "no record so late: the end") if bounds.at_time is None else (bounds.at_time, None)
        case ShiftBy(records):
            if old is None:
                raise ClientError(f"cannot shift in {partition}: the group has committed nothing there")
            return old + records, None
        case int(offset):
            return offset, None
    raise TypeError(f"{target!r} is no place to reset to")
