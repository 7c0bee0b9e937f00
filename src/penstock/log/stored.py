"""A log as files: what is done with them besides appending and reading.

**Durability.** Nothing is synced on the event loop. Files and directories that changed are noted; `flush`, on a worker
thread, syncs them with handles of its own and returns the offset up to which everything is safe; `flushed` then moves
the recovery point. The leader epochs are checkpointed by `flush`, too: what is not in the checkpoint yet is stamped on
batches above the recovery point, where recovery finds it.

**Rolling** closes the active segment when it is full (bytes, index, offsets relative to its base) or old (by its first
batch's timestamp), and leaves a snapshot of the producers at the boundary.

**Cutting**, at the front by retention and at the end where a follower found its tail to differ, is durable before
anything else is done: what was cut must not come back among what takes its place. The end of the log moves first, then
the files are cut; where the disk refuses, that is done before anything is appended.

**Failed appends.** What can fail is done before the bytes are written. Whatever fails behind the write all the same
(a mistake of ours, no memory) is taken back by a cut: indexes, epochs and producers are made again from the log that is
left.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence

from penstock.io.files import FileSystem
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, write_epoch_checkpoint
from penstock.log.damage import Damage, find_damage
from penstock.log.handles import Handles, OwnAccess
from penstock.log.loading import load_producers
from penstock.log.log_files import LogFiles
from penstock.log.replacements import Replacements
from penstock.log.retention import deletable
from penstock.log.rolling import RollRule
from penstock.log.segment import Segment
from penstock.log.swap import swap_files
from penstock.log.unsynced import sync_file
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import CorruptBatch
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.moving import Extent
from penstock.replication.producers import ProducerStates
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.log")

_NEVER = 1 << 62
NEVER_WRITTEN = -1

# Recovery has to read the headers from the last snapshot of the producers on.
_BYTES_BETWEEN_SNAPSHOTS = 64 * 1024 * 1024
# Each costs a sync on the event loop.
_SEGMENTS_DELETED_AT_ONCE = 16


class NoRoom(KafkaError):
    """The disk is full. Nothing was lost; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


