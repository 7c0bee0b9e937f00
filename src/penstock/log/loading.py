"""Loads the state of a log from its partition's directory.

After a clean stop nothing is scanned: the segments are listed, the end offset comes from the last index entry and the
few batches after it, and the producers come from the snapshot written at the stop. After any other stop, or if the
files contradict a clean one, the batches from the recovery point on are checked (see `recovery`). The log ends at the
first bad batch, because it was never completely on disk.

A bad batch below the recovery point was complete once: its bytes have changed since, and other replicas may still have
it. So it stays in place, the log continues after it, and its segment is suspect (see `damage`).

The end offset never moves below the log start offset, whatever was lost: offsets that were assigned once are not
assigned to other records.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.io.files import File, FileSystem
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, MalformedCheckpoint, read_epoch_checkpoint
from penstock.log.damage import find_damage, next_good_batch
from penstock.log.handles import OwnAccess
from penstock.log.index import CorruptIndex, OffsetIndex, TimeIndex
from penstock.log.producer_snapshot import ProducerSnapshots
from penstock.log.recovery import (
    Scanned,
    is_good_batch_at,
    rebuild_indexes,
    replay_producers,
    scan_segment,
    start_of_recovery,
)
from penstock.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    STRAY_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from penstock.log.swap import recover_swaps
from penstock.records.batch import HEADER_SIZE, CorruptBatch, read_header
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.producers import ProducerStates

logger = logging.getLogger("penstock.log")

REWRITE_BYTES = 1024 * 1024


class Loaded(NamedTuple):
    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    recovered_bytes: int
    """The number of bytes read and checked; 0 after a clean stop."""


def load(
    files: FileSystem,
    directory: str,
    producers: ProducerStates,
    *,
    clean_shutdown: bool,
    recovery_point: int,
    log_start_offset: int,
    index_interval: int,
    gaps_are_normal: bool,
    rewrites: bool,
    now_ms: int,
) -> Loaded:
    """Load a log. Brings `producers` to the end of the log and returns everything else.

    `gaps_are_normal` if offsets may be missing between segments. `rewrites` if syncs must be reliable (logs that are
    synced before every acknowledgement, and the metadata log): after a failed sync the system regards its memory as
    written, and no later sync writes it. So the recovered data is written once more in place.
    """
    return _Loading(files, directory, producers, index_interval, gaps_are_normal, rewrites, now_ms).load(
        clean_shutdown, recovery_point, log_start_offset
    )


@dataclass(eq=False)
class _Loading:
    files: FileSystem
    directory: str
    producers: ProducerStates
    index_interval: int
    gaps_are_normal: bool
    rewrites: bool
    now_ms: int
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs, init=False)
    segments: list[Segment] = field(default_factory=list, init=False)
    recovered_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.snapshots = ProducerSnapshots(self.files, self.directory, ())

    def load(self, clean_shutdown: bool, recovery_point: int, log_start_offset: int) -> Loaded:
        names = self._tidy()
        self._list_segments(names)
        if not self._read_epochs(names):
            clean_shutdown, recovery_point = False, 0
        log_end_offset = self._end_after_clean_stop(recovery_point) if clean_shutdown else None
        if log_end_offset is None:
            if clean_shutdown:
                recovery_point = min(recovery_point, self.segments[-1].base_offset)
            self._rebuild_missing_indexes(names, recovery_point)
            # Above the recovery point a snapshot may describe batches that are lost, or that others have replaced. The
            # snapshot at the recovery point may also have been written after the sync. The snapshot at the front of the
            # log was synced when the segments before it were deleted.
            self.snapshots.remove_above(max(recovery_point - 1, self.segments[0].base_offset if self.segments else 0))
            log_end_offset = self._recover(max(recovery_point, 0), log_start_offset)
            recovery_point = min(max(recovery_point, 0), log_end_offset)
        else:
            self._rebuild_missing_indexes(names, log_end_offset)
            recovery_point = log_end_offset
            self._load_producers(log_end_offset, log_start_offset)
        if self.segments and log_end_offset < log_start_offset:
            logger.warning(
                "%s: the log ends at %d, below its start %d: it begins anew there",
                self.directory,
                log_end_offset,
                log_start_offset,
            )
            self._drop_segments(0)
            self.epochs.clear()
            self.producers.clear()
        if not self.segments:
            log_end_offset = recovery_point = log_start_offset = max(log_start_offset, 0)
            self.segments.append(
                Segment.create(
                    self.files,
                    self.directory,
                    log_start_offset,
                    index_interval=self.index_interval,
                    now_ms=self.now_ms,
                )
            )
        log_start_offset = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(log_end_offset)
        self.epochs.truncate_from_start(log_start_offset)
        self.snapshots.remove_above(log_end_offset)
        return Loaded(
            self.segments,
            log_start_offset,
            log_end_offset,
            recovery_point,
            self.epochs,
            self.snapshots,
            self.recovered_bytes,
        )

    # -- what is there

    def _tidy(self) -> set[str]:
        """Finish or undo interrupted operations; returns the remaining file names."""
        names = self.files.list(self.directory)
        if recover_swaps(self.files, self.directory, names):
            names = self.files.list(self.directory)
        kept = set(names)
        for name in names:
            stem, suffix = os.path.splitext(name)
            orphan = suffix in SEGMENT_SUFFIXES and stem + LOG_SUFFIX not in kept
            if orphan:
                logger.warning("%s: %s has no log file and is removed", self.directory, name)
            if orphan or suffix == DELETED_SUFFIX:
                self.files.remove(os.path.join(self.directory, name))
                kept.discard(name)
        return kept

    def _list_segments(self, names: set[str]) -> None:
        snapshots = []
        for name in sorted(names):
            stem, suffix = os.path.splitext(name)
            if not (len(stem) == 20 and stem.isdigit()):
                continue
            if suffix == SNAPSHOT_SUFFIX:
                snapshots.append(int(stem))
            elif suffix == LOG_SUFFIX:
                segment = Segment.found(
                    self.files,
                    self.directory,
                    int(stem),
                    names,
                    index_interval=self.index_interval,
                    now_ms=self.now_ms,
                )
                self.segments.append(segment)
        self.snapshots = ProducerSnapshots(self.files, self.directory, snapshots)

    def _read_epochs(self, names: set[str]) -> bool:
        if LEADER_EPOCH_CHECKPOINT not in names:
            return True
        try:
            self.epochs = LeaderEpochs(
                read_epoch_checkpoint(self.files, os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT))
            )
        except MalformedCheckpoint as error:
            logger.error("%s; the epochs are read from the whole log instead", error)
            return False
        return True

    def _rebuild_missing_indexes(self, names: set[str], below: int) -> None:
        """Only for closed segments that end at or below offset `below`; the others are recovered, including their
        indexes."""
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            if following.base_offset > below or not segment.size:
                continue
            for suffix, kind in ((INDEX_SUFFIX, OffsetIndex), (TIME_INDEX_SUFFIX, TimeIndex)):
                name = file_name(segment.base_offset, suffix)
                if name not in names or self.files.size(os.path.join(self.directory, name)) % kind.entry.size:
                    logger.warning("%s/%s is missing or damaged and is made again", self.directory, name)
                    rebuild_indexes(self.files, segment, self.now_ms)
                    break

    # -- the end of the log

    def _end_after_clean_stop(self, recovery_point: int) -> int | None:
        """The end of the log at a clean stop: the recovery point, unless it contradicts the files; None if it does."""
        if not self.segments:
            return 0
        last = self.segments[-1]
        try:
            with OwnAccess(self.files) as access:
                end = last.next_offset(access)
        except CorruptIndex as error:
            logger.error("%s: the stop was said to be clean, but %s; recovering", self.directory, error)
            return None
        except CorruptBatch as error:
            if recovery_point <= last.base_offset:
                logger.error("%s: the stop was said to be clean, but %s; recovering", self.directory, error)
                return None
            return recovery_point
        # If offsets are missing before the end, the snapshot taken there at the stop has the end offset.
        snapshot = self.snapshots.newest_until(last.base_offset + MAX_RELATIVE_OFFSET)
        if snapshot is not None and snapshot[0] > end:
            end = snapshot[0]
        if end == recovery_point or recovery_point <= last.base_offset or self._goes_on_at(last, recovery_point, end):
            return end
        if find_damage(self.files, last, last.size, recovery_point):
            last.is_suspect = True
            return recovery_point
        return end

    def _goes_on_at(self, segment: Segment, recovery_point: int, end: int) -> bool:
        """Whether the recovery point is only outdated: a full disk may have prevented its checkpoint at the stop."""
        if end < recovery_point:
            return False
        try:
            with OwnAccess(self.files) as access:
                position, _ = segment.find(recovery_point, access)
                return read_header(access.read(segment.path, HEADER_SIZE, position)).base_offset == recovery_point
        except CorruptBatch:
            return False

    def _recover(self, recovery_point: int, log_start_offset: int) -> int:
        if not self.segments:
            return 0
        # The segment that ends at the recovery point is checked as well: its batches were synced, but perhaps before it
        # was closed, and then its indexes were not.
        first = max(bisect_right(self.segments, recovery_point - 1, key=_base_offset) - 1, 0)
        if first == len(self.segments) - 1:
            end = self._recover_from(first, recovery_point, recovery_point, log_start_offset)
            if end >= recovery_point or recovery_point <= self.segments[first].base_offset:
                return end
            logger.warning(
                "%s: the log ends at %d, below its recovery point %d: checking the whole last segment",
                self.directory,
                end,
                recovery_point,
            )
            return self._recover_from(first, self.segments[first].base_offset, recovery_point, log_start_offset)
        return self._recover_from(first, recovery_point, recovery_point, log_start_offset)

    def _recover_from(self, first: int, start: int, recovery_point: int, log_start_offset: int) -> int:
        position, next_offset = start_of_recovery(self.files, self.segments[first], start)
        self._load_producers(next_offset, log_start_offset)
        for number, segment in enumerate(self.segments[first:], first):
            if number > first:
                position, next_offset = start_of_recovery(self.files, segment, segment.base_offset)
            begin = position
            file = self.files.open(segment.path)
            try:
                scanned, position = self._scan(number, file, position, next_offset, recovery_point)
                self._report(segment, scanned, number)
                if scanned.end < segment.size:
                    # Synced immediately: the removed bytes must not reappear after the batches that are appended next.
                    file.truncate(scanned.end)
                    file.sync()
                    segment.size = scanned.end
                if self.rewrites:
                    for at in range(begin, segment.size, REWRITE_BYTES):
                        file.pwrite(file.pread(min(REWRITE_BYTES, segment.size - at), at), at)
            finally:
                file.close()
            segment.trusted_from = position
            next_offset = scanned.next_offset
            if scanned.fault:
                self._drop_segments(number + 1)
                break
            if self._hole_after(number, max(next_offset, recovery_point)):
                self._set_later_segments_aside(number + 1)
                break
            if number < len(self.segments) - 1:
                segment.write_indexes()
        return next_offset

    def _scan(
        self, number: int, file: File, position: int, next_offset: int, recovery_point: int
    ) -> tuple[Scanned, int]:
        """Check a segment from `position` on, past rotted batches; also returns the position after those."""
        segment = self.segments[number]
        while True:
            scanned = scan_segment(segment, file, position, next_offset, self.epochs, self.producers, self.now_ms)
            self.recovered_bytes += scanned.end - position
            if not scanned.fault or scanned.next_offset >= recovery_point:
                return scanned, position
            found = next_good_batch(self.files, segment, scanned.end, segment.size, scanned.next_offset)
            if found is None:
                found = self._end_of_synced(number, scanned.end, recovery_point)
            if found is None:
                return scanned, position
            logger.error(
                "%s is damaged at position %d, below the recovery point %d: %s. It goes on at %d",
                segment.path,
                scanned.end,
                recovery_point,
                scanned.fault,
                found[0],
            )
            segment.is_suspect = True
            position, next_offset = found

    def _end_of_synced(self, number: int, position: int, recovery_point: int) -> tuple[int, int] | None:
        """Where a segment continues that has no good batch after a bad one: at its end, if all of it was synced, or
        after the bad batch if that was the last synced one."""
        segment = self.segments[number]
        if number < len(self.segments) - 1 and self.segments[number + 1].base_offset <= recovery_point:
            return segment.size, self.segments[number + 1].base_offset
        if segment.size - position < HEADER_SIZE:
            return None
        with OwnAccess(self.files) as access:
            header = read_header(access.read(segment.path, HEADER_SIZE, position))
        is_last = header.next_offset == recovery_point and position + header.size <= segment.size
        return (position + header.size, recovery_point) if is_last and header.length > 0 else None

    def _report(self, segment: Segment, scanned: Scanned, number: int) -> None:
        """Log the result. Crashes leave torn tails; good data after a bad batch is a loss and is reported as such."""
        if not scanned.fault:
            return
        behind = sum(later.size for later in self.segments[number + 1 :])
        lost = segment.size - scanned.end
        level = logging.WARNING
        if segment.size - scanned.end >= HEADER_SIZE:
            with OwnAccess(self.files) as access:
                header = read_header(access.read(segment.path, HEADER_SIZE, scanned.end))
            if header.length > 0 and is_good_batch_at(self.files, segment, scanned.end + header.size):
                level = logging.ERROR
        if behind:
            level = logging.ERROR
        logger.log(
            level,
            "%s is cut at position %d (next offset %d): %s. %d bytes dropped here, %d in %d later segments",
            segment.path,
            scanned.end,
            scanned.next_offset,
            scanned.fault,
            lost,
            behind,
            len(self.segments) - number - 1,
        )

    def _drop_segments(self, first: int) -> None:
        if first < len(self.segments):
            for segment in self.segments[first:]:
                for path in segment.paths:
                    self.files.remove(path)
            self.files.sync_directory(self.directory)
            del self.segments[first:]

    def _hole_after(self, number: int, next_offset: int) -> bool:
        """Whether batches above the recovery point are missing at the end of this segment, although none of the rest is
        bad.

        Then its file lost its end, while the next segment, which was started later, did not. Our compaction leaves no
        gap between segments (see `compaction_filter`), but Kafka's does.
        """
        following = self.segments[number + 1 :]
        return bool(following) and not self.gaps_are_normal and following[0].base_offset > next_offset

    def _set_later_segments_aside(self, first: int) -> None:
        """End the log at the hole, as with a bad batch. The files after it are good, so keep them for manual
        inspection."""
        for segment in self.segments[first:]:
            logger.error(
                "%s is set aside (%s): the log before it ends too early, its end was lost", segment.path, STRAY_SUFFIX
            )
            for path in segment.paths:
                if self.files.exists(path):
                    self.files.rename(path, path + STRAY_SUFFIX)
        self.files.sync_directory(self.directory)
        del self.segments[first:]

    def _load_producers(self, offset: int, log_start_offset: int) -> None:
        load_producers(
            self.files,
            self.segments,
            self.producers,
            self.snapshots,
            offset,
            start=max(log_start_offset, 0),
            now_ms=self.now_ms,
        )


def load_producers(
    files: FileSystem,
    segments: Sequence[Segment],
    producers: ProducerStates,
    snapshots: ProducerSnapshots,
    offset: int,
    *,
    start: int,
    now_ms: int,
) -> None:
    """Set `producers` to their state at `offset`, from the newest usable snapshot and the batches after it.

    Without a snapshot the state comes from the batches from `start` on.
    """
    producers.clear()
    snapshot = snapshots.newest_until(offset)
    # A snapshot from before the front of the log cannot be brought up to date: unknown producers are safer.
    if snapshot is not None and segments and snapshot[0] >= segments[0].base_offset:
        start, entries = snapshot
        producers.load(entries, now_ms)
    if start < offset:
        replay_producers(files, segments, producers, start, offset, now_ms)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
