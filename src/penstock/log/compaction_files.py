"""Reads the source segments of a compaction and writes one `.cleaned` segment with its indexes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence

from penstock.io.files import Buffer, File, FileSystem
from penstock.log.compaction_job import SourceSegment
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_SEGMENT_BYTES,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from penstock.log.swap import CLEANED_SUFFIX
from penstock.log.transaction_index import AbortedTransaction, TransactionIndex
from penstock.records.batch import BatchHeader, CorruptBatch, check_crc, iterate_headers, read_header

_READ_CHUNK = 4 * 1024 * 1024
_WRITE_CHUNK = 1024 * 1024
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")

Throttle = Callable[[int], None]
"""Called with the number of bytes read or written; it may wait."""


class SegmentTooLarge(ValueError):
    """Batches grew (because of delete horizons, or recompression) and no longer fit into a segment."""


def read_batches(
    files: FileSystem, directory: str, segment: SourceSegment, throttle: Throttle
) -> Iterator[tuple[memoryview, int, BatchHeader]]:
    """Yield every batch of a segment: a buffer, the batch's position in it and its header, after checks of the CRC and
    the offsets."""
    due, size = segment.base_offset, segment.size
    path = os.path.join(directory, file_name(due, LOG_SUFFIX))
    file = files.open(path, read_only=True)
    try:
        start, chunk = 0, _READ_CHUNK
        while start < size:
            view = memoryview(file.pread(min(chunk, size - start), start))
            end = 0
            for position, header in iterate_headers(view):
                check_crc(view, position, header)
                if not due <= header.base_offset < header.next_offset <= segment.end_offset:
                    raise CorruptBatch(f"{path} is corrupt at position {start + position}: offset {header.base_offset}")
                due = header.next_offset
                yield view, position, header
                end = position + header.size
            if not end:  # the batch is larger than the chunk
                chunk = read_header(view).size
                if chunk <= len(view) or chunk > size - start:
                    raise CorruptBatch(f"{path} ends within the batch at position {start}")
                continue
            throttle(end)
            start, chunk = start + end, _READ_CHUNK
    finally:
        file.close()


def aborted_transactions(files: FileSystem, directory: str) -> list[AbortedTransaction]:
    """The aborted transactions of all segments, including the active one: a marker may be far behind its data."""
    found: list[AbortedTransaction] = []
    for name in files.list(directory):
        if name.endswith(TRANSACTION_INDEX_SUFFIX):
            found.extend(TransactionIndex(files, os.path.join(directory, name)).entries())
    return found


class CleanedSegment:
    """A segment that is being written. Its files have no effect before `finish` has returned."""

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, index_interval: int, throttle: Throttle
    ) -> None:
        self._files = files
        self._prefix = os.path.join(directory, file_name(base_offset, ""))
        self._base_offset = base_offset
        self._index_interval = index_interval
        self._throttle = throttle
        self._pending: list[Buffer] = []
        self._pending_size = 0
        self._index = bytearray()
        self._time_index = bytearray()
        self._since_index_entry = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._indexed_timestamp = -1
        self.size = 0
        self._file = self._create(LOG_SUFFIX)

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        size = len(batch)
        if self.size + size > MAX_SEGMENT_BYTES:
            raise SegmentTooLarge(f"the segment cleaned into {self._prefix} would exceed {MAX_SEGMENT_BYTES} bytes")
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._since_index_entry > self._index_interval:
            self._index += OffsetIndex.entry.pack(header.last_offset - self._base_offset, self.size)
            self._add_time_entry()
            self._since_index_entry = 0
        self._since_index_entry += size
        self.size += size
        self._pending.append(batch)
        self._pending_size += size
        if self._pending_size >= _WRITE_CHUNK:
            self._write_pending()

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Complete and sync the files. The caller syncs the directory."""
        self._write_pending()
        self._file.sync()
        self._file.close()
        if self.size:
            self._add_time_entry()
        self._write(INDEX_SUFFIX, self._index)
        self._write(TIME_INDEX_SUFFIX, self._time_index)
        if aborted:
            entries = b"".join(_TRANSACTION_ENTRY.pack(0, *transaction) for transaction in aborted)
            self._write(TRANSACTION_INDEX_SUFFIX, entries)

    def discard(self) -> None:
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            self._files.remove(self._prefix + suffix + CLEANED_SUFFIX)

    def _add_time_entry(self) -> None:
        if self._max_timestamp > self._indexed_timestamp:
            self._time_index += TimeIndex.entry.pack(
                self._max_timestamp, self._max_timestamp_offset - self._base_offset
            )
            self._indexed_timestamp = self._max_timestamp

    def _write_pending(self) -> None:
        if self._pending:
            self._file.pwrite(b"".join(self._pending), self.size - self._pending_size)
            self._throttle(self._pending_size)
            self._pending, self._pending_size = [], 0

    def _write(self, suffix: str, data: Buffer) -> None:
        file = self._create(suffix)
        try:
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()

    def _create(self, suffix: str) -> File:
        path = self._prefix + suffix + CLEANED_SUFFIX
        if self._files.exists(path):
            raise FileExistsError(f"{path}: another process is cleaning this log")
        return self._files.open(path, create=True)
