"""The files of a log: all operations on them except appending and reading.

**Durability.** The event loop never syncs appended data. It records the files and directories that changed; `flush`, on
a worker thread, syncs them with its own handles and returns the offset up to which everything is durable; `flushed`
then advances the recovery point. `flush` also checkpoints the leader epochs: an epoch that is not in the checkpoint yet
is on batches above the recovery point, where recovery finds it.

**A failed sync** is final: the kernel may have dropped the dirty pages, so the contents of the disk are unknown. The
log directory goes offline, and with the last directory the node stops. Only the next start determines the state. The
page cache may then hold, as clean, data that the disk lacks, so recovery rewrites the tail of logs that depend on syncs
(`loading.load`). A failed *write* leaves the log as it was, and the next append may succeed; but a broker with other
directories takes the directory offline then as well, unless the disk is full.

**Rolling** closes the active segment when it is full (bytes, index, offsets relative to its base) or old (by its first
batch's timestamp), and writes a snapshot of the producers at the boundary.

**Cutting** happens at the front by retention, and at the end if a follower's tail differs from its leader's. A cut is
durable before anything else happens: removed records must not reappear among the records that replace them. The end of
the log moves first, then the files are cut. If the disk refuses that, appends are refused until it has succeeded. If
the cut cannot be synced, appends are refused until the broker restarts.

**Failed appends.** Everything that can fail happens before the bytes are written (see `log`). If something fails after
the write anyway (a bug, no memory), a cut undoes the append: indexes, epochs and producers are rebuilt from the
remaining log. Only the bytes of a write that failed half-way are cut without a sync: until the next flush a power loss
can bring back whole batches of it. That is safe, because the error that the producer got never meant that they are
gone.

**Moving.** A replica that moves to another directory keeps its log object, which adopts the files of its copy
(`adopt`).
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

# Recovery must read the headers from the last producer snapshot on.
_BYTES_BETWEEN_SNAPSHOTS = 64 * 1024 * 1024
# Each deletion costs a sync on the event loop.
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
    """The state of a log, and all operations that change it except appending."""

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
        """Called by `Log.open`, which fills in the rest."""
        self.topic_partition = topic_partition
        self.producers = producers
        self.topic_id = topic_id
        self.log_start_offset = 0
        self.epochs = LeaderEpochs()
        self.recovery_point = 0
        self.recovered_bytes = 0
        self.may_lack_beginning = False
        """Whether the log begins above every offset that was known to be synced: because of retention, or because a
        power loss took the names of its first files. A replica can tell by comparing with its leader."""
        self.checkpointed_start = 0
        """The log start offset in the directory's checkpoint."""
        self.repairs = 0
        self._settings = settings
        self._disk = LogFiles(files, directory, handles)
        self._replacements = Replacements(topic_partition)
        self._next_offset = 0
        self._epochs_written = 0
        """The value of the epochs' `changes` when they were last written to the checkpoint."""
        self._cut_during_flush = _NEVER
        self._before_append: Callable[[], None] | None = None
        """Set while the files have yet to follow a cut. Cuts them, or raises KafkaError."""
        self._cut_off: list[Segment] = []
        """Segments after the end of the log whose files have yet to be removed."""
        self._is_trusted = True
        self._is_closed = False
        self.on_corruption: Callable[[], None] = _ignore
        """Called when a reader, on any thread, has found a damaged batch."""
        self.on_io_error: Callable[[OSError], None] = _ignore
        """Called when an operation other than a read has failed, on any thread, before the caller gets its KafkaError.
        Not called after the log is closed: operations that are still running then find that its files are gone."""
        self.before_cut: Callable[[int], None] = _ignore
        """Called before everything from an offset on is cut. The directory's checkpoints must not claim offsets above
        it: other records will take their place."""
        self.before_roll: Callable[[], None] = _ignore
        """Called before a segment is added; raises OSError to prevent it."""

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
        """Whether there is anything that `flush` would make durable."""
        return (
            self._next_offset > self.recovery_point
            or self._epochs_written != self.epochs.changes
            or bool(self._disk.unsynced)
        )

    @property
    def is_unsettled(self) -> bool:
        """Whether the files have yet to follow a cut, which must happen before the next append."""
        return self._before_append is not None

    def update_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        for segment in self._disk.segments:
            segment.index_interval = settings.index_interval_bytes
        self._set_active(self._active)

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Start a leader's epoch; the next flush writes the checkpoint."""
        self.epochs.assign(leader_epoch, start_offset)

    def take_epochs(self, current: StoredLog) -> None:
        """Take over the epochs of the log this is a copy of: epochs without a batch cannot be learned from the data."""
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
        """Move the end of the log to `offset`: there are no batches in between, because compaction removed them all."""
        if offset > self._next_offset:
            self._roll(offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Roll to a segment at `base_offset`. KafkaError leaves the log unchanged."""
        if self._before_append is not None:
            self._before_append()
        old, disk = self._active, self._disk
        try:
            old.cut_failed_writes()
            self.before_roll()
            new = disk.create_segment(base_offset, self._settings.index_interval_bytes, now_ms)
            if not old.size:  # it is empty, and its base is too low for the next batch
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
        """Make everything durable that was appended before the call; returns the offset up to which that holds.

        Runs on any thread, one flush per log at a time. Then the event loop calls `flushed` with the result. After
        NoRoom the flush may be repeated; any other failure is final.
        """
        self._cut_during_flush = _NEVER
        disk = self._disk
        end = self._next_offset  # read before the active segment: one closed in between is among the unsynced
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
                # Recorded after the change: the event loop may sync the directory at any moment and remove the record.
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
        """The log moved to another directory during the flush. The old files prove nothing."""
        self._epochs_written = NEVER_WRITTEN
        return self.recovery_point

    def flushed(self, offset: int) -> None:
        """`flush` returned `offset`. Data that was cut and rewritten during the flush does not count as synced."""
        self.recovery_point = max(self.recovery_point, min(offset, self._cut_during_flush, self._next_offset))
        disk = self._disk
        if self._active.size - disk.snapshot_position > _BYTES_BETWEEN_SNAPSHOTS and self._before_append is None:
            # Until a cut is finished, the producers may include records that are to be removed.
            disk.snapshot_producers(self._next_offset, self.producers.entries)
            disk.snapshots.prune(self.recovery_point)

    def close(self, clean: bool = True) -> None:
        """After a clean close the next `open` checks nothing. An unclean close only releases the files."""
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
        """Cut the files at the end of the log: after a clean stop the file sizes are trusted."""
        if self._before_append is not None:
            self._before_append()
        try:
            self._active.cut_failed_writes()
        except OSError as error:
            raise self._storage_error("cannot be closed", error) from error

    # -- removing

    @property
    def durable_log_start(self) -> int:
        """The log start offset after a power loss."""
        return min(self.log_start_offset, self.start_known_from(self.checkpointed_start))

    @property
    def has_guessed_start(self) -> bool:
        """Whether the log starts where its first file does only because earlier ones may be lost. A checkpoint must not
        say so: it would hide the records that a follower copies when it starts over."""
        return self.may_lack_beginning and self.log_start_offset == self.first_base_offset

    def start_known_from(self, checkpointed: int) -> int:
        """Where the log would start after a power loss, with this checkpoint, or later.

        The name of the first file says nothing while that is empty: a follower that has started over within a batch of
        the leader replaces it when the batch arrives.
        """
        if self._next_offset == self.log_start_offset and not self._active.size:
            return checkpointed
        return max(self.first_base_offset, checkpointed)

    def advance_log_start(self, offset: int) -> None:
        """Hide records below `offset` from readers; the next `delete_old_segments` removes their segments."""
        if offset > self._next_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: cannot start at {offset}, beyond its end {self._next_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop segments according to retention, a few at a time. Their files get the suffix `.deleted`, and their paths
        are returned: the caller removes them off the event loop, after `file.delete.delay.ms`, and calls again soon."""
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
            # The end offset survives in the name of the newest segment, and the producers in the snapshot at the new
            # front of the log: both must be durable before the old segments go.
            sync_file(disk.system, disk.snapshots.path(start))
            disk.unsynced.sync_directory(disk.directory)
            self.advance_log_start(start)
            disk.segments.remove(removed)
            return disk.set_aside(removed)
        except OSError as error:
            raise self._storage_error("cannot delete segments", error) from error

    def truncate_to(self, offset: int) -> None:
        """Cut everything at and above `offset`: for a follower whose tail differs from its leader's.

        The log then ends after its last batch, which is below `offset` if that was inside a batch or a gap: a crash
        would lose an end offset that is in no batch and no segment name.
        """
        if offset >= self._next_offset:
            # A leader that was replaced before it appended anything has left its epoch at the end.
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
        """End the log at `offset`, which is at `position` in `segment`. The files follow in `_finish_cut`."""
        segment.size = position
        segments = self._disk.segments
        later = segments.copy()[segments.number_of(segment.base_offset) + 1 :]
        segments.remove(later)
        self._cut_off += later
        self._active = segment
        self._next_offset = offset
        # The lowest of several cuts counts: data written after an earlier cut is not what the flush has synced either.
        self._cut_during_flush = min(self._cut_during_flush, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        self._before_append = self._finish_cut

    def _finish_cut(self) -> None:
        """Cut the files at the end of the log, and rebuild the state from the rest. After a KafkaError the next call
        tries again; the log itself ends at the right offset regardless."""
        segment, end, disk = self._active, self._next_offset, self._disk
        try:
            if self._cut_off:
                for later in reversed(self._cut_off):
                    disk.remove(later)
                self._sync_cut(lambda: disk.system.sync_directory(disk.directory))
                self._cut_off = []
            segment.truncate_to_position(segment.size, end)
            # Synced here, before any append: after a power loss the removed batches could otherwise reappear, complete
            # and with good CRCs, among those that replaced them.
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
        """A failed sync is final, as everywhere: the removed data may reappear, however often the sync is repeated."""
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
        """Undo an append that failed after its write: move the end of the log back."""
        logger.error("%s: an append failed behind its write; the log ends at %d as before", self.directory, offset)
        self._end_at(segment, position, offset)
        with contextlib.suppress(KafkaError):  # already logged; appends wait until it has succeeded
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
        """Remove everything; the next record gets `offset`."""
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
        """Replace all files by those of an empty log. After a KafkaError the next call tries again."""
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

    # -- replacing files

    def replace_segments(self, base_offset: int, replaced: Sequence[int], now_ms: int) -> list[str]:
        """Replace the closed segments at the offsets `replaced` with the compacted segment at `base_offset`.

        `swap.prepare_swap` has run; the returned paths are for `swap.finish_swap`. Both run on a worker thread.
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
        """Continue with the files of `future`, a copy of this log; they have been renamed and are now in `directory`.

        The copy holds exactly what this log does, and is synced at least as far. It is not used afterwards. Code that
        holds a reference to this log (an append, a cold read, a coordinator that loads) needs no change: the log keeps
        its producers and settings. Reads on worker threads start over; a flush in progress proves nothing about the new
        files.
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
            # In this order: a flush that begins meanwhile sees only the new files, or detects that it proves nothing.
            self._disk = future._disk
            self._cut_during_flush = self.recovery_point
        self.update_settings(self._settings)

    # -- repair

    def find_damage(self, segment: Segment) -> Callable[[], Damage | None]:
        """Return a function, for a worker thread, that finds the first damage in a segment as it is now."""
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
        """False if retention, compaction or a truncation has changed the segment. Batches appended since a truncation
        are not those that were checked, and may be good."""
        return segment in self.segments and damage.cuts == segment.cuts and damage.end <= segment.size

    def restore(self, segment: Segment, damage: Damage, data: bytes) -> bool:
        """Write the right bytes in place of damaged ones; durable after the next flush. False if the damage no longer
        exists."""
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
    """The default until the code that opened the log sets a callback."""
