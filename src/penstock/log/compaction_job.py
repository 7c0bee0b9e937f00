"""The job and the result of a compaction: JSON files that the broker and its child process exchange."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from penstock.log.segment import MAX_RELATIVE_OFFSET


class SourceSegment(NamedTuple):
    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    end_offset: int
    """The base offset of the next segment."""


class ActiveProducer(NamedTuple):
    """State of a producer that the partition holds and that must still be in the log after compaction."""

    last_data_offset: int
    """The offset of the batch with the producer's last sequence; -1 if only a marker is known."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    directory: str
    segments: list[SourceSegment]
    """The segments from the front of the log up to the first that must not be cleaned."""
    first_dirty_offset: int
    """Below this offset, each key has only its latest record."""
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: dict[int, ActiveProducer]
    map_bytes: int
    """Memory for the map of keys to offsets. When the map is full, compaction ends at the current batch."""
    max_decompressed_bytes: int
    bytes_per_second: float
    """The limit for reads and writes together."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CompactionJob:
        fields: dict[str, Any] = json.loads(text)
        fields["segments"] = [SourceSegment(*segment) for segment in fields["segments"]]
        fields["producers"] = {
            int(producer_id): ActiveProducer(*producer) for producer_id, producer in fields["producers"].items()
        }
        return cls(**fields)


class CleanedGroup(NamedTuple):
    """A cleaned segment, complete as `.cleaned` files, and the base offsets of its source segments."""

    base_offset: int
    replaced: list[int]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    end_offset: int
    """The log is clean up to here: the first dirty offset of the next compaction."""
    groups: list[CleanedGroup]
    """From the front of the log; they must be swapped in in this order."""
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class CompactionFailure(NamedTuple):
    message: str
    permanent: bool
    """Whether a retry would fail again because a batch is corrupt. Other failures (a full disk, for example) may
    pass."""

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def outcome_from_json(text: str) -> CompactionResult | CompactionFailure:
    fields: dict[str, Any] = json.loads(text)
    if "message" in fields:
        return CompactionFailure(**fields)
    fields["groups"] = [CleanedGroup(*group) for group in fields["groups"]]
    return CompactionResult(**fields)


def group_segments(
    segments: list[SourceSegment], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SourceSegment]]:
    """Group adjacent segments that fit into one, so that the log does not split into many small ones as it shrinks."""
    groups: list[list[SourceSegment]] = []
    for segment in segments:
        if groups:
            group = groups[-1]
            if (
                sum(each.size for each in group) + segment.size <= segment_bytes
                and sum(each.index_size for each in group) + segment.index_size <= segment_index_bytes
                and sum(each.time_index_size for each in group) + segment.time_index_size <= segment_index_bytes
                and segment.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
            ):
                group.append(segment)
                continue
        groups.append([segment])
    return groups