@owned_by_loop(
    anywhere=("directory", "flush", "_flushed_elsewhere", "_storage_error", "_described"),
    shared=("_cut_during_flush", "_epochs_written"),  # by `flush`
)
class StoredLog:
    """The state of a log, and all that changes it but appending."""

    _active: Segment

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        settings: TopicSettings,
        handles: Handles,
        producers: ProducerStates,
        topic_id: Uuid | None,
    ) -> None:
        """For `Log.open`, which fills in the rest."""
        self.topic_partition = topic_partition
        self.producers = producers
        self.topic_id = topic_id
        self.log_start_offset = 0
        self.epochs = LeaderEpochs()
        self.recovery_point = 0
        self.recovered_bytes = 0
        self.may_lack_beginning = False
        """It begins above what was ever known to be synced: because of retention, or a power loss took the names of its
        first files. Who has a leader to compare with can tell."""
        self.checkpointed_start = 0
        """Where it begins as the directory's checkpoint has it."""
        self.repairs = 0
        self._settings = settings
        self._disk = LogFiles(files, directory, handles)
        self._replacements = Replacements(topic_partition)
        self._next_offset = 0
        self._epochs_written = 0
        """Their `changes` when they were last written to the checkpoint."""
        self._cut_during_flush = _NEVER
        self._before_append: Callable[[], None] | None = None
        """Set while the files have yet to follow a cut. Lets them, or raises KafkaError."""
        self._cut_off: list[Segment] = []
        """Segments behind the end of the log whose files have yet to go."""
        self._is_trusted = True
        self._is_closed = False
        self.on_corruption: Callable[[], None] = _ignore
        """Called when a reader, on any thread, has found a batch that is not what was written."""
        self.on_io_error: Callable[[OSError], None] = _ignore
        """Called when something other than a read has failed, on any thread, before the caller gets its KafkaError. Not
        called once the log is closed: whoever still works on it then finds that its files are gone."""
        self.before_cut: Callable[[int], None] = _ignore
        """Called before everything from an offset on is cut. What is on disk about the log must not say more of it:
        other records will take the place of those that go."""
        self.before_roll: Callable[[], None] = _ignore
        """Called before a segment is added. OSError if it must not be."""

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        if not self._is_closed:
            self.on_io_error(error)
        return self._described(what, error)

    def _described(self, what: str, error: OSError) -> KafkaError:
        logger.error("%s %s: %s", self.directory, what, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} {what}: {error}")

    # -- what it holds

    @property
    def directory(self) -> str:
        return self._disk.directory

    @property
    def log_end_offset(self) -> int:
        return self._next_offset

    @property
    def size(self) -> int:
        return self._disk.segments.size

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last one is active."""
        return self._disk.segments.copy()

    @property
    def first_base_offset(self) -> int:
        return self._disk.segments[0].base_offset

    @property
    def active_segment(self) -> Segment:
        return self._active

    @property
    def extent(self) -> Extent:
        return Extent(self.log_start_offset, self._next_offset, self.epochs)

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @property
    def needs_flush(self) -> bool:
        """Is there anything that `flush` would make durable?"""
        return (
            self._next_offset > self.recovery_point
            or self._epochs_written != self.epochs.changes
            or bool(self._disk.unsynced)
        )

    @property
    def is_unsettled(self) -> bool:
        """Whether the files have yet to follow a cut, before anything is appended."""
        return self._before_append is not None

    def update_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        for segment in self._disk.segments:
            segment.index_interval = settings.index_interval_bytes
        self._set_active(self._active)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A leader's epoch begins; the checkpoint is written with the next flush."""
        self.epochs.assign(leader_epoch, start_offset)

    def take_epochs(self, current: StoredLog) -> None:
        """Those of the log this is a copy of: some epochs have left no batch to learn them from."""
        self.epochs.become(current.epochs)

    # -- rolling

    def _set_active(self, segment: Segment) -> None:
        self._active = segment
        self._rule = RollRule(segment, self._settings, str(self.topic_partition))

    def roll(self, now_ms: int) -> None:
        """Close the active segment, unless it is empty."""
        if self._active.size:
            self._roll(self._next_offset, now_ms)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """There is no batch between the end of the log and `offset`: compaction took them all."""
        if offset > self._next_offset:
            self._roll(offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """KafkaError leaves the log as it was."""
        if self._before_append is not None:
            self._before_append()
        old, disk = self._active, self._disk
        try:
            old.cut_failed_writes()
            self.before_roll()
            new = disk.create_segment(base_offset, self._settings.index_interval_bytes, now_ms)
            if not old.size:  # its base is too low for what comes, and nothing is in it
                disk.remove(old)
        except OSError as error:
            raise self._storage_error("cannot begin a new segment", error) from error
        disk.unsynced.add_directory(disk.directory)
        if old.size:
            old.seal()
            disk.unsynced.add_existing(old.paths)
            disk.segments.append(new)
        else:
            disk.segments.replace([old], [new])
        self._set_active(new)
        self._next_offset = base_offset
        disk.snapshot_producers(base_offset, self.producers.entries)
        disk.snapshots.prune(self.recovery_point)

    # -- durability

    def flush(self) -> int:
        """Make everything durable that was appended when this began; the offset up to which that is so.

        Runs on any thread, one flush of a log at a time. Then the event loop calls `flushed` with the result. NoRoom
        may be tried again; any other failure is final.
        """
        self._cut_during_flush = _NEVER
        disk = self._disk
        end = self._next_offset  # before the active segment: one that is closed in between is among the unsynced
        active = self._active
        try:
            if end > self.recovery_point:
                sync_file(disk.system, active.path)
            changes = self.epochs.changes
            if self._epochs_written != changes:
                path = os.path.join(disk.directory, LEADER_EPOCH_CHECKPOINT)
                try:
                    write_epoch_checkpoint(disk.system, path, tuple(self.epochs.entries))
                except OSError as error:
                    if error.errno == errno.ENOSPC:
                        raise NoRoom(f"{self.topic_partition} cannot be synced: {error}") from error
                    raise
                self._epochs_written = changes
                # Noted after the change: the event loop may sync the directory at any moment, and take the note off.
                disk.unsynced.add_directory(disk.directory)
            disk.unsynced.sync()
        except (OSError, NoRoom) as error:
            if disk is not self._disk:
                return self._flushed_elsewhere()
            if isinstance(error, NoRoom):
                raise
            raise self._storage_error("cannot be synced", error) from error
        return end if disk is self._disk else self._flushed_elsewhere()

    def _flushed_elsewhere(self) -> int:
        """The log went on in another directory meanwhile. Whatever became of the old files proves nothing."""
        self._epochs_written = NEVER_WRITTEN
        return self.recovery_point

    def flushed(self, offset: int) -> None:
        """`flush` returned `offset`. What was cut meanwhile, and written anew, is not what was synced."""
        self.recovery_point = max(self.recovery_point, min(offset, self._cut_during_flush, self._next_offset))
        disk = self._disk
        if self._active.size - disk.snapshot_position > _BYTES_BETWEEN_SNAPSHOTS and self._before_append is None:
            # Before a cut is finished the producers may know of what is to go.
            disk.snapshot_producers(self._next_offset, self.producers.entries)
            disk.snapshots.prune(self.recovery_point)

    def close(self, clean: bool = True) -> None:
        """After a clean close the next `open` has nothing to check. One that is not clean only lets the files go."""
        if self._is_closed:
            return
        if clean:
            self._settle()
        disk = self._disk
        if clean and (self.needs_flush or disk.snapshots.latest != self._next_offset):
            if self._active.size:
                self._active.seal()
            else:
                self._active.write_indexes()
            disk.unsynced.add_existing(self._active.paths)
            disk.snapshot_producers(self._next_offset, self.producers.entries)
            disk.snapshots.prune(self._next_offset)
            disk.unsynced.add_directory(disk.directory)
            self.flushed(self.flush())
        self._is_closed = True
        disk.close()

    def _settle(self) -> None:
        """Let the files end where the log does: after a clean stop their sizes are believed."""
        if self._before_append is not None:
            self._before_append()
        try:
            self._active.cut_failed_writes()
        except OSError as error:
            raise self._storage_error("cannot be closed", error) from error

    # -- removing

    @property
    def durable_log_start(self) -> int:
        """Where the log would begin after a power loss."""
        start = self.log_start_offset
        if start <= self.checkpointed_start:
            return start
        return min(start, max(self.first_base_offset, self.checkpointed_start))

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers; their segments go with the next `delete_old_segments`."""
        if offset > self._next_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: cannot start at {offset}, beyond its end {self._next_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the segments that retention no longer wants, some at a time. Their files get the suffix `.deleted`, and
        the paths are returned: the caller removes them off the event loop, after `file.delete.delay.ms`, and asks
        again soon."""
        if self._before_append is not None:
            self._before_append()
        disk = self._disk
        count, reason = deletable(
            disk.segments.copy(),
            self._settings,
            log_start_offset=self.log_start_offset,
            log_end_offset=self._next_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return []
        count = min(count, _SEGMENTS_DELETED_AT_ONCE)
        if count == len(disk.segments):
            self._roll(self._next_offset, now_ms)
        removed, start = disk.segments.copy()[:count], disk.segments[count].base_offset
        logger.info("%s: deleting %d segments below %d: %s", disk.directory, count, start, reason)
        try:
            # The end offset lives on in the name of the newest segment, and the producers in the snapshot at the new
            # front of the log: they must be durable before the others go.
            sync_file(disk.system, disk.snapshots.path(start))
            disk.unsynced.sync_directory(disk.directory)
            self.advance_log_start(start)
            disk.segments.remove(removed)
            return disk.set_aside(removed)
        except OSError as error:
            raise self._storage_error("cannot delete segments", error) from error

    def truncate_to(self, offset: int) -> None:
        """Cut everything at and above `offset`: a follower that found its tail to differ from its leader's.

        The log then ends behind its last batch, which is below `offset` if that fell into a batch or a gap: what no
        batch and no segment's name says would be forgotten by a crash.
        """
        if offset >= self._next_offset:
            # A leader that was succeeded before it appended anything has left its epoch at the end.
            self.epochs.truncate_from_end(self._next_offset)
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._check_trusted()
        try:
            self.before_cut(offset)
            segments = self._disk.segments
            segment = segments[segments.number_of(offset)]
            with OwnAccess(self._disk.system) as access:
                position, _ = segment.find(offset, access)
                end = segment.offset_at(position, access)
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._storage_error("cannot be truncated", error) from error
        if end <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            self._end_at(segment, position, end)
            self._finish_cut()

    def _end_at(self, segment: Segment, position: int, offset: int) -> None:
        """Let the log end at `offset`, which is at `position` in `segment`. The files follow: `_finish_cut`."""
        segment.size = position
        segments = self._disk.segments
        later = segments.copy()[segments.number_of(segment.base_offset) + 1 :]
        segments.remove(later)
        self._cut_off += later
        self._active = segment
        self._next_offset = offset
        # Of several the lowest counts: what was written behind an earlier one is not what the flush has synced either.
        self._cut_during_flush = min(self._cut_during_flush, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        self._before_append = self._finish_cut

    def _finish_cut(self) -> None:
        """Cut from the files what is behind the end of the log, and know again what the rest of it says. KafkaError
        leaves it to the next call; the end of the log is where it should be even so."""
        segment, end, disk = self._active, self._next_offset, self._disk
        try:
            if self._cut_off:
                for later in reversed(self._cut_off):
                    disk.remove(later)
                self._sync_cut(lambda: disk.system.sync_directory(disk.directory))
                self._cut_off = []
            segment.truncate_to_position(segment.size, end)
            # Synced here, before anything is appended: after a power loss the batches that were cut could otherwise
            # come back, whole and with good CRCs, among those that have taken their place.
            self._sync_cut(lambda: sync_file(disk.system, segment.path))
            disk.snapshots.remove_above(end)
            disk.unsynced.add_directory(disk.directory)
            disk.unsynced.add_existing(segment.paths)
            self._reload_producers(end)
            self._set_active(segment)
        except OSError as error:
            raise self._storage_error("cannot be truncated", error) from error
        disk.snapshot_position = segment.size
        self._before_append = None

    def _sync_cut(self, sync: Callable[[], None]) -> None:
        """A sync that failed is final, as everywhere: what was cut may come back, however often it is tried again."""
        try:
            sync()
        except OSError:
            self._is_trusted = False
            self._before_append = self._check_trusted
            raise

    def _check_trusted(self) -> None:
        if not self._is_trusted:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic_partition} was cut, and that could not be synced: the broker must be restarted",
            )

    def _take_back(self, segment: Segment, position: int, offset: int) -> None:
        """An append failed behind its write: let the log end where it did."""
        logger.error("%s: an append failed behind its write; the log ends at %d as before", self.directory, offset)
        self._end_at(segment, position, offset)
        with contextlib.suppress(KafkaError):  # it is logged, and nothing is appended before it has been done
            self._finish_cut()

    def _reload_producers(self, offset: int) -> None:
        now_ms = max((entry.last_seen_ms for entry in self.producers.entries), default=0)
        load_producers(
            self._disk.system,
            self._disk.segments.copy(),
            self.producers,
            self._disk.snapshots,
            offset,
            start=self.log_start_offset,
            now_ms=now_ms,
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the next record gets `offset`."""
        self._check_trusted()
        try:
            self.before_cut(offset)
        except OSError as error:
            raise self._storage_error("cannot be emptied", error) from error
        self.epochs.clear()
        self.producers.clear()
        self._next_offset = self.log_start_offset = self.recovery_point = offset
        self._cut_during_flush = min(self._cut_during_flush, offset)
        self._before_append = self._begin_anew
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Replace all files by those of an empty log. KafkaError leaves it to the next call."""
        disk = self._disk
        try:
            old = disk.segments.copy()
            for segment in (*old, *self._cut_off):
                disk.remove(segment)
            new = disk.create_segment(self._next_offset, self._settings.index_interval_bytes, old[-1].created_ms)
            disk.segments.replace(old, [new])
            self._set_active(new)
            disk.snapshots.remove_above(-1)
            self._sync_cut(lambda: disk.system.sync_directory(disk.directory))  # before anything is appended
        except OSError as error:
            raise self._storage_error("cannot be emptied", error) from error
        self._cut_off = []
        disk.snapshot_position = 0
        self._before_append = None

    # -- other files in the place of those it has

    def replace_segments(self, base_offset: int, replaced: Sequence[int], now_ms: int) -> list[str]:
        """Put the compacted segment at `base_offset` in the place of the closed ones at the offsets `replaced`.

        `swap.prepare_swap` has run; the paths returned are for `swap.finish_swap`. Both are for a worker thread.
        """
        disk = self._disk
        old = [segment for segment in disk.segments if segment.base_offset in replaced]
        if len(old) != len(replaced) or self._active in old:
            raise ValueError(f"{self.directory}: {list(replaced)} are not closed segments of the log")
        with self._replacements.replacing():
            disk.let_go(old)
            try:
                paths = swap_files(disk.system, disk.directory, base_offset, replaced)
                names = disk.system.list(disk.directory)
            except OSError as error:
                raise self._storage_error("cannot replace segments", error) from error
            new = Segment.found(
                disk.system,
                disk.directory,
                base_offset,
                names,
                index_interval=self._settings.index_interval_bytes,
                now_ms=now_ms,
            )
            disk.segments.replace(old, [new])
        return paths

    def adopt(self, future: StoredLog, directory: str) -> None:
        """Go on with the files of `future`, a copy of this log, which have been renamed to be in `directory`.

        The copy holds exactly what this log does, and is synced at least as far. It is not used any more. Whoever holds
        on to this log need not know: it keeps its producers and its settings. Reads on worker threads begin again; a
        flush that is under way proves nothing about the new files.
        """
        assert (future.log_start_offset, future.log_end_offset) == (self.log_start_offset, self.log_end_offset)
        assert future.recovery_point >= self.recovery_point
        future._disk.relocate(directory)
        with self._replacements.replacing():
            self._disk.let_go(self._disk.segments)
            if future._epochs_written != future.epochs.changes or future.epochs.entries != self.epochs.entries:
                self._epochs_written = NEVER_WRITTEN
            self.recovery_point = future.recovery_point
            self._set_active(future._active)
            # In this order: a flush that begins meanwhile sees only the new files, or that it proves nothing.
            self._disk = future._disk
            self._cut_during_flush = self.recovery_point
        self.update_settings(self._settings)

    # -- repair

    def find_damage(self, segment: Segment) -> Callable[[], Damage | None]:
        """To be run on a worker thread: the first damage in a segment as it is now."""
        segments, system = self._disk.segments, self._disk.system
        number = segments.number_of(segment.base_offset)
        is_last = number == len(segments) - 1
        end_offset = self._next_offset if is_last else segments[number + 1].base_offset
        size, cuts = segment.size, segment.cuts

        def look() -> Damage | None:
            damage = find_damage(system, segment, size, end_offset)
            return None if damage is None else damage._replace(cuts=cuts)

        return look

    def is_still_there(self, segment: Segment, damage: Damage) -> bool:
        """False if the segment is not what it was: retention, compaction or a truncation was faster. Batches that have
        been appended since a truncation are not those that were looked at, and may be good."""
        return segment in self.segments and damage.cuts == segment.cuts and damage.end <= segment.size

    def restore(self, segment: Segment, damage: Damage, data: bytes) -> bool:
        """Write what belongs there in the place of damaged bytes; it is durable after the next flush. False if they
        are not there any more."""
        if not self.is_still_there(segment, damage):
            return False
        try:
            file = self._disk.system.open(segment.path)
            try:
                file.pwrite(data, damage.position)
            finally:
                file.close()
        except OSError as error:
            raise self._storage_error("cannot be repaired", error) from error
        self._disk.unsynced.add(segment.path)
        self.repairs += 1
        return True


def _ignore(*_: object) -> None:
    """Until the one who opened the log says what is to be done."""
