"""Compaction is a stateless program that writes cleaned copies of a log's segments.

The broker runs it as a child process (`main`, through `penstock.io.processes`) with two arguments: the path of a
`CompactionJob` and the path for its `CompactionResult`. Closed segments never change, so the process needs no locks and
no further communication. It only creates files that end in `.cleaned`, and syncs them. It renames and removes nothing
that the broker uses, so it can be killed at any point.

Compaction makes two passes. The first pass reads the dirty part of the log and records the latest offset of each key,
until its memory is full. The second pass reads the whole log up to that point. For every group of adjacent segments it
writes one segment with the records that `compaction_filter` retains. It skips groups in which nothing changed.
"""

from __future__ import annotations

import time

from penstock.io.files import FileSystem, read_file
from penstock.log.compaction_files import CleanedSegment, Throttle, aborted_transactions, read_batches
from penstock.log.compaction_filter import BatchFilter, OffsetMap, map_key
from penstock.log.compaction_job import (
    CleanedGroup,
    CompactionFailure,
    CompactionJob,
    CompactionResult,
    SourceSegment,
    group_segments,
)
from penstock.log.compaction_transactions import CleanedTransactions
from penstock.model.errors import KafkaError
from penstock.records.record import iterate_spans, records_body

# Measured memory per key in the map: dictionary slot, key object and offset object.
_BYTES_PER_KEY = 200


def compact(files: FileSystem, job: CompactionJob, throttle: Throttle = lambda size: None) -> CompactionResult:
    """Write the cleaned segments of `job`. KafkaError if a batch cannot be decoded: then nothing may be swapped in."""
    aborted = aborted_transactions(files, job.directory)
    # Skip transactions whose marker is before the part that is read: they would never appear to end.
    dirty = [transaction for transaction in aborted if transaction.last_offset >= job.first_dirty_offset]
    offset_map = build_offset_map(files, job, CleanedTransactions(dirty), throttle)
    end_offset = offset_map.latest_offset + 1
    sources = [segment for segment in job.segments if segment.base_offset < end_offset]
    groups = group_segments(sources, segment_bytes=job.segment_bytes, segment_index_bytes=job.segment_index_bytes)
    transactions = CleanedTransactions(aborted)
    batch_filter = BatchFilter(job, offset_map, transactions)
    cleaned: list[CleanedGroup] = []
    bytes_written = 0
    for group in groups:
        segment = _clean_group(files, job, group, batch_filter, transactions, throttle)
        if segment is not None:
            cleaned.append(segment)
            bytes_written += segment.size
    files.sync_directory(job.directory)
    return CompactionResult(
        end_offset=end_offset,
        groups=cleaned,
        bytes_read=sum(segment.size for segment in sources),
        bytes_written=bytes_written,
        records_read=batch_filter.records_read,
        records_kept=batch_filter.records_kept,
    )


def build_offset_map(
    files: FileSystem, job: CompactionJob, transactions: CleanedTransactions, throttle: Throttle
) -> OffsetMap:
    offset_map = OffsetMap(job.first_dirty_offset)
    offsets = offset_map.offsets
    max_keys = job.map_bytes // _BYTES_PER_KEY
    first_dirty_offset = job.first_dirty_offset
    for segment in job.segments:
        if segment.end_offset <= first_dirty_offset:
            continue
        for view, position, header in read_batches(files, job.directory, segment, throttle):
            if header.last_offset < first_dirty_offset:
                continue
            if header.is_control:
                transactions.may_discard(view, position, header)
            elif not transactions.is_aborted(header):
                base_offset = header.base_offset
                body = records_body(view, position, header, max_size=job.max_decompressed_bytes)
                for _, _, _, _, offset_delta, key, _, _, _ in iterate_spans(body, header):
                    if key is not None and base_offset + offset_delta >= first_dirty_offset:
                        offsets[map_key(key)] = base_offset + offset_delta
            offset_map.latest_offset = header.last_offset
            # Stop only between batches, so that every compaction makes progress.
            if len(offsets) >= max_keys:
                return offset_map
        offset_map.latest_offset = segment.end_offset - 1
    return offset_map


def _clean_group(
    files: FileSystem,
    job: CompactionJob,
    group: list[SourceSegment],
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
    throttle: Throttle,
) -> CleanedGroup | None:
    base_offset = group[0].base_offset
    changed_before = batch_filter.changed
    batch_filter.group_end_offset = group[-1].end_offset
    transactions.retained = []
    cleaned = CleanedSegment(files, job.directory, base_offset, job.index_interval_bytes, throttle)
    try:
        for segment in group:
            for view, position, header in read_batches(files, job.directory, segment, throttle):
                kept = batch_filter.retain(view, position, header)
                if kept is not None:
                    batch = view[position : position + header.size] if kept.batch is None else kept.batch
                    cleaned.append(batch, kept.header)
        if len(group) == 1 and batch_filter.changed == changed_before:
            cleaned.discard()
            return None
        cleaned.finish(transactions.retained)
    except BaseException:
        cleaned.discard()
        raise
    return CleanedGroup(base_offset, [segment.base_offset for segment in group], cleaned.size)


class RateLimit:
    """A throttle: sleeps so that the reported bytes stay below a rate on average."""

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._started = time.monotonic()
        self._total = 0

    def __call__(self, size: int) -> None:
        self._total += size
        ahead = self._total / self._bytes_per_second - (time.monotonic() - self._started)
        if ahead > 0:
            time.sleep(ahead)


def main(files: FileSystem, arguments: list[str]) -> int:
    job_path, result_path = arguments
    job = CompactionJob.from_json(read_file(files, job_path).decode())
    try:
        outcome = compact(files, job, RateLimit(job.bytes_per_second)).to_json()
    except (KafkaError, ValueError) as error:
        outcome = CompactionFailure(str(error), permanent=True).to_json()
    except OSError as error:
        outcome = CompactionFailure(str(error), permanent=False).to_json()
    result = files.open(result_path, create=True)
    try:
        result.pwrite(outcome.encode(), 0)
    finally:
        result.close()
    return 0
