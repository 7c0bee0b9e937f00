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
from penstock.log.producer_snapshot import ProducerSnapshots
from penstock.log.reader import ReadableLog
from penstock.log.retention import deletable
from penstock.log.rolling import RollRule
from penstock.log.segment import DELETED_SUFFIX, Segment
from penstock.log.swap import swap_files
from penstock.log.unsynced import Unsynced, sync_file
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import CorruptBatch
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.producers import ProducerStates
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.log")

_NEVER = 1 << 62

# Recovery has to read the headers from the last snapshot of the producers on.
_BYTES_BETWEEN_SNAPSHOTS = 64 * 1024 * 1024
# Each costs a sync on the event loop.
_SEGMENTS_DELETED_AT_ONCE = 16


class NoRoom(KafkaError):
    """The disk is full. Nothing was lost; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


@owned_by_loop(
    anywhere=("flush", "_flushed_elsewhere", "_storage_error"), shared=("_cut_during_flush", "_epochs_changed")
)
class StoredLog(ReadableLog):
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
        super().__init__(files, directory, topic_partition, handles, producers)
        self.topic_id = topic_id
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
        self._latest_epoch = -1
        self._epochs_changed = False
        self._snapshots = ProducerSnapshots(files, directory, ())
        self._snapshot_position = 0
        self._unsynced = Unsynced(files)
        self._cut_during_flush = _NEVER
        self._before_append: Callable[[], None] | None = None
        """Set while the files have yet to follow a cut. Lets them, or raises KafkaError."""
        self._cut_off: list[Segment] = []
        """Segments behind the end of the log whose files have yet to go."""
        self._is_trusted = True
        self._adoptions = 0  # how often the log went on in another directory
        self._closed = False
        self.on_io_error: Callable[[OSError], None] = _nobody_counts
        """Called when something other than a read has failed, on any thread, before the caller gets its KafkaError. Not
        called once the log is closed: whoever still works on it then finds that its files are gone."""
        self.before_cut: Callable[[int], None] = _nobody_minds
        """Called before everything from an offset on is cut. What is on disk about the log must not say more of it:
        other records will take the place of those that go."""
        self.before_roll: Callable[[], None] = _nobody_notes
        """Called before a segment is added. OSError if it must not be."""

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        if not self._closed:
            self.on_io_error(error)
        return self._described(what, error)

    # -- what it holds

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @property
    def needs_flush(self) -> bool:
        """Is there anything that `flush` would make durable?"""
        return self._next_offset > self.recovery_point or self._epochs_changed or bool(self._unsynced)

    @property
    def is_unsettled(self) -> bool:
        """Whether the files have yet to follow a cut, before anything is appended."""
        return self._before_append is not None

    def update_settings(self, settings: TopicSettings, active: Segment | None = None) -> None:
        self._settings = settings
        for segment in self._segments:
            segment.index_interval = settings.index_interval_bytes
        self._set_active(active or self._active)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A leader's epoch begins; the checkpoint is written with the next flush."""
        if self.epochs.assign(leader_epoch, start_offset):
            self._epochs_changed = True
        self._latest_epoch = self.epochs.latest

    # -- rolling

    def _set_active(self, segment: Segment) -> None:
        self._active = segment
        self._rule = RollRule(segment, self._settings, str(self.topic_partition))

    def roll(self, now_ms: int) -> None:
        """Close the active segment, unless it is empty."""
        if self._active.size:
            self._roll(self._next_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """KafkaError leaves the log as it was."""
        if self._before_append is not None:
            self._before_append()
        old = self._active
        try:
            old.cut_failed_writes()
            self.before_roll()
            new = Segment.create(
                self._files,
                self.directory,
                base_offset,
                index_interval=self._settings.index_interval_bytes,
                now_ms=now_ms,
            )
            if not old.size:  # its base is too low for what comes, and nothing is in it
                old.close()
                self._remove_files(old)
        except OSError as error:
            raise self._storage_error("cannot begin a new segment", error) from error
        self._unsynced.add_directory(self.directory)
        if old.size:
            old.seal()
            self._unsynced.add_existing(old.paths)
            self._segments.append(new)
        else:
            self._segments.replace([old], [new])
        self._set_active(new)
        self._next_offset = base_offset
        self._snapshot_producers(base_offset)
        self._snapshots.prune(self.recovery_point)

    def _snapshot_producers(self, offset: int) -> None:
        """Leave the producers on disk as of `offset`, the end of the log."""
        if self._before_append is not None:
            return  # they may know of what is to be cut
        if self._snapshots.write(offset, self.producers.entries):
            self._snapshot_position = self._active.size
            self._unsynced.add(self._snapshots.path(offset))
            self._unsynced.add_directory(self.directory)

    # -- durability

    def flush(self) -> int:
        """Make everything durable that was appended when this began; the offset up to which that is so.

        Runs on any thread, one flush of a log at a time. Then the event loop calls `flushed` with the result. NoRoom
        may be tried again; any other failure is final.
        """
        self._cut_during_flush = _NEVER
        adoptions, directory, unsynced = self._adoptions, self.directory, self._unsynced
        end = self._next_offset
        active = self._active
        try:
            if end > self.recovery_point:
                sync_file(self._files, active.path)
            if self._epochs_changed:
                self._epochs_changed = False
                try:
                    path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
                    write_epoch_checkpoint(self._files, path, tuple(self.epochs.entries))
                except BaseException as error:
                    self._epochs_changed = True
                    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                        raise NoRoom(f"{self.topic_partition} cannot be synced: {error}") from error
                    raise
                # Noted after the change: the event loop may sync the directory at any moment, and take the note off.
                unsynced.add_directory(directory)
            unsynced.sync()
        except (OSError, NoRoom) as error:
            if adoptions != self._adoptions:
                return self._flushed_elsewhere()
            if isinstance(error, NoRoom):
                raise
            raise self._storage_error("cannot be synced", error) from error
        return end if adoptions == self._adoptions else self._flushed_elsewhere()

    def _flushed_elsewhere(self) -> int:
        """The log went on in another directory meanwhile. Whatever became of the old files proves nothing."""
        self._epochs_changed = True
        return self.recovery_point

    def flushed(self, offset: int) -> None:
        """`flush` returned `offset`. What was cut meanwhile, and written anew, is not what was synced."""
        self.recovery_point = max(self.recovery_point, min(offset, self._cut_during_flush, self._next_offset))
        if self._active.size - self._snapshot_position > _BYTES_BETWEEN_SNAPSHOTS:
            self._snapshot_producers(self._next_offset)
            self._snapshots.prune(self.recovery_point)

    def close(self, clean: bool = True) -> None:
        """After a clean close the next `open` has nothing to check. One that is not clean only lets the files go."""
        if self._closed:
            return
        if clean:
            self._settle()
        if clean and (self.needs_flush or self._snapshots.latest != self._next_offset):
            if self._active.size:
                self._active.seal()
            else:
                self._active.write_indexes()
            self._unsynced.add_existing(self._active.paths)
            self._snapshot_producers(self._next_offset)
            self._snapshots.prune(self._next_offset)
            self._unsynced.add_directory(self.directory)
            self.flushed(self.flush())
        self._closed = True
        for segment in self._segments:
            segment.close()
            for path in segment.paths:
                self._handles.forget(path)

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
            if self.epochs.truncate_from_start(offset):
                self._epochs_changed = True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop the segments that retention no longer wants, some at a time. Their files get the suffix `.deleted`, and
        the paths are returned: the caller removes them off the event loop, after `file.delete.delay.ms`, and asks
        again soon."""
        if self._before_append is not None:
            self._before_append()
        count, reason = deletable(
            self._segments.copy(),
            self._settings,
            log_start_offset=self.log_start_offset,
            log_end_offset=self._next_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not count:
            return []
        count = min(count, _SEGMENTS_DELETED_AT_ONCE)
        if count == len(self._segments):
            self._roll(self._next_offset, now_ms)
        removed = self._segments.copy()[:count]
        logger.info(
            "%s: deleting %d segments below %d: %s", self.directory, count, self._segments[count].base_offset, reason
        )
        try:
            # The end offset lives on in the name of the newest segment, and the producers in the snapshot at the new
            # front of the log: they must be durable before the others go.
            sync_file(self._files, self._snapshots.path(self._segments[count].base_offset))
            self._unsynced.sync_directory(self.directory)
            self.advance_log_start(self._segments[count].base_offset)
            self._segments.remove(removed)
            return self._set_aside(removed)
        except OSError as error:
            raise self._storage_error("cannot delete segments", error) from error

    def _set_aside(self, segments: list[Segment]) -> list[str]:
        """Durably from the oldest on: were a newer one gone and an older one back after a power loss, the log would
        have a hole, and recovery could not tell which side of it to believe. And durably the log file before the
        others: it must not come back without its aborted transactions."""
        paths: list[str] = []
        for segment in segments:
            segment.close()
            for path in filter(self._files.exists, segment.paths):
                self._handles.forget(path)
                self._unsynced.forget(path)
                self._files.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
                if path == segment.path:
                    self._files.sync_directory(self.directory)
        return paths

    def truncate_to(self, offset: int) -> None:
        """Cut everything at and above `offset`: a follower that found its tail to differ from its leader's.

        The log then ends behind its last batch, which is below `offset` if that fell into a batch or a gap: what no
        batch and no segment's name says would be forgotten by a crash.
        """
        if offset >= self._next_offset:
            # A leader that was succeeded before it appended anything has left its epoch at the end.
            self._epochs_changed |= self.epochs.truncate_from_end(self._next_offset)
            self._latest_epoch = self.epochs.latest
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._check_trusted()
        try:
            self.before_cut(offset)
            segment = self._segments[self._segments.number_of(offset)]
            with OwnAccess(self._files) as access:
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
        later = self._segments.copy()[self._segments.number_of(segment.base_offset) + 1 :]
        self._segments.remove(later)
        self._cut_off += later
        self._active = segment
        self._next_offset = offset
        # Of several the lowest counts: what was written behind an earlier one is not what the flush has synced either.
        self._cut_during_flush = min(self._cut_during_flush, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._epochs_changed |= self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest
        self._before_append = self._finish_cut

    def _finish_cut(self) -> None:
        """Cut from the files what is behind the end of the log, and know again what the rest of it says. KafkaError
        leaves it to the next call; the end of the log is where it should be even so."""
        segment, end = self._active, self._next_offset
        try:
            if self._cut_off:
                for later in reversed(self._cut_off):
                    later.close()
                    self._remove_files(later)
                self._sync_cut(lambda: self._files.sync_directory(self.directory))
                self._cut_off = []
            segment.truncate_to_position(segment.size, end)
            # Synced here, before anything is appended: after a power loss the batches that were cut could otherwise
            # come back, whole and with good CRCs, among those that have taken their place.
            self._sync_cut(lambda: sync_file(self._files, segment.path))
            self._snapshots.remove_above(end)
            self._unsynced.add_directory(self.directory)
            self._unsynced.add_existing(segment.paths)
            self._reload_producers(end)
            self._set_active(segment)
        except OSError as error:
            raise self._storage_error("cannot be truncated", error) from error
        self._snapshot_position = segment.size
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
            self._files,
            self._segments.copy(),
            self.producers,
            self._snapshots,
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
        self._epochs_changed = True
        self._latest_epoch = -1
        self.producers.clear()
        self._next_offset = self.log_start_offset = self.recovery_point = offset
        self._cut_during_flush = min(self._cut_during_flush, offset)
        self._before_append = self._begin_anew
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Replace all files by those of an empty log. KafkaError leaves it to the next call."""
        try:
            old = self._segments.copy()
            for segment in (*old, *self._cut_off):
                segment.close()
                self._remove_files(segment)
            new = Segment.create(
                self._files,
                self.directory,
                self._next_offset,
                index_interval=self._settings.index_interval_bytes,
                now_ms=old[-1].created_ms,
            )
            self._segments.replace(old, [new])
            self._set_active(new)
            self._snapshots.remove_above(-1)
            self._sync_cut(lambda: self._files.sync_directory(self.directory))  # before anything is appended
        except OSError as error:
            raise self._storage_error("cannot be emptied", error) from error
        self._cut_off = []
        self._snapshot_position = 0
        self._before_append = None

    def replace_segments(self, base_offset: int, replaced: Sequence[int], now_ms: int) -> list[str]:
        """Put the compacted segment at `base_offset` in the place of the closed ones at the offsets `replaced`.

        `swap.prepare_swap` has run; the paths returned are for `swap.finish_swap`. Both are for a worker thread.
        """
        old = [segment for segment in self._segments if segment.base_offset in replaced]
        if len(old) != len(replaced) or self._active in old:
            raise ValueError(f"{self.directory}: {list(replaced)} are not closed segments of the log")
        with self._replacing:
            self._replacements += 1
            for segment in old:
                segment.is_replaced = True
                for path in segment.paths:
                    self._handles.forget(path)
                    self._unsynced.forget(path)
            try:
                paths = swap_files(self._files, self.directory, base_offset, replaced)
                names = self._files.list(self.directory)
            except OSError as error:
                raise self._storage_error("cannot replace segments", error) from error
            new = Segment.found(
                self._files,
                self.directory,
                base_offset,
                names,
                index_interval=self._settings.index_interval_bytes,
                now_ms=now_ms,
            )
            self._segments.replace(old, [new])
        return paths

    # -- repair

    def find_damage(self, segment: Segment) -> Callable[[], Damage | None]:
        """To be run on a worker thread: the first damage in a segment as it is now."""
        number = self._segments.number_of(segment.base_offset)
        is_last = number == len(self._segments) - 1
        end_offset = self._next_offset if is_last else self._segments[number + 1].base_offset
        size, cuts = segment.size, segment.cuts

        def look() -> Damage | None:
            damage = find_damage(self._files, segment, size, end_offset)
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
            file = self._files.open(segment.path)
            try:
                file.pwrite(data, damage.position)
            finally:
                file.close()
        except OSError as error:
            raise self._storage_error("cannot be repaired", error) from error
        self._unsynced.add(segment.path)
        self.repairs += 1
        return True

    # -- files

    def _remove_files(self, segment: Segment) -> None:
        for path in segment.paths:
            self._handles.forget(path)
            self._unsynced.forget(path)
            self._files.remove(path)


def _nobody_counts(error: OSError) -> None:
    """Until somebody says that he does."""


def _nobody_minds(offset: int) -> None:
    """Until somebody does."""


def _nobody_notes() -> None:
    """A log by itself has no directory that remembers it."""
