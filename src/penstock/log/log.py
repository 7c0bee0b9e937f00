"""The log of one partition: segments end to end, the last one open for appending.

Everything but `flush` and `read(cached_only=False)` belongs to the event loop's thread.

**Appending** assigns the next offsets, patches them into the batch and writes it with one `pwrite` at the end of the
active segment. Only when that has returned do the end offset, the indexes, the leader epochs and the producers change.
A write that fails leaves the log as it was, and its bytes, if any got to the file, are cut or overwritten.

**Durability.** Nothing is synced on the event loop. Files and directories that changed are noted; `flush`, on a worker
thread, syncs them with handles of its own and returns the offset up to which everything is safe; `flushed` then moves
the recovery point. The leader epochs are checkpointed by `flush`, too: what is not in the checkpoint yet is stamped on
batches above the recovery point, where recovery finds it.

**Rolling** closes the active segment when it is full (bytes, index, offsets relative to its base) or old (by its first
batch's timestamp), and leaves a snapshot of the producers at the boundary.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from penstock.io.files import Buffer, FileSystem
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, write_epoch_checkpoint
from penstock.log.damage import Damage, find_damage
from penstock.log.handles import Handles, OwnAccess
from penstock.log.loading import load, load_producers
from penstock.log.partition_metadata import PARTITION_METADATA, settle_topic_id
from penstock.log.producer_snapshot import ProducerSnapshots
from penstock.log.reader import ReadableLog
from penstock.log.recovery import replay_batch
from penstock.log.replicated import replicated_batches
from penstock.log.retention import deletable
from penstock.log.rolling import RollRule
from penstock.log.segment import (
    DELETED_SUFFIX,
    MAX_RELATIVE_OFFSET,
    Segment,
)
from penstock.log.segments import Segments, Slice, TimestampedOffset
from penstock.log.swap import swap_files
from penstock.log.unsynced import Unsynced, sync_file
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.records.batch import (
    CONTROL,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    BatchHeader,
    CorruptBatch,
    read_header,
    set_base_offset,
)
from penstock.records.control import read_transaction_marker
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.producers import DAY_MS, ProducerStates
from penstock.settings.topic import TopicSettings

__all__ = ["Appended", "Log", "NoRoom", "Slice", "TimestampedOffset"]

logger = logging.getLogger("penstock.log")

_NEVER = 1 << 62

# Recovery has to read the headers from the last snapshot of the producers on.
_BYTES_BETWEEN_SNAPSHOTS = 64 * 1024 * 1024
# Each costs a sync on the event loop.
_SEGMENTS_DELETED_AT_ONCE = 16


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 if the records keep their producer's timestamps."""
    log_start_offset: int
    duplicate: bool
    """The batch had been appended before; these are its offsets."""


