"""Finds batches whose bytes on disk have changed since they were written (bit rot), and repairs them in place.

Readers detect a damaged batch, because they check its CRC: followers check everything they receive; leaders check data
that was on disk at the start, data that does not come from the page cache, and data that a follower requests a second
time; compaction checks everything it reads. There is no scrubbing: data that is not read needs no repair yet, and a
follower that catches up reads everything.

The segment with the bad batch is then *suspect*. `find_damage` determines the range to replace. It starts at the bad
batch, or at the one before if the offsets do not follow each other: the CRC does not cover offsets; they are checked by
their order, which one batch alone does not show, so either batch may be wrong. It ends at the next good batch, which is
found from the bad batch's own length, or by the index, or else at the end of the segment. The broker fetches the same
offsets from another in-sync replica as a consumer would (`broker/partitions/repair.py`). Replicas of a partition have
the same bytes, so the same number of bytes of any other replica belongs there and is written there. Only compaction
makes replicas differ, because each replica compacts for itself; then the whole segment is rebuilt (`rebuild`).

Nothing is cut: the log continues after the damaged range. It would be simpler to cut the log there and copy it again,
but an in-sync replica vouches for everything it has, and the other replicas may die meanwhile. For the same reason
recovery cuts only above the recovery point (`loading`). Until the repair, and for good if no other replica has the
batch, readers of the range get CORRUPT_MESSAGE. The metadata log has its own rules (`broker/metadata/recovery.py`).
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
    """A damaged range of a segment, with offsets from `first_offset` up to `next_offset`."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    why: str
    cuts: int = 0
    """The segment's number of cuts at the time of the check."""

    @property
    def size(self) -> int:
        return self.end - self.position


class _Fault(NamedTuple):
    why: str
    is_in_order: bool = True
    """Whether at least its offset may be right."""


def find_damage(files: FileSystem, segment: Segment, size: int, next_offset: int) -> Damage | None:
    """Find the first damage in the first `size` bytes of a segment; `next_offset` is the offset at their end. Call this
    on a worker thread: it reads all of these bytes."""
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
    """Position and offset of the first good batch after the bad one at `position`; its offsets are at least `due` and
    below `end_offset`."""
    with OwnAccess(files) as access:
        for candidate in _candidates(access, segment, position, size):
            if candidate < size and not isinstance(_look(access, segment, candidate, size, due, end_offset), _Fault):
                return candidate, read_header(access.read(segment.path, HEADER_SIZE, candidate)).base_offset
        # The start of the next batch is unknown, so try every position. A record may contain bytes that look like a
        # batch, but then batches do not follow it up to the end.
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
    """Return size and next offset of the batch at `position`, or its fault."""
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
    """Select, from the batches of another replica, those that replace the damage."""
    view = memoryview(fetched)
    chosen = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        if damage.first_offset <= header.base_offset and header.next_offset <= damage.next_offset:
            chosen.append(view[position : position + header.size])
    return b"".join(chosen)


def rebuild(files: FileSystem, segment: Segment, damage: Damage, data: bytes) -> None:
    """Write a cleaned segment, to be swapped in, with `data` in place of the damage: for replicas that were compacted
    differently. Runs on a worker thread."""
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
