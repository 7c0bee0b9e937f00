"""Bytes on the disk that are no longer what was written there, and how they are made good.

A flipped bit is found by whoever reads the batch: what came from the disk has its CRC checked. The segment is then
*suspect*, and `find_damage` looks for the stretch to be replaced: from the bad batch (or the one before, if offsets do
not follow: they are not covered by the CRC, and either may be wrong) to the next good one, found by the bad one's own
length, or by the index, or else the end of the segment. Replicas of a partition have the same bytes, so what belongs
there is the same number of bytes of any other replica, and is written there. Only compaction, which each replica does
for itself, makes them differ; then the whole segment is made again.

Nothing is cut: behind the stretch the log goes on, and while it is not repaired readers of it are told so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.io.files import FileSystem
from penstock.log.compaction_files import CleanedSegment
from penstock.log.handles import Access, OwnAccess
from penstock.log.segment import Segment
from penstock.records.batch import HEADER_SIZE, MAGIC, MIN_LENGTH, CorruptBatch, check_crc, iterate_headers, read_header

MAGIC_AT = 16
MAGIC_BYTE = bytes([MAGIC])
LONG_MAX = 2**63 - 1
SEARCHED_BYTES_MAX = 64 * 1024 * 1024


class Damage(NamedTuple):
    """A stretch of a segment that is not what was written, with offsets from `first_offset` up to `next_offset`."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    why: str
    cuts: int = 0
    """How often the segment had been cut when it was looked at."""

    @property
    def size(self) -> int:
        return self.end - self.position


class _Fault(NamedTuple):
    why: str
    is_in_order: bool = True
    """Whether its offset, at least, may be right."""


def find_damage(files: FileSystem, segment: Segment, size: int, next_offset: int) -> Damage | None:
    """The first damage in the first `size` bytes of a segment; `next_offset` is the offset at their end. Reads all of
    them: for a worker thread."""
    with OwnAccess(files) as access:
        position, due = 0, segment.base_offset
        before = (position, due)
        while position < size:
            found = _look(access, segment, position, size, due, next_offset)
            if isinstance(found, _Fault):
                end, offset = next_good_batch(files, segment, position, size, due, next_offset) or (size, next_offset)
                start, first_offset = (position, due) if found.is_in_order else before
                return Damage(start, end, first_offset, offset, f"{segment.path} at position {position}: {found.why}")
            before = (position, due)
            batch_size, due = found
            position += batch_size
    return None


def next_good_batch(
    files: FileSystem, segment: Segment, position: int, size: int, due: int, end_offset: int = LONG_MAX
) -> tuple[int, int] | None:
    """Position and offset of the first good batch that can be found behind the bad one at `position`; its offsets are
    at least `due` and below `end_offset`."""
    with OwnAccess(files) as access:
        for candidate in _candidates(access, segment, position, size):
            if candidate < size and not isinstance(_look(access, segment, candidate, size, due, end_offset), _Fault):
                return candidate, read_header(access.read(segment.path, HEADER_SIZE, candidate)).base_offset
        # There is no telling where the next one begins: look everywhere. A record may hold what looks like a batch, but
        # then it is not followed by batches up to the end.
        data = bytes(access.read(segment.path, min(size - position, SEARCHED_BYTES_MAX), position))
        at = data.find(MAGIC_BYTE, MAGIC_AT + 1)
        while at >= 0:
            candidate = position + at - MAGIC_AT
            if _reaches_end(access, segment, candidate, size, due, end_offset):
                return candidate, int.from_bytes(data[at - MAGIC_AT : at - MAGIC_AT + 8], "big")
            at = data.find(MAGIC_BYTE, at + 1)
    return None


def _candidates(access: Access, segment: Segment, position: int, size: int) -> Iterator[int]:
    if size - position >= HEADER_SIZE:
        header = read_header(access.read(segment.path, HEADER_SIZE, position))
        if header.length >= MIN_LENGTH:
            yield position + header.size
    for _, entry in segment.index.entries():
        if entry > position:
            yield entry


def _reaches_end(access: Access, segment: Segment, position: int, size: int, due: int, end_offset: int) -> bool:
    while position < size:
        found = _look(access, segment, position, size, due, end_offset)
        if isinstance(found, _Fault):
            return False
        position, due = position + found[0], found[1]
    return True


def _look(
    access: Access, segment: Segment, position: int, size: int, due: int, end_offset: int
) -> tuple[int, int] | _Fault:
    """Size and next offset of the batch at `position`, or what is wrong with it."""
    if size - position < HEADER_SIZE:
        return _Fault("the file ends in a batch header")
    header = read_header(access.read(segment.path, HEADER_SIZE, position))
    if header.length < MIN_LENGTH or header.magic != MAGIC or header.last_offset_delta < 0:
        return _Fault("no batch begins there")
    if header.size > size - position:
        return _Fault("the file ends in a batch")
    if not due <= header.base_offset < header.next_offset <= end_offset:
        return _Fault(f"offset {header.base_offset} is not in {due} to {end_offset}", is_in_order=False)
    try:
        check_crc(access.read(segment.path, header.size, position), 0, header)
    except CorruptBatch:
        return _Fault("the CRC does not match")
    return header.size, header.next_offset


def replacement(damage: Damage, fetched: bytes) -> bytes:
    """Of batches that another replica has, those that belong where the damage is."""
    view = memoryview(fetched)
    chosen = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        if damage.first_offset <= header.base_offset and header.next_offset <= damage.next_offset:
            chosen.append(view[position : position + header.size])
    return b"".join(chosen)


def rebuild(files: FileSystem, segment: Segment, damage: Damage, data: bytes) -> None:
    """Make a cleaned segment, to be swapped in, that has `data` in the place of the damage: for replicas that were
    compacted differently. On a worker thread."""
    made = CleanedSegment(
        files, segment.directory, segment.base_offset, segment.index_interval, throttle=lambda size: None
    )
    try:
        with OwnAccess(files) as access:
            before = access.read(segment.path, damage.position, 0)
            behind = access.read(segment.path, segment.size - damage.end, damage.end)
        for part in (before, data, behind):
            view = memoryview(part)
            for position, header in iterate_headers(view):
                made.append(view[position : position + header.size], header)
        made.finish(list(segment.transactions.entries()))
    except BaseException:
        made.discard()
        raise
