"""Decides when to close the active segment and start a new one.

A segment is full by bytes (`segment.bytes`), by index entries (`segment.index.bytes`) or by offsets (stored relative to
its base, in 31 bits). It is old (`segment.ms`) when a batch arrives that is that much younger than its first batch or,
if the first batch has no timestamp, by the clock. A jitter, fixed per segment, keeps partitions from rolling at the
same time.

The limits are computed once per segment, so that an append compares three numbers.
"""

from __future__ import annotations

import zlib

from penstock.log.segment import MAX_RELATIVE_OFFSET, MAX_SEGMENT_BYTES, Segment
from penstock.settings.topic import TopicSettings

_NEVER = 1 << 62


class RollRule:
    __slots__ = (
        "_max_entries",
        "_max_time_entries",
        "_segment",
        "after_ms",
        "by_timestamp",
        "max_bytes",
        "max_offset",
        "unquestioned_bytes",
    )

    def __init__(self, segment: Segment, settings: TopicSettings, seed: str) -> None:
        self._segment = segment
        self._max_entries = settings.segment_index_bytes // segment.index.entry.size
        # One entry is reserved for the one written when the segment is closed.
        self._max_time_entries = settings.segment_index_bytes // segment.time_index.entry.size - 1
        self.max_bytes = min(settings.segment_bytes, MAX_SEGMENT_BYTES)
        self.max_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        self.by_timestamp = False
        self.after_ms = _NEVER
        # Up to this size `demands` need not be called, unless offset or time is at its limit. If the index may fill up
        # before the log does, every append must call it.
        index_may_fill = self._max_time_entries * settings.index_interval_bytes < self.max_bytes
        self.unquestioned_bytes = -1 if index_may_fill else self.max_bytes
        if segment.size:
            first = segment.first_timestamp
            self.by_timestamp = first is not None and first >= 0
            start = first if first is not None and first >= 0 else segment.created_ms
            self.after_ms = start + settings.segment_ms - self._jitter_ms(settings, seed)

    def _jitter_ms(self, settings: TopicSettings, seed: str) -> int:
        if settings.segment_jitter_ms <= 0:
            return 0
        limit = min(settings.segment_jitter_ms, settings.segment_ms)
        return zlib.crc32(f"{seed} {self._segment.base_offset}".encode()) % limit

    def demands(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether the segment must be closed before a batch of `size` bytes, up to `last_offset`, can be appended."""
        segment = self._segment
        if last_offset > self.max_offset:
            return True
        return segment.size > 0 and (
            segment.size + size > self.max_bytes
            or (max_timestamp if self.by_timestamp else now_ms) > self.after_ms
            or len(segment.index) >= self._max_entries
            or len(segment.time_index) >= self._max_time_entries
        )
