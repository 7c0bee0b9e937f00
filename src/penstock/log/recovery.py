"""Repairs a log after an unclean stop, and rebuilds its indexes at any time.

Bytes below the recovery point were synced. Bytes above it may be missing, torn, or zeros where the file grew before its
contents arrived. So from the recovery point on, recovery reads every batch and checks its CRC, and cuts the log at the
first batch that is not what was written. On the way it rebuilds everything that derives from the batches: offset and
time index entries, aborted transactions, leader epochs, producer sequences. Below the recovery point it reads only the
header of the batch that an index entry names, to check the entry, and, for the producers, the headers since the latest
snapshot.

One loop does the reading. It runs for hundreds of thousands of batches at every restart after a crash, so it uses local
variables and creates no object for a batch without a producer id. Where many small batches are left, a compiled scan
passes over those that need no decision (see `recovery_kernel`), and the loop looks at the others.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from penstock.io.files import Buffer, File, FileSystem
from penstock.log.damage import next_good_batch
from penstock.log.handles import OwnAccess
from penstock.log.segment import MAX_RELATIVE_OFFSET, Segment
from penstock.log.transaction_index import AbortedTransaction
from penstock.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_LENGTH,
    BatchHeader,
    CorruptBatch,
    read_header,
)
from penstock.records.control import read_transaction_marker
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.producers import ProducerStates

if TYPE_CHECKING:
    from penstock.log.recovery_kernel import Runs

logger = logging.getLogger("penstock.log")

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp, producer id
_scan = struct.Struct(">qiibIhiqqq").unpack_from
_CHUNK = 1024 * 1024
# The compiled scan is loaded for a scan with more batches than this before it; in Python they would take a second.
MANY_BATCHES = 200_000
# The number of batches from which the scan knows how large they are.
_SAMPLE = 1000
# The number of batches that the loop takes where the compiled scan has found few that it understands.
_REST = 64


class Scanned(NamedTuple):
    end: int
    """The position after the last good batch."""
    next_offset: int
    fault: str
    """The fault of the bytes at `end`; empty if the file ended there."""


def scan_segment(  # noqa: C901
    segment: Segment,
    file: File,
    position: int,
    next_offset: int,
    epochs: LeaderEpochs | None,
    producers: ProducerStates | None,
    now_ms: int,
) -> Scanned:
    """Check every batch from `position` to the end of the segment and add it to indexes, epochs and producers.

    `next_offset` is the lowest offset the first batch may have.
    """
    size = segment.size
    base = segment.base_offset
    limit = base + MAX_RELATIVE_OFFSET
    latest_epoch = epochs.latest if epochs is not None else -1
    epoch_before = -1
    interval = segment.index_interval
    since, largest, largest_offset = segment.noted()
    first_timestamp: int | None = None
    fault = ""
    chunk_start = begin = position
    view = memoryview(b"")
    needed = HEADER_SIZE
    seen, rest = 0, 1
    runs = None
    while position < size:
        at = position - chunk_start
        if runs is not None and not rest and (epochs is None or epoch_before < 0 or epoch_before == latest_epoch):
            noted = since, largest, largest_offset
            passed = runs.scan(
                view,
                at,
                next_offset,
                noted,
                limit=limit,
                epoch=epoch_before,
                interval=interval,
                with_producers=producers is not None,
            )
            if passed:
                for entry_at, *entry in runs.entries:
                    segment.add_index_entry(chunk_start + entry_at, *entry)
                if producers is not None:
                    for batch_at in runs.producer_batches:
                        replay_batch(segment, producers, view, batch_at, read_header(view, batch_at), now_ms)
                position, next_offset = chunk_start + runs.at, runs.next_offset
                since, largest, largest_offset = runs.noted
            rest = 1 if passed > _REST else _REST
            continue
        if at + needed > len(view):
            view = memoryview(file.pread(min(max(_CHUNK, needed), size - position), position))
            if len(view) < needed:
                fault = "the file ends in a batch header" if needed == HEADER_SIZE else "the file has become shorter"
                break
            chunk_start, at, needed = position, 0, HEADER_SIZE
            if runs is None and seen > _SAMPLE and seen * (size - position) >= MANY_BATCHES * (position - begin):
                runs = compiled_runs()
        offset, length, epoch, magic, crc, _, delta, _, max_timestamp, producer_id = _scan(view, at)
        if length < MIN_LENGTH or magic != MAGIC or delta < 0:
            fault = f"no batch begins there (length {length}, magic {magic})"
            break
        last_offset = offset + delta
        if offset < next_offset or last_offset > limit:
            fault = f"offsets {offset} to {last_offset} do not follow {next_offset}"
            break
        if epoch < epoch_before and epoch >= 0:
            fault = f"leader epoch {epoch} after {epoch_before}: cut off before"
            break
        batch_size = length + LENGTH_OVERHEAD
        if at + batch_size > len(view):
            if batch_size > size - position:
                fault = f"the file ends in a batch of {batch_size} bytes"
                break
            needed = batch_size
            continue
        rest -= rest > 0
        seen += 1
        if crc32c(view[at + CRC_START : at + batch_size]) != crc:
            fault = "the CRC does not match"
            break
        if offset > next_offset and _is_contradicted(file, position + batch_size, last_offset):
            fault = f"offsets {offset} to {last_offset} do not follow {next_offset}, as the next batch does"
            break
        if producer_id >= 0 and producers is not None:
            try:
                replay_batch(segment, producers, view, at, read_header(view, at), now_ms)
            except CorruptBatch as error:
                fault = str(error)
                break
        if max_timestamp > largest:
            largest, largest_offset = max_timestamp, last_offset
        if since > interval:
            segment.add_index_entry(position, last_offset, largest, largest_offset)
            since = 0
        since += batch_size
        if position == 0:
            first_timestamp = max_timestamp
        if epochs is not None and epoch >= 0 and not epoch_before == epoch == latest_epoch:
            _note_epoch(epochs, epoch, offset)
            latest_epoch = epochs.latest
        epoch_before = epoch
        next_offset = last_offset + 1
        position += batch_size
    segment.note(since, largest, largest_offset, first_timestamp)
    return Scanned(position, next_offset, fault)


def compiled_runs() -> Runs | None:
    """None if numba, which is an extra, is not installed, or does not compile here: a node must start without it."""
    try:
        from penstock.log.recovery_kernel import Runs, scan_run

        scan_run.compile()
    except ImportError as error:
        logger.info("recovery of many small batches takes longer without numba (extra `arrow`): %s", error)
        return None
    except (OSError, RuntimeError) as error:
        logger.warning("recovery of many small batches takes longer: its compiled scan cannot be built: %s", error)
        return None
    return Runs()


def _note_epoch(epochs: LeaderEpochs, epoch: int, offset: int) -> None:
    """Trust the batch if the checkpoint contradicts it: the checkpoint was written before the batch, or before the
    batch's predecessor at this offset was cut. In the latter case an uncleanly elected leader may have written an older
    epoch there."""
    if epochs.epoch_for_offset(offset) != epoch:
        epochs.truncate_from_end(offset)
        if epoch > epochs.latest:  # otherwise it has rotted: no checksum covers it
            epochs.assign(epoch, offset)


def _is_contradicted(file: File, following: int, last_offset: int) -> bool:
    """Whether the next batch shows that this batch's offset has rotted: no checksum covers offsets. This batch skips
    some offsets, as compaction does; if the next one does not come after it, this one is wrong."""
    offset = file.pread(8, following)
    return len(offset) == 8 and int.from_bytes(offset, "big") <= last_offset


def replay_batch(
    segment: Segment | None,
    producers: ProducerStates,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    now_ms: int,
) -> None:
    """Apply a batch with a producer id that is in the log to the producers, without checks.

    The transaction index of `segment` gets an entry if a transaction was aborted; `segment` is None if the entry
    exists.
    """
    if not header.is_control:
        producers.append(header, header.base_offset, now_ms)
        return
    marker = read_transaction_marker(buffer, position, header)
    if marker is None:
        return
    completed = producers.append_marker(
        header,
        header.base_offset,
        now_ms,
        aborted=not marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
    )
    if completed is not None and completed.aborted and segment is not None:
        producer_id, first_offset, last_offset, last_stable_offset, _ = completed
        segment.transactions.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))


def replay_producers(
    files: FileSystem, segments: Sequence[Segment], producers: ProducerStates, start: int, end: int, now_ms: int
) -> None:
    """Bring `producers` from offset `start` to offset `end`. The batches there were good once; the contents of a header
    that has rotted are lost."""
    first = max(bisect_right(segments, start, key=_base_offset) - 1, 0)
    with OwnAccess(files) as access:
        for segment in segments[first:]:
            if segment.base_offset >= end:
                return
            try:
                position, _ = segment.find(start, access)
            except CorruptBatch:
                position = 0
            while position <= segment.size - HEADER_SIZE:
                header = read_header(access.read(segment.path, HEADER_SIZE, position))
                if header.length < MIN_LENGTH or header.magic != MAGIC:
                    segment.is_suspect = True
                    found = next_good_batch(files, segment, position, segment.size, start)
                    if found is None:
                        break
                    position = found[0]
                    continue
                if header.base_offset >= end:
                    return
                if header.producer_id >= 0 and header.base_offset >= start:
                    batch = access.read(segment.path, header.size, position) if header.is_control else b""
                    replay_batch(None, producers, batch, 0, header, now_ms)
                position += header.size


def rebuild_indexes(files: FileSystem, segment: Segment, now_ms: int) -> None:
    """Rebuild the offset and time index of a closed segment, up to the first corrupt batch. Does not cut the log."""
    segment.forget_indexes()
    file = files.open(segment.path, read_only=True)
    try:
        scanned = scan_segment(segment, file, 0, segment.base_offset, None, None, now_ms)
    finally:
        file.close()
    segment.write_indexes()
    if scanned.fault:
        logger.error(
            "%s is corrupt at position %d of %d: %s. What follows cannot be served",
            segment.path,
            scanned.end,
            segment.size,
            scanned.fault,
        )
    else:
        segment.trust_everything_from(0)


def has_fault(files: FileSystem, segment: Segment) -> bool:
    """Whether a closed segment's log is corrupt. Read-only."""
    probe = Segment(
        files,
        segment.directory,
        segment.base_offset,
        size=segment.size,
        index_size=0,
        time_index_size=0,
        transaction_index_size=0,
        index_interval=segment.size,  # so that no entry is made
        created_ms=0,
    )
    file = files.open(segment.path, read_only=True)
    try:
        return scan_segment(probe, file, 0, segment.base_offset, None, None, 0).fault != ""
    finally:
        file.close()