class NoRoom(KafkaError):
    """The disk is full. Nothing was lost; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class Log(ReadableLog):
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
        """For `open`, which fills in the rest."""
        super().__init__(files, directory, topic_partition, handles, producers)
        self.topic_id = topic_id
        self.epochs = LeaderEpochs()
        self.recovery_point = 0
        self.recovered_bytes = 0
        self.may_lack_beginning = False
        """It begins above what was ever known to be synced: because of retention, or a power loss took the names of its
        first files. Who has a leader to compare with can tell."""
        self.repairs = 0
        self._settings = settings
        self._latest_epoch = -1
        self._epochs_changed = False
        self._snapshots = ProducerSnapshots(files, directory, ())
        self._snapshot_position = 0
        self._unsynced = Unsynced(files)
        self._cut_during_flush = _NEVER
        self._closed = False
        self.before_cut: Callable[[int], None] = _nobody_minds
        """Called before everything from an offset on is cut. What is on disk about the log must not say more of it:
        other records will take the place of those that go."""

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        settings: TopicSettings,
        *,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int,
        topic_id: Uuid | None = None,
        producer_expiration_ms: int = DAY_MS,
        handles: Handles | None = None,
    ) -> Log:
        """The log in `directory`, which is made if it is missing; recovered unless the last stop was clean."""
        producers = ProducerStates(topic_partition, producer_expiration_ms)
        log = cls(files, directory, topic_partition, settings, handles or Handles(files), producers, topic_id)
        try:
            if not files.exists(directory):
                files.make_directories(directory)
                log._unsynced.add_directory(os.path.dirname(directory) or ".")
            log._load(clean_shutdown, recovery_point, log_start_offset, now_ms)
        except OSError as error:
            raise log._storage_error("cannot be opened", error) from error
        return log

    def _load(self, clean_shutdown: bool, recovery_point: int, log_start_offset: int, now_ms: int) -> None:
        self.topic_id, written = settle_topic_id(self._files, self.directory, self.topic_id)
        if written:
            self._unsynced.add(os.path.join(self.directory, PARTITION_METADATA))
            self._unsynced.add_directory(self.directory)
        loaded = load(
            self._files,
            self.directory,
            self.producers,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval=self._settings.index_interval_bytes,
            gaps_are_normal="compact" in self._settings.cleanup_policy,
            now_ms=now_ms,
        )
        self.epochs = loaded.epochs
        self._latest_epoch = loaded.epochs.latest
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.recovered_bytes = loaded.recovered_bytes
        self.may_lack_beginning = not clean_shutdown and loaded.segments[0].base_offset > max(recovery_point, 0)
        self._segments = Segments(self._files, loaded.segments)
        self._next_offset = loaded.log_end_offset
        self._snapshots = loaded.snapshots
        active = loaded.segments[-1]
        self._set_active(active)
        self._snapshot_position = active.size
        if not clean_shutdown or active.file is not None or loaded.recovery_point < loaded.log_end_offset:
            # What was made again, or for the first time, or by a process that was killed, may not be on the disk.
            self._epochs_changed = bool(loaded.epochs.entries)
            self._unsynced.add_directory(self.directory)
            self._unsynced.add_directory(os.path.dirname(self.directory) or ".")
            for segment, following in zip_longest(loaded.segments, loaded.segments[1:]):
                if following is None or following.base_offset >= loaded.recovery_point:
                    self._unsynced.add_existing(segment.paths)

    # -- what it holds

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @property
    def needs_flush(self) -> bool:
        """Is there anything that `flush` would make durable?"""
        return self._next_offset > self.recovery_point or self._epochs_changed or bool(self._unsynced)

    def update_settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        for segment in self._segments:
            segment.index_interval = settings.index_interval_bytes
        self._set_active(self._active)

    # -- appending

    def append_as_leader(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        *,
        transaction_version: int = 0,
    ) -> Appended:
        """Append one batch that has been validated, patching its offsets and epoch in place.

        `transaction_version` is that of the coordinator that writes a transaction marker.
        """
        producer_id = header.producer_id
        if producer_id >= 0:
            if header.attributes & CONTROL:
                return self._append_marker(batch, header, leader_epoch, now_ms, transaction_version)
            earlier = self.producers.check(header)
            if earlier is not None:
                _, _, first, last, timestamp = earlier
                if self._settings.message_timestamp_type != "LogAppendTime":
                    timestamp = -1
                return Appended(first, last, timestamp, self.log_start_offset, True)
        base_offset = self._next_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        self._write(
            batch, header.length + LENGTH_OVERHEAD, base_offset, last_offset, max_timestamp, leader_epoch, now_ms
        )
        if producer_id >= 0:
            self.producers.append(header, base_offset, now_ms)
        log_append_time = max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, log_append_time, self.log_start_offset, False)

    def append_run(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int
    ) -> int | None:
        """Append validated batches that have no producer ids with one write; the first one's offset.

        None where they must be appended one by one, because something may change between them: the segment, the epoch.
        Their offsets may have been patched then.
        """
        segment = self._active
        rule = self._rule
        first = offset = self._next_offset
        position = segment.size
        if position == 0 or leader_epoch != self._latest_epoch:
            return None
        for batch, header in batches:
            _, length, _, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
            position += length + LENGTH_OVERHEAD
            if (
                position > rule.unquestioned_bytes
                or offset + last_offset_delta > rule.max_offset
                or (max_timestamp if rule.by_timestamp else now_ms) > rule.after_ms
            ):
                return None
            set_base_offset(batch, 0, offset, leader_epoch)
            offset += last_offset_delta + 1
        try:
            self._next_offset = segment.append_run(batches, first)
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
        return first

    def _append_marker(
        self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int, version: int
    ) -> Appended:
        marker = read_transaction_marker(batch, 0, header)
        if marker is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a control batch with a producer id is no transaction marker")
        self.producers.check_marker(header, marker.coordinator_epoch, version)
        base_offset = self._next_offset
        last_offset = base_offset + header.last_offset_delta
        self._write(batch, header.size, base_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)
        self._replay(batch, 0, read_header(batch), now_ms)
        return Appended(base_offset, last_offset, -1, self.log_start_offset, False)

    def _write(
        self,
        batch: memoryview | bytearray,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        segment = self._active
        rule = self._rule
        if (
            segment.size + size > rule.unquestioned_bytes
            or last_offset > rule.max_offset
            or (max_timestamp if rule.by_timestamp else now_ms) > rule.after_ms
        ):
            if size > rule.max_bytes:
                raise KafkaError(
                    ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes exceeds segment.bytes={rule.max_bytes}"
                )
            if rule.demands(size, last_offset, max_timestamp, now_ms):
                self._roll(base_offset, now_ms)
                segment = self._active
        first = segment.size == 0
        set_base_offset(batch, 0, base_offset, leader_epoch)
        try:
            segment.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
        self._next_offset = last_offset + 1
        if leader_epoch != self._latest_epoch and leader_epoch >= 0:
            self.assign_epoch(leader_epoch, base_offset)
        if first:
            self._set_active(segment)

    def append_as_follower(self, data: Buffer, now_ms: int = -1, *, max_leader_epoch: int | None = None) -> None:
        """Append batches that have offsets and epochs already: replicated, or built by the metadata quorum. With
        `max_leader_epoch`, those of a later epoch are left out, and what follows them."""
        view = memoryview(data)
        run: list[BatchHeader] = []
        run_start = end = 0
        for position, header in replicated_batches(view, self._next_offset, self.topic_partition):
            if max_leader_epoch is not None and header.leader_epoch > max_leader_epoch:
                break
            if run and not self._fits(run[0], position - run_start, header, now_ms):
                self._write_as_given(view[run_start:position], run, now_ms)
                run, run_start = [], position
            run.append(header)
            end = position + header.size
        if run:
            self._write_as_given(view[run_start:end], run, now_ms)

    def _fits(self, first: BatchHeader, written_before: int, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch may be written together with those before it: nothing changes between them."""
        rule = self._rule
        return (
            header.leader_epoch == first.leader_epoch
            and self._active.size > 0
            and self._active.size + written_before + header.size <= rule.unquestioned_bytes
            and header.last_offset <= rule.max_offset
            and (header.max_timestamp if rule.by_timestamp else now_ms) <= rule.after_ms
        )

    def _write_as_given(self, data: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
        """One batch, or several that fit."""
        first, last = headers[0], headers[-1]
        if self._rule.demands(first.size, first.last_offset, first.max_timestamp, now_ms):
            # Where the log ends, even if this batch begins later: between segments recovery takes a gap for a loss.
            # Only an offset too far away for a segment that begins there needs one of its own.
            near = first.last_offset - self._next_offset <= MAX_RELATIVE_OFFSET
            self._roll(self._next_offset if near else first.base_offset, now_ms)
        segment = self._active
        was_empty = segment.size == 0
        try:
            segment.append_given(data, headers)
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
        self._next_offset = last.last_offset + 1
        if first.leader_epoch >= 0 and first.leader_epoch != self._latest_epoch:
            self.assign_epoch(first.leader_epoch, first.base_offset)
        if was_empty:
            self._set_active(segment)
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                self._replay(data, position, header, now_ms if now_ms >= 0 else header.max_timestamp)
            position += header.size

    def _replay(self, batch: Buffer, position: int, header: BatchHeader, now_ms: int) -> None:
        aborted = len(self._active.transactions)
        try:
            replay_batch(self._active, self.producers, batch, position, header, now_ms)
        except OSError as error:
            raise self._storage_error("has no room for its transaction index", error) from error
        if len(self._active.transactions) != aborted:
            self._unsynced.add(self._active.transactions.path)
            self._unsynced.add_directory(self.directory)

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
        old = self._active
        try:
            new = Segment.create(
                self._files,
                self.directory,
                base_offset,
                index_interval=self._settings.index_interval_bytes,
                now_ms=now_ms,
            )
        except OSError as error:
            raise self._storage_error("cannot begin a new segment", error) from error
        self._unsynced.add_directory(self.directory)
        if old.size:
            old.seal()
            self._unsynced.add_existing(old.paths)
            self._segments.append(new)
        else:  # its base is too low for what comes, and nothing is in it
            old.close()
            self._segments.replace([old], [new])
            self._remove_files(old)
        self._set_active(new)
        self._next_offset = base_offset
        self._snapshot_producers(base_offset)
        self._snapshots.prune(self.recovery_point)

    def _snapshot_producers(self, offset: int) -> None:
        """Leave the producers on disk as of `offset`, the end of the log."""
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
        end = self._next_offset
        active = self._active
        try:
            if end > self.recovery_point:
                sync_file(self._files, active.path)
            if self._epochs_changed:
                self._epochs_changed = False
                try:
                    path = os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT)
                    write_epoch_checkpoint(self._files, path, tuple(self.epochs.entries))
                except BaseException as error:
                    self._epochs_changed = True
                    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                        raise NoRoom(f"{self.topic_partition} cannot be synced: {error}") from error
                    raise
                # Noted after the change: the event loop may sync the directory at any moment, and take the note off.
                self._unsynced.add_directory(self.directory)
            self._unsynced.sync()
        except OSError as error:
            raise self._storage_error("cannot be synced", error) from error
        return end

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

    # -- removing

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
        try:
            self.before_cut(offset)
            self._segments.forget_boundaries()
            number = self._segments.number_of(offset)
            later = self._segments.copy()[number + 1 :]
            self._segments.remove(later)
            for segment in reversed(later):
                segment.close()
                self._remove_files(segment)
            segment = self._segments[number]
            with OwnAccess(self._files) as access:
                position, _ = segment.find(offset, access)
                segment.truncate_to_position(position, offset)
                end = segment.next_offset(access)
            if end <= self.log_start_offset:
                self.truncate_fully_and_start_at(offset)
                return
            # Synced here, before anything is appended: after a power loss the batches that were cut could otherwise
            # come back, whole and with good CRCs, among those that have taken their place.
            sync_file(self._files, segment.path)
            if later:
                self._files.sync_directory(self.directory)
            self._unsynced.add_existing(segment.paths)
            self._set_end(end)
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._storage_error("cannot be truncated", error) from error

    def _set_end(self, offset: int) -> None:
        """After a truncation."""
        self._next_offset = offset
        self._cut_during_flush = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._set_active(self._segments[len(self._segments) - 1])
        self._epochs_changed |= self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest
        self._snapshots.remove_above(offset)
        self._unsynced.add_directory(self.directory)
        self._snapshot_position = self._active.size
        self._reload_producers(offset)

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
        try:
            self.before_cut(offset)
            old = self._segments.copy()
            for segment in old:
                segment.close()
                self._remove_files(segment)
            new = Segment.create(
                self._files,
                self.directory,
                offset,
                index_interval=self._settings.index_interval_bytes,
                now_ms=old[-1].created_ms,
            )
            self._segments.replace(old, [new])
            self._snapshots.remove_above(-1)
            self._snapshot_position = 0
            self._files.sync_directory(self.directory)  # as with any truncation, before anything is appended
            self.epochs.clear()
            self._epochs_changed = True
            self._latest_epoch = -1
            self.producers.clear()
            self._next_offset = self.log_start_offset = self.recovery_point = offset
            self._cut_during_flush = offset
            self._set_active(new)
        except OSError as error:
            raise self._storage_error("cannot be emptied", error) from error

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
        size = segment.size
        return lambda: find_damage(self._files, segment, size, end_offset)

    def restore(self, segment: Segment, damage: Damage, data: bytes) -> bool:
        """Write what belongs there in the place of damaged bytes; it is durable after the next flush. False if the
        segment is not what it was: retention, compaction or a truncation was faster."""
        if segment not in self.segments or damage.end > segment.size:
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


def _nobody_minds(offset: int) -> None:
    """Until somebody does."""
