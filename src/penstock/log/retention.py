"""Decides which of a log's oldest segments to delete. The log deletes them.

Whole segments are deleted, from the oldest on. Segments entirely below the log start offset always go. With cleanup
policy `delete`, so do segments whose newest record is older than `retention.ms`, and as many as bring the log down to,
but not below, `retention.bytes`. Nothing at or above the high watermark is deleted. The active segment can be deleted
if it has records; the log rolls it first, so that its end offset survives as the base offset of the next segment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.log")


class RetainedSegment(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def largest_timestamp(self) -> int: ...


def deletable(
    segments: Sequence[RetainedSegment],
    settings: TopicSettings,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> tuple[int, str]:
    """How many of `segments`, from the first, can be deleted, and the reason."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    candidates = 0
    while (
        candidates < len(segments)
        and ends[candidates] <= high_watermark
        and (candidates < len(segments) - 1 or segments[candidates].size > 0)
    ):
        candidates += 1
    count, reason = 0, ""
    while count < min(candidates, len(segments) - 1) and ends[count] <= log_start_offset:
        count += 1
        reason = f"log start offset {log_start_offset}"
    if "delete" not in settings.cleanup_policy:
        return count, reason
    if settings.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - settings.retention_bytes
        while count < candidates and segments[count].size <= excess:
            excess -= segments[count].size
            count += 1
            reason = f"retention.bytes={settings.retention_bytes}"
    if settings.retention_ms >= 0:
        while count < candidates and now_ms - segments[count].largest_timestamp() > settings.retention_ms:
            count += 1
            reason = f"retention.ms={settings.retention_ms}"
    return count, reason