def start_of_recovery(files: FileSystem, segment: Segment, recovery_point: int) -> tuple[int, int]:
    """(position, offset) of the last batch at or before the recovery point that the index knows.

    Keeps the index entries up to that batch. They may not have been synced: an index that is not plausible, or does not
    point at a good batch there, is discarded, and recovery begins at the front of the segment.
    """
    entries = list(segment.index.entries())
    times = list(segment.time_index.entries())
    kept = bisect_right(entries, recovery_point - 1, key=_first)
    plausible = (
        len(entries) == len(segment.index)
        and len(times) == len(segment.time_index)
        and all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(entries[:kept]))
        and all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(times))
    )
    last_offset, position = entries[kept - 1] if kept and plausible else (-1, -1)
    base_offset = _good_batch(files, segment, position, last_offset)
    if base_offset is None:
        segment.forget_indexes()
        segment.transactions.truncate_to(recovery_point)
        return 0, segment.base_offset
    segment.keep_indexes(kept, sum(offset <= last_offset for _, offset in times))
    segment.transactions.truncate_to(recovery_point)
    return position, base_offset


def _good_batch(files: FileSystem, segment: Segment, position: int, last_offset: int) -> int | None:
    """The base offset of the batch at `position`, if it is complete, good and ends at `last_offset`."""
    if not 0 <= position <= segment.size - HEADER_SIZE:
        return None
    with OwnAccess(files) as access:
        header = read_header(access.read(segment.path, HEADER_SIZE, position))
        if header.length < MIN_LENGTH or header.last_offset != last_offset or position + header.size > segment.size:
            return None
        data = memoryview(access.read(segment.path, header.size, position))
    return header.base_offset if crc32c(data[CRC_START:]) == header.crc else None


def is_good_batch_at(files: FileSystem, segment: Segment, position: int) -> bool:
    if position > segment.size - HEADER_SIZE:
        return False
    with OwnAccess(files) as access:
        header = read_header(access.read(segment.path, HEADER_SIZE, position))
    return header.magic == MAGIC and _good_batch(files, segment, position, header.last_offset) is not None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _first(pair: tuple[int, int]) -> int:
    return pair[0]
