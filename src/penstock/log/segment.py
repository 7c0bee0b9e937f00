"""A segment of a partition's log: a `.log` file of record batches with its indexes.

A segment tracks three things about its bytes:

- `size`: the end of the log in the file. Bytes after it, left by a failed write, do not count: they are cut off, or
  overwritten by the next append.
- which bytes are *trusted*. Data that this process appended or recovered has been checked; data that was on disk at a
  clean start has not. The CRC of an untrusted batch is checked once, at its first read: everything from `trusted_from`
  on is trusted, and `_verified` holds the ranges before it that reads have checked.
- where batches begin: sparsely, in the offset index.

The event loop opens its own handle for writing with the first append. All reads go through an `Access`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from bisect import insort
from collections.abc import Container, Iterable
from typing import TypeAlias

from crc32c import crc32c

from penstock.io.files import Buffer, File, FileSystem
from penstock.log.handles import Access, OwnAccess
from penstock.log.index import CorruptIndex, OffsetIndex, TimeIndex
from penstock.log.transaction_index import TransactionIndex
from penstock.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_LENGTH,
    CorruptBatch,
)

logger = logging.getLogger("penstock.log")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
STRAY_SUFFIX = ".stray"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
MAX_SEGMENT_BYTES = 0x7FFFFFFF

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp
_scan = struct.Struct(">qiibIhiqq").unpack_from
_SCAN_CHUNK = 8 * 1024
# The number of remembered ranges of old data that reads have checked; enough for many readers at different positions.
_MAX_VERIFIED = 64


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


# A batch's size, last offset and largest timestamp.
Written: TypeAlias = tuple[int, int, int]


class Segment:
    __slots__ = (
        "_files",
        "_first_timestamp",
        "_loaded_timestamps",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_torn",
        "_verified",
        "base_offset",
        "created_ms",
        "cuts",
        "directory",
        "file",
        "index",
        "index_interval",
        "is_replaced",
        "is_suspect",
        "path",
        "since_index_entry",
        "size",
        "time_index",
        "transactions",
        "trusted_from",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_size: int,
        time_index_size: int,
        transaction_index_size: int,
        index_interval: int,
        created_ms: int,
    ) -> None:
        """A segment on disk, with the sizes found there. `trusted_from` starts at its end: nothing has been checked."""
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        prefix = os.path.join(directory, f"{base_offset:020d}")
        self.path = prefix + LOG_SUFFIX
        self.size = size
        self.index = OffsetIndex(files, prefix + INDEX_SUFFIX, base_offset, index_size)
        self.time_index = TimeIndex(files, prefix + TIME_INDEX_SUFFIX, base_offset, time_index_size)
        self.transactions = TransactionIndex(files, prefix + TRANSACTION_INDEX_SUFFIX, transaction_index_size)
        self.index_interval = index_interval
        self.created_ms = created_ms
        self.file: File | None = None
        # Compaction has replaced this segment; the new segment's files have the same names.
        self.is_replaced = False
        # A reader has found a damaged batch.
        self.is_suspect = False
        # The number of cuts: after a cut, other batches may be at the same positions.
        self.cuts = 0
        self.since_index_entry = 0
        self.trusted_from = size
        self._verified: list[tuple[int, int]] = []
        self._torn = False
        # The timestamps of existing data are read on first use.
        self._loaded_timestamps = size == 0
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None

    @classmethod
    def create(
        cls, files: FileSystem, directory: str, base_offset: int, *, index_interval: int, now_ms: int
    ) -> Segment:
        segment = cls(
            files,
            directory,
            base_offset,
            size=0,
            index_size=0,
            time_index_size=0,
            transaction_index_size=0,
            index_interval=index_interval,
            created_ms=now_ms,
        )
        file = files.open(segment.path, create=True)
        if file.size():  # left over from a write that failed
            file.truncate(0)
        segment.file = file
        return segment

    @classmethod
    def found(
        cls,
        files: FileSystem,
        directory: str,
        base_offset: int,
        names: Container[str],
        *,
        index_interval: int,
        now_ms: int,
    ) -> Segment:
        """A segment that exists in the directory; `names` are the files there."""

        def size(suffix: str) -> int:
            name = file_name(base_offset, suffix)
            return files.size(os.path.join(directory, name)) if name in names else 0

        return cls(
            files,
            directory,
            base_offset,
            size=size(LOG_SUFFIX),
            index_size=size(INDEX_SUFFIX),
            time_index_size=size(TIME_INDEX_SUFFIX),
            transaction_index_size=size(TRANSACTION_INDEX_SUFFIX),
            index_interval=index_interval,
            created_ms=now_ms,
        )

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size={self.size})"

    @property
    def paths(self) -> list[str]:
        return [self.path, self.index.path, self.time_index.path, self.transactions.path]

    def relocate(self, directory: str) -> None:
        """Update the paths: the directory of the log was renamed."""
        self.close()
        self.directory = directory
        prefix = os.path.join(directory, f"{self.base_offset:020d}")
        self.path = prefix + LOG_SUFFIX
        self.index.path = prefix + INDEX_SUFFIX
        self.time_index.path = prefix + TIME_INDEX_SUFFIX
        self.transactions.path = prefix + TRANSACTION_INDEX_SUFFIX

    # -- writing

    def append(self, data: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. OSError leaves the segment unchanged."""
        file = self.file
        if file is None or self._torn or not self._loaded_timestamps:
            file = self._prepare_to_write()
        position = self.size
        try:
            file.pwrite(data, position)
        except OSError:
            self._cut_torn_write(file)
            raise
        self.size = position + size
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.since_index_entry > self.index_interval:
            self.add_index_entry(position, last_offset, self._max_timestamp, self._max_timestamp_offset)
            self.since_index_entry = 0
        self.since_index_entry += size

    def append_run(self, data: Buffer | list[Buffer], batches: Iterable[Written]) -> None:
        """Write several batches at the end with one write. Same as `append` for each; `append` avoids the loop for
        one."""
        file = self.file
        if file is None or self._torn or not self._loaded_timestamps:
            file = self._prepare_to_write()
        position = self.size
        try:
            if isinstance(data, list):
                file.pwritev(data, position)
            else:
                file.pwrite(data, position)
        except OSError:
            self._cut_torn_write(file)
            raise
        since_index_entry, interval = self.since_index_entry, self.index_interval
        for size, last_offset, max_timestamp in batches:
            if max_timestamp > self._max_timestamp:
                self._max_timestamp = max_timestamp
                self._max_timestamp_offset = last_offset
            if position == 0:
                self._first_timestamp = max_timestamp
            if since_index_entry > interval:
                self.add_index_entry(position, last_offset, self._max_timestamp, self._max_timestamp_offset)
                since_index_entry = 0
            since_index_entry += size
            position += size
        self.since_index_entry = since_index_entry
        self.size = position

    def add_index_entry(self, position: int, last_offset: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Add entries for the batch at `position`; the timestamps are the largest so far."""
        self.index.append(last_offset, position)
        self.time_index.append(max_timestamp, max_timestamp_offset)
        if self.index.tail_is_full:
            self.index.write()
            self.time_index.write()

    def noted(self) -> tuple[int, int, int]:
        """State for recovery, which tracks these numbers itself while it reads batches: bytes since the last index
        entry, the largest timestamp and its offset."""
        return self.since_index_entry, self._max_timestamp, self._max_timestamp_offset

    def note(self, since_index_entry: int, max_timestamp: int, offset: int, first_timestamp: int | None) -> None:
        self.since_index_entry = since_index_entry
        self._max_timestamp = max_timestamp
        self._max_timestamp_offset = offset
        if first_timestamp is not None:
            self._first_timestamp = first_timestamp

    def _prepare_to_write(self) -> File:
        if self.file is None:
            self.file = self._files.open(self.path)
        if self._torn:
            self.file.truncate(self.size)
            self._torn = False
        self.load_timestamps()
        return self.file

    def _cut_torn_write(self, file: File) -> None:
        self._torn = True
        try:
            file.truncate(self.size)
            self._torn = False
        except OSError as error:  # the next append tries again, before it writes
            logger.warning("%s: a failed write cannot be cut off at %d yet: %s", self.path, self.size, error)

    def cut_failed_writes(self) -> None:
        """Remove the bytes of failed appends after the end. After an OSError the next call tries again.

        The next segment must not begin before this succeeds: at the next start the file size determines what counts.
        """
        if self._torn:
            self._prepare_to_write()
        self.transactions.drop_prepared()

    def seal(self) -> bool:
        """Close the segment for appends: complete the indexes on disk (with the final time entry) and release the file.

        False if the disk refused part of that; the next start then rebuilds the index.
        """
        complete = self.write_indexes()
        self.close()
        return complete

    def write_indexes(self) -> bool:
        if self.size and self._loaded_timestamps:
            self.time_index.append(self._max_timestamp, self._max_timestamp_offset)
        written = self.index.write()
        return self.time_index.write() and written

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def truncate_to_position(self, position: int, next_offset: int) -> None:
        """Cut the log at a batch boundary; `next_offset` is the first offset that is gone."""
        with OwnAccess(self._files) as access:
            self.index.truncate_to(next_offset, access)
            self.time_index.truncate_to(next_offset, access)
        self.transactions.truncate_to(next_offset)
        if self.file is None:
            self.file = self._files.open(self.path)
        self.file.truncate(position)
        self.size = position
        self.cuts += 1
        self.trusted_from = min(self.trusted_from, position)
        self._verified = [stretch for stretch in self._verified if stretch[1] <= position]
        self._torn = False
        self._note_nothing()
        self._loaded_timestamps = position == 0

    def forget_indexes(self) -> None:
        """Discard the indexes before they are rebuilt from the front of the log file."""
        self.index.reset()
        self.time_index.reset()
        self._note_nothing()
        self._loaded_timestamps = True

    def keep_indexes(self, entries: int, time_entries: int) -> None:
        """Keep these entries; the rest will be rebuilt from the log file."""
        self.index.truncate_entries(entries)
        self.time_index.truncate_entries(time_entries)
        self._note_nothing()
        with OwnAccess(self._files) as access:
            self._max_timestamp, self._max_timestamp_offset = self.time_index.last(access)
        self._loaded_timestamps = True

    def _note_nothing(self) -> None:
        self.since_index_entry = 0
        self._max_timestamp, self._max_timestamp_offset = -1, self.base_offset
        self._first_timestamp = None

    # -- timestamps

    def load_timestamps(self) -> None:
        """Load the largest timestamp and its offset. For the event loop."""
        if self._loaded_timestamps:
            return
        with OwnAccess(self._files) as access:
            timestamp, offset = self._read_on(*self.time_index.last(access), access)
        self._max_timestamp, self._max_timestamp_offset = timestamp, offset
        self._loaded_timestamps = True

    def newest(self, access: Access) -> tuple[int, int]:
        """Same as `load_timestamps`, for any thread and without storing the result. While the event loop appends, the
        offset may belong to the previous timestamp."""
        if self._loaded_timestamps:
            return self._max_timestamp, self._max_timestamp_offset
        return self._read_on(*self.time_index.peek(access), access)

    def _read_on(self, timestamp: int, offset: int, access: Access) -> tuple[int, int]:
        """Continue from the last time index entry to the end, as far as batches can be read."""
        with contextlib.suppress(CorruptBatch):
            position = self.index.floor(offset, access) if timestamp >= 0 else 0
            while position < self.size:
                data = access.read(self.path, HEADER_SIZE, position)
                base_offset, length, _, _, _, _, delta, _, max_timestamp = self._checked_scan(data, 0, position)
                if max_timestamp > timestamp:
                    timestamp, offset = max_timestamp, base_offset + delta
                position += length + LENGTH_OVERHEAD
        return timestamp, offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp; -1 if no record has one."""
        self.load_timestamps()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        self.load_timestamps()
        return self._max_timestamp_offset

    def largest_timestamp(self) -> int:
        """The timestamp for retention by time: the newest record's, or the file's age if records have no timestamps."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path)

    @property
    def first_timestamp(self) -> int | None:
        """The first batch's timestamp, which rolling by time uses; None if the segment is empty or it cannot be
        read."""
        if self._first_timestamp is None and self.size:
            with OwnAccess(self._files) as access, contextlib.suppress(CorruptBatch):
                self._first_timestamp = self._checked_scan(access.read(self.path, HEADER_SIZE, 0), 0, 0)[8]
        return self._first_timestamp

    # -- reading

    def find(self, offset: int, access: Access, start: int = 0) -> tuple[int, int]:
        """(position, next offset) of the first batch that ends at or after `offset`; (size, -1) if there is none."""
        size = self.size
        position = max(self.index.floor(offset, access), start)
        due = self.base_offset
        while position < size:
            chunk = access.read(self.path, min(_SCAN_CHUNK, size - position), position)
            end = len(chunk) - HEADER_SIZE
            at = 0
            if end < 0:
                raise self._corrupt(position, "the file ends in a batch header")
            while at <= end:
                base_offset, length, _, _, _, _, delta, _, _ = self._checked_scan(chunk, at, position + at)
                if base_offset < due:
                    raise self._corrupt(position + at, f"offset {base_offset} where at least {due} was due")
                due = base_offset + delta + 1
                if due > offset:
                    return position + at, due
                at += length + LENGTH_OVERHEAD
            position += at
        return size, -1

    def next_offset(self, access: Access) -> int:
        """The offset after the last batch, found by a scan from the last index entry; CorruptBatch if the batches do
        not end where the file does."""
        position = self.index.last_position(access)
        next_offset = self.base_offset
        if not 0 <= position < max(self.size, 1):
            raise CorruptIndex(f"{self.index.path} ends with position {position} in a log of {self.size} bytes")
        while position < self.size:
            data = access.read(self.path, HEADER_SIZE, position)
            offset, length, _, _, _, _, delta, _, _ = self._checked_scan(data, 0, position)
            next_offset = offset + delta + 1
            position += length + LENGTH_OVERHEAD
        if position > self.size:
            raise self._corrupt(position, "the file ends in a batch")
        return next_offset

    def offset_at(self, end: int, access: Access) -> int:
        """The offset after the last batch before position `end`, a batch boundary; found by a scan from the index entry
        before it."""
        position = self.index.floor_of_position(end - 1, access)
        next_offset = self.base_offset
        while position < end:
            data = access.read(self.path, HEADER_SIZE, position)
            offset, length, _, _, _, _, delta, _, _ = self._checked_scan(data, 0, position)
            next_offset = offset + delta + 1
            position += length + LENGTH_OVERHEAD
        if position > end:
            raise self._corrupt(position, f"no batch ends at position {end}")
        return next_offset

    def whole_batches(self, data: Buffer, position: int, access: Access) -> tuple[int, int]:
        """How many bytes of `data`, read from `position`, are whole batches, and the offset after them (-1: unknown).

        The index knows a batch near the end, so only the last few headers are read.
        """
        end = len(data)
        at = max(self.index.floor_of_position(position + end - 1, access) - position, 0)
        next_offset = -1
        while at + HEADER_SIZE <= end:
            base_offset, length, _, _, _, _, delta, _, _ = self._checked_scan(data, at, position + at)
            following = at + length + LENGTH_OVERHEAD
            if following > end:
                return at, base_offset
            at, next_offset = following, base_offset + delta + 1
        return at, next_offset

    def whole_batches_in(self, position: int, size: int, access: Access) -> tuple[int, int]:
        """As `whole_batches`, for `size` bytes at `position` that were not read."""
        end = position + size
        at = max(self.index.floor_of_position(end - 1, access), position)
        next_offset = -1
        while at + HEADER_SIZE <= end:
            chunk = access.read(self.path, min(_SCAN_CHUNK, end - at), at)
            inside = 0
            while inside + HEADER_SIZE <= len(chunk):
                base_offset, length, _, _, _, _, delta, _, _ = self._checked_scan(chunk, inside, at + inside)
                following = inside + length + LENGTH_OVERHEAD
                if at + following > end:
                    return at + inside - position, base_offset
                inside, next_offset = following, base_offset + delta + 1
            at += inside
        return at - position, next_offset

    # -- trust

    def is_trusted(self, start: int, end: int) -> bool:
        """Whether the batches there were checked, when they were written or when they were read."""
        return start >= self.trusted_from or self._is_verified(start, min(end, self.trusted_from))

    def trust_everything_from(self, position: int) -> None:
        self.trusted_from = min(self.trusted_from, position)

    def verify(
        self, data: Buffer, position: int, offset: int = 0, max_offset: int = 1 << 63, *, doubted: bool = False
    ) -> int:
        """Check the batches in `data`, read from `position`, unless they were checked before (with `doubted`, check
        them anyway). Checks the CRCs and the offsets, which the CRCs do not cover: they ascend, `offset` is not below
        the first batch, and all are below `max_offset`. Returns the number of good bytes; CorruptBatch if the first
        batch is bad."""
        end = position + len(data)
        if not doubted:
            end = min(end, self.trusted_from)
            if position >= end or self._is_verified(position, end):
                return len(data)
        view = memoryview(data)
        at, due, reached = 0, self.base_offset, offset
        before = 0  # start of the previous batch
        good = len(data)
        try:
            while position + at < end:
                base_offset, length, _, _, crc, _, delta, _, _ = self._checked_scan(data, at, position + at)
                following = at + length + LENGTH_OVERHEAD
                if following > len(data):
                    raise self._corrupt(position + at, f"a batch of {length + LENGTH_OVERHEAD} bytes is not whole")
                if not (due <= base_offset and reached <= base_offset + delta < max_offset):
                    at = before  # the wrong offset may be that of the previous batch
                    raise self._corrupt(position + at, f"offset {base_offset} is not in {reached} to {max_offset}")
                if crc32c(view[at + CRC_START : following]) != crc:
                    raise self._corrupt(position + at, "the CRC does not match")
                due = reached = base_offset + delta + 1
                before, at = at, following
        except CorruptBatch:
            if not at:
                raise
            good = at
        if position < self.trusted_from:
            self._add_verified(position, position + at)
        return good

    def _is_verified(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last in self._verified)

    def _add_verified(self, start: int, end: int) -> None:
        merged = []
        for first, last in self._verified:
            if last < start or first > end:
                merged.append((first, last))
            else:
                start, end = min(start, first), max(end, last)
        if end >= self.trusted_from:
            self.trusted_from = start
        else:
            insort(merged, (start, end))
        self._verified = merged[-_MAX_VERIFIED:]

    def _checked_scan(self, data: Buffer, at: int, position: int) -> tuple[int, int, int, int, int, int, int, int, int]:
        """Header fields at `at`, or CorruptBatch if no batch can begin there."""
        try:
            fields = _scan(data, at)
        except struct.error:
            raise self._corrupt(position, "the file ends in a batch header") from None
        if fields[1] < MIN_LENGTH or fields[3] != MAGIC or fields[6] < 0 or fields[0] < self.base_offset:
            raise self._corrupt(position, f"no batch begins there (length {fields[1]}, magic {fields[3]})")
        return fields

    def _corrupt(self, position: int, why: str) -> CorruptBatch:
        self.is_suspect = True
        logger.error("%s is corrupt at position %d: %s", self.path, position, why)
        return CorruptBatch(f"{self.path} is corrupt at position {position}: {why}")
