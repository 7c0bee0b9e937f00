"""What a compaction is told, and what it reports: JSON, in files that the broker and its child share."""

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
    """The base offset of the segment behind it."""


class ActiveProducer(NamedTuple):
    """What the partition remembers of a producer, and must still find in the log after compaction."""

    last_data_offset: int
    """Of the batch with its last sequence; -1 if only a marker is known."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    directory: str
    segments: list[SourceSegment]
    """From the front of the log up to the first that may not be cleaned."""
    first_dirty_offset: int
    """Below it, the latest record of every key is the only one."""
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: dict[int, ActiveProducer]
    map_bytes: int
    """Memory for the map of keys to offsets; when it is full, compaction ends at the batch it has reached."""
    max_decompressed_bytes: int
    bytes_per_second: float
    """Of reading and writing together."""

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
    """A cleaned segment, ready as `.cleaned` files, and the base offsets of those it was made from."""

    base_offset: int
    replaced: list[int]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    end_offset: int
    """Cleaned up to here: the next compaction's first dirty offset."""
    groups: list[CleanedGroup]
    """From the front of the log; the swaps must keep this order."""
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class CompactionFailure(NamedTuple):
    message: str
    permanent: bool
    """It would fail again: a batch is corrupt. Otherwise it is the disk that had no room, say."""

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
    """Neighbours that fit into one segment together, so that the log does not crumble as its records become fewer."""
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
