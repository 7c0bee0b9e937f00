"""The segments of a log in order: reads them, and finds offsets, timestamps and aborted transactions.

A reader's next read begins where its last read ended. The ends of recent reads are cached (offset to segment and
position), so readers that follow the log, at its tail or through its history, need no new search.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from penstock.io.file_ranges import OpenFileRange
from penstock.io.files import Buffer, FileSystem
from penstock.log.handles import Access, LoopAccess, NotCached, OwnAccess
from penstock.log.index import CorruptIndex
from penstock.log.recovery import has_fault, rebuild_indexes
from penstock.log.segment import Segment
from penstock.log.transaction_index import AbortedTransaction, CorruptTransactionIndex
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.file_range import RANGE_BYTES_MIN, FileRange
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, CorruptBatch, read_header
from penstock.records.timestamps import Stamp, iterate_stamps

logger = logging.getLogger("penstock.log")

# The number of read ends whose positions are cached.
_MAX_BOUNDARIES = 64
# Reads this close to the end of the log hit the page cache: the data was written a moment ago.
_TAIL_BYTES = 4 * 1024 * 1024
# A reader that takes this much at once probably goes on. If it had to wait for the disk, the kernel reads ahead what
# the next read will take. From then on the kernel notices by itself that the file is read in sequence.
_READ_AHEAD_FROM = 64 * 1024
# Attempts to find the newest record while the event loop appends.
_ATTEMPTS = 3


class Slice(NamedTuple):
    data: Buffer
    """Whole batches; empty at the end of the log."""
    first_offset: int
    """Base offset of the first batch, which may be below the requested offset."""
    next_offset: int = -1
    """The offset at which the next read continues; -1 if it is unknown without parsing the batches."""
    range: FileRange | None = None
    """The batches as a range of a file, if the reader takes that; `data` is then empty."""

    @property
    def content(self) -> Buffer | FileRange:
        return self.data if self.range is None else self.range


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class LogEnd(NamedTuple):
    """The end of the log at one moment."""

    active: Segment
    position: int
    offset: int


@owned_by_loop(
    anywhere=(
        "copy",
        "number_of",
        "_end_of",
        "read",
        "_read_bytes",
        "_range",
        "_locate",
        "_locate_again",
        "_limit",
        "headers",
        "offset_for_timestamp",
        "offset_of_max_timestamp",
        "_stamps",
        "aborted_transactions",
    )
)
class Segments:
    """The list of segments, and the ends of recent reads, which only the event loop's thread caches."""

    __slots__ = ("_bases", "_boundaries", "_files", "_inspected", "_list")

    def __init__(self, files: FileSystem, segments: list[Segment]) -> None:
        self._files = files
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        self._boundaries: dict[int, tuple[Segment, int]] = {}
        self._inspected: set[int] = set()

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __getitem__(self, number: int) -> Segment:
        return self._list[number]

    def copy(self) -> list[Segment]:
        return self._list.copy()

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._list)

    # -- changing the list; the lists are replaced, so that a reader on another thread keeps a consistent pair

    def append(self, segment: Segment) -> None:
        # The former end of the log must no longer be read from the old segment.
        self._boundaries = {
            offset: (inside, position)
            for offset, (inside, position) in self._boundaries.items()
            if position < inside.size
        }
        self._replace([*self._list, segment])

    def remove(self, removed: list[Segment]) -> None:
        self._boundaries = {}
        self._replace([segment for segment in self._list if segment not in removed])

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        self._boundaries = {}
        self._inspected.difference_update(segment.base_offset for segment in new)
        self._replace(sorted([*(segment for segment in self._list if segment not in old), *new], key=_base_offset))

    def _replace(self, segments: list[Segment]) -> None:
        self._bases = [segment.base_offset for segment in segments]
        self._list = segments

    def number_of(self, offset: int) -> int:
        """The index of the segment that contains `offset`; the first one if `offset` is older than that."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _end_of(self, segment: Segment) -> int:
        """The offset that the next segment begins with: all in this one are below."""
        bases = self._bases
        following = bisect_right(bases, segment.base_offset)
        return bases[following] if following < len(bases) else 1 << 63

    # -- reading

    def read(  # noqa: C901
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        end: LogEnd | None,
        at_least_one: bool,
        access: Access,
        doubted: bool = False,
        takes_ranges: bool = False,
    ) -> Slice:
        """Whole batches from the one that holds `offset` (or the next one), all below `max_offset`, which is above
        `offset` and not above the end of the log. `end` saves a search if `max_offset` is the end of the log. With
        `doubted` the batches are checked even if they were checked before. With `takes_ranges` a long read of checked
        batches in the page cache is a range of the file."""
        boundary = self._boundaries.get(offset)
        if boundary is None:
            segment, position = self._locate(offset, access)
        else:
            segment, position = boundary
        if end is not None and segment is end.active and max_offset == end.offset:
            limit, limit_offset = end.position, max_offset
        else:
            limit, limit_offset = self._limit(segment, position, max_offset, access)
        size = limit - position
        if size > max_bytes:
            size = max(max_bytes, HEADER_SIZE)
        elif size <= 0:
            return Slice(b"", offset)
        if takes_ranges and size >= RANGE_BYTES_MIN and not doubted:
            found = self._range(segment, position, size, limit, limit_offset, access)
            if found is not None:
                return found
        data = self._read_bytes(segment, size, position, access)
        if position + size < limit:
            whole, limit_offset = segment.whole_batches(data, position, access)
            if whole == 0:
                if not at_least_one:
                    return Slice(b"", offset)
                header = read_header(data)
                whole, limit_offset = header.size, header.next_offset
                if whole > limit - position:
                    raise CorruptBatch(f"{segment.path} is corrupt at position {position}: it ends in a batch")
                data = self._read_bytes(segment, whole, position, access)
            size = whole
            if size < len(data):
                data = memoryview(data)[:size]
        if position < segment.trusted_from or doubted:
            good = segment.verify(data, position, offset, min(max_offset, self._end_of(segment)), doubted=doubted)
            if good < size:
                data, size, limit_offset = memoryview(data)[:good], good, -1
        if type(access) is OwnAccess:
            if size >= _READ_AHEAD_FROM:
                access.read_ahead(segment.path, size, position + size)
        elif limit_offset >= 0:
            self._remember(limit_offset, segment, position + size)
        return Slice(data, int.from_bytes(data[:8], "big"), limit_offset)

    def _range(
        self, segment: Segment, position: int, size: int, limit: int, limit_offset: int, access: Access
    ) -> Slice | None:
        """The whole batches in `size` bytes as a range; None if they have to be read: to check them, because they are
        short, or because they are not in the page cache."""
        if type(access) is not LoopAccess or not segment.is_trusted(position, position + size):
            return None
        if position + size < limit:
            size, limit_offset = segment.whole_batches_in(position, size, access)
            if size < RANGE_BYTES_MIN:
                return None
        file = segment.file
        if file is not None:
            descriptor = file.cached_descriptor(size, position)
        else:
            descriptor = access.descriptor(segment.path, size, position)
        if descriptor is None:
            return None
        if limit_offset >= 0:
            self._remember(limit_offset, segment, position + size)
        first_offset = int.from_bytes(access.read(segment.path, 8, position), "big")
        cuts = segment.cuts
        found = OpenFileRange(descriptor, position, size, lambda: segment.cuts == cuts)
        return Slice(b"", first_offset, limit_offset, found)

    def _read_bytes(self, segment: Segment, size: int, position: int, access: Access) -> Buffer:
        file = segment.file
        data: Buffer
        if file is not None and type(access) is LoopAccess and segment.size - position <= _TAIL_BYTES:
            data = file.pread(size, position)
        else:
            data = access.read(segment.path, size, position)
        if len(data) != size:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{segment.path} has {len(data)} bytes at position {position} where {size} were written",
            )
        return data

    def _locate(self, offset: int, access: Access) -> tuple[Segment, int]:
        """The segment and position of the first batch that ends at or after `offset`."""
        segments = self._list
        for segment in segments[self.number_of(offset) :]:
            try:
                position, _ = segment.find(offset, access)
            except (CorruptIndex, CorruptBatch) as error:
                position = self._locate_again(segment, offset, access, error)
            if position < segment.size:
                return segment, position
        return segments[-1], segments[-1].size

    def _locate_again(self, segment: Segment, offset: int, access: Access, error: Exception) -> int:
        """Handle an index that led to a wrong position. Off the event loop, once per closed segment, determine what is
        at fault: the index, which is then rebuilt, or the log, which cannot be rebuilt (its index is still good for the
        rest).
        """
        if segment is self._list[-1] or segment.base_offset in self._inspected:
            raise error
        if isinstance(access, LoopAccess):
            raise NotCached(segment.index.path)
        if segment.is_replaced:  # its files are no longer its own
            raise error
        self._inspected.add(segment.base_offset)
        if has_fault(self._files, segment):
            raise error
        logger.warning("%s: the index of %s is made again", error, segment.path)
        rebuild_indexes(self._files, segment, 0)
        return segment.find(offset, access)[0]

    def _limit(self, segment: Segment, position: int, max_offset: int, access: Access) -> tuple[int, int]:
        """The position up to which a read in `segment` may go, and the offset there."""
        bases = self._bases
        following = bisect_right(bases, segment.base_offset)
        if following < len(bases) and max_offset >= bases[following]:
            return segment.size, bases[following]
        boundary = self._boundaries.get(max_offset)
        if boundary is not None and boundary[0] is segment:
            return boundary[1], max_offset
        limit, _ = segment.find(max_offset, access, position)
        if type(access) is LoopAccess:
            self._remember(max_offset, segment, limit)
        return limit, max_offset

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        boundaries = self._boundaries
        if position >= segment.size and segment is not self._list[-1]:
            return  # the next segment is found by its base offset
        if offset not in boundaries and len(boundaries) >= _MAX_BOUNDARIES:
            del boundaries[next(iter(boundaries))]
        boundaries[offset] = (segment, position)

    def headers(self, offset: int, access: Access) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """The headers of all batches from the one that holds `offset`."""
        first, position = self._locate(offset, access)
        for segment in self._list[self.number_of(first.base_offset) :]:
            at = position if segment is first else 0
            while at < segment.size:
                header = read_header(access.read(segment.path, HEADER_SIZE, at))
                yield segment, at, header
                at += header.length + LENGTH_OVERHEAD

    # -- timestamps

    def offset_for_timestamp(self, timestamp: int, log_start_offset: int, max_size: int) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp`."""
        with OwnAccess(self._files) as access:
            for segment in self._list:
                if segment.newest(access)[0] < timestamp:
                    continue
                start = max(segment.time_index.floor(timestamp, access), log_start_offset)
                position, _ = segment.find(start, access)
                while position < segment.size:
                    header = read_header(access.read(segment.path, HEADER_SIZE, position))
                    if header.max_timestamp >= timestamp:
                        for offset, found in self._stamps(segment, position, header, access, max_size):
                            if found >= timestamp and offset >= log_start_offset:
                                return TimestampedOffset(offset, found, header.leader_epoch)
                    position += header.length + LENGTH_OVERHEAD
        return None

    def offset_of_max_timestamp(self, max_size: int) -> TimestampedOffset | None:
        """The first record that has the largest timestamp."""
        with OwnAccess(self._files) as access:
            for _ in range(_ATTEMPTS):
                by_segment = [(segment.newest(access), segment) for segment in self._list]
                (timestamp, offset), newest = max(by_segment, key=lambda each: each[0][0])
                if timestamp < 0:
                    return None
                position, _ = newest.find(offset, access)
                header = read_header(access.read(newest.path, HEADER_SIZE, position))
                for offset, found in self._stamps(newest, position, header, access, max_size):
                    if found == timestamp:
                        return TimestampedOffset(offset, found, header.leader_epoch)
                # The event loop appended meanwhile, and the offset belonged to another timestamp; or the header is
                # wrong.
        return None

    def _stamps(
        self, segment: Segment, position: int, header: BatchHeader, access: Access, max_size: int
    ) -> Iterator[Stamp]:
        data = access.read(segment.path, header.size, position)
        segment.verify(data, position)
        return iterate_stamps(data, header, max_size=max_size)

    # -- transactions

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, end)."""
        found: list[AbortedTransaction] = []
        for segment in self._list[self.number_of(start) :]:
            try:
                if segment.transactions.collect(start, end, found):
                    break
            except CorruptTransactionIndex as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return found


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
