"""The log of one partition: a sequence of segments, the last of which is open for appending.

The event loop's thread owns the log. Only `flush`, `read`, `read_committed` and the searches by timestamp are safe
on any thread.

An append assigns the next offsets, patches them into the batch and writes it with one `pwrite` at the end of the active
segment. The end offset, the indexes, the leader epochs and the producers change only after the write has returned. On
the fast path of a produce request the patched batch lies in the receive buffer: base offset and leader epoch are
written into the frame in place, and the kernel copies it once. A failed write leaves the log as it was; the bytes that
reached the file, if any, are cut off or overwritten. The producer gets KAFKA_STORAGE_ERROR, and the next append may
succeed.

An append is applied completely or not at all. Everything that may fail happens before the write: creating a new
segment, and the entry in the transaction index for a marker that aborts a transaction. Without that entry readers would
see aborted records: a disk without free blocks may accept the marker and then refuse the entry. The entry counts only
once the marker is in the log. After the write only memory changes; if that fails, the append is undone (`stored`).

A read finds the batch that holds an offset (segment by bisection, position by index, then a few headers) and returns
whole batches below a maximum offset. On the event loop it never waits for the disk: data that is not in the page cache
is read again on a worker thread, while the loop continues to append, roll and delete.

`stored` has all other operations on the files, and `log_files` their location. `Log` inherits from `StoredLog` and does
not contain one: every append reads and changes the end of the log, its active segment, epochs, producers and rolling
rule, and so do rolling, cutting and moving. As an object of its own, either half would need all of that state of the
other, and each append would pay for the attributes in between, on the most frequent path of a broker. The state is one;
the two files are the two kinds of operations on it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from penstock.io.files import Buffer, FileSystem
from penstock.log.handles import Handles, NotCached, OwnAccess
from penstock.log.index import CorruptIndex
from penstock.log.loading import load
from penstock.log.partition_metadata import PARTITION_METADATA, settle_topic_id
from penstock.log.recovery import replay_batch
from penstock.log.replicated import aborts_transaction, replicated_batches
from penstock.log.segment import MAX_RELATIVE_OFFSET, Written
from penstock.log.segments import LogEnd, Segments, Slice, TimestampedOffset
from penstock.log.stored import NEVER_WRITTEN, NoRoom, StoredLog
from penstock.log.transaction_index import AbortedTransaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import (
    CONTROL,
    CRC_START,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MIN_LENGTH,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    read_header,
    set_base_offset,
)
from penstock.records.control import read_transaction_marker
from penstock.replication.producers import DAY_MS, ProducerStates
from penstock.replication.verification import Verification
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.log")

Found = TypeVar("Found")

# The maximum decompressed size of a batch in a search; callers that know socket.request.max.bytes pass that.
DECOMPRESSED_BYTES_MAX: Final = 100 * 1024 * 1024

__all__ = ["Appended", "Log", "NoRoom", "Slice", "TimestampedOffset"]


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 if the records keep the timestamps of their producer."""
    log_start_offset: int
    duplicate: bool
    """Whether the batch had been appended before; these are its offsets."""


@owned_by_loop(
    anywhere=(
        "read",
        "read_committed",
        "_nothing_at",
        "_read_waiting",
        "offset_for_timestamp",
        "offset_of_max_timestamp",
        "_undisturbed",
    ),
    shared=("_cut_during_flush", "_epochs_written"),  # by `flush`
)
class Log(StoredLog):
    """Appending and reading; the rest is inherited (see the module's docstring)."""

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        settings: TopicSettings,
        *,
        clean_shutdown: bool,
        recovery_point: int | None,
        log_start_offset: int,
        now_ms: int,
        topic_id: Uuid | None = None,
        producer_expiration_ms: int = DAY_MS,
        handles: Handles | None = None,
    ) -> Log:
        """Open the log in `directory`, which is created if it is missing; recover it unless the last stop was clean.

        `recovery_point` is None if none was ever recorded: the files are new, or were copied from elsewhere.
        """
        producers = ProducerStates(topic_partition, producer_expiration_ms)
        log = cls(files, directory, topic_partition, settings, handles or Handles(files), producers, topic_id)
        try:
            if not files.exists(directory):
                files.make_directories(directory)
                log._disk.unsynced.add_directory(os.path.dirname(directory) or ".")
            log._load(clean_shutdown, recovery_point, log_start_offset, now_ms)
        except OSError as error:
            raise log._storage_error("cannot be opened", error) from error
        return log

    def _load(self, clean_shutdown: bool, recovery_point: int | None, log_start_offset: int, now_ms: int) -> None:
        is_foreign, recovery_point = recovery_point is None, recovery_point or 0
        disk, unsynced = self._disk, self._disk.unsynced
        self.topic_id, written = settle_topic_id(disk.system, disk.directory, self.topic_id)
        if written:
            unsynced.add(os.path.join(disk.directory, PARTITION_METADATA))
            unsynced.add_directory(disk.directory)
        loaded = load(
            disk.system,
            disk.directory,
            self.producers,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval=self._settings.index_interval_bytes,
            gaps_are_normal=is_foreign and "compact" in self._settings.cleanup_policy,
            rewrites=self._settings.flush_messages == 1,
            now_ms=now_ms,
        )
        self.epochs = loaded.epochs
        self._epochs_written = loaded.epochs.changes
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.recovered_bytes = loaded.recovered_bytes
        self.may_lack_beginning = not clean_shutdown and loaded.segments[0].base_offset > max(recovery_point, 0)
        disk.segments = Segments(disk.system, loaded.segments)
        disk.snapshots = loaded.snapshots
        self._next_offset = loaded.log_end_offset
        active = loaded.segments[-1]
        self._set_active(active)
        disk.snapshot_position = active.size
        if not clean_shutdown or active.file is not None or loaded.recovery_point < loaded.log_end_offset:
            # Data that was rebuilt, created now, or written by a killed process may not be on disk.
            if loaded.epochs.entries:
                self._epochs_written = NEVER_WRITTEN
            unsynced.add_directory(disk.directory)
            unsynced.add_directory(os.path.dirname(disk.directory) or ".")
            for segment, following in zip_longest(loaded.segments, loaded.segments[1:]):
                if following is None or following.base_offset >= loaded.recovery_point:
                    unsynced.add_existing(segment.paths)

    # -- appending

    def append_as_leader(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        *,
        transaction_version: int = 0,
        verification: Verification | None = None,
    ) -> Appended:
        """Append one validated batch, patching its offsets and epoch in place.

        `transaction_version` is that of the coordinator that writes a transaction marker. `verification` proves that
        the batch may open a transaction in this partition. The log refuses a verification that a marker has voided
        since.
        """
        producer_id = header.producer_id
        try:
            if self._before_append is not None:
                self._before_append()
            if producer_id >= 0:
                if header.attributes & CONTROL:
                    return self._append_marker(batch, header, leader_epoch, now_ms, transaction_version)
                if header.attributes & TRANSACTIONAL:
                    self.producers.check_verified(header, verification)
                earlier = self.producers.check(header)
                if earlier is not None:
                    _, _, first, last, timestamp = earlier
                    if self._settings.message_timestamp_type != "LogAppendTime":
                        timestamp = -1
                    return Appended(first, last, timestamp, self.log_start_offset, True)
            base_offset = self._next_offset
            last_offset = base_offset + header.last_offset_delta
            max_timestamp = header.max_timestamp
            size = header.length + LENGTH_OVERHEAD
            self._write(batch, size, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.producers.refuse(header, error.code, now_ms)
            raise
        if producer_id >= 0:
            try:
                self.producers.append(header, base_offset, now_ms)
            except BaseException:
                self._take_back(self._active, self._active.size - size, base_offset)
                raise
        log_append_time = max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, log_append_time, self.log_start_offset, False)

    def append_run(
        self, batches: Sequence[tuple[memoryview, BatchHeader]], leader_epoch: int, now_ms: int
    ) -> int | None:
        """Append validated batches without producer ids with one write; returns the first offset.

        None if they must be appended one by one, because the segment or the epoch may change between them. Their
        offsets may already be patched then.
        """
        segment = self._active
        rule = self._rule
        first = offset = self._next_offset
        size = position = segment.size
        if position == 0 or leader_epoch != self.epochs.latest or self._before_append is not None:
            return None
        data: list[Buffer] = []
        written = []
        for batch, header in batches:
            _, length, _, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
            length += LENGTH_OVERHEAD
            position += length
            last_offset = offset + last_offset_delta
            if (
                position > rule.unquestioned_bytes
                or last_offset > rule.max_offset
                or (max_timestamp if rule.by_timestamp else now_ms) > rule.after_ms
            ):
                return None
            set_base_offset(batch, 0, offset, leader_epoch)
            data.append(batch)
            written.append((length, last_offset, max_timestamp))
            offset = last_offset + 1
        try:
            segment.append_run(data, written)
            self._next_offset = offset
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
        except BaseException:
            self._take_back(segment, size, first)
            raise
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
        size = header.size
        if self._rule.demands(size, last_offset, header.max_timestamp, now_ms):
            self._roll(base_offset, now_ms)
        if not marker.committed:
            self._prepare_abort(header.producer_id, last_offset)
        try:
            self._write(batch, size, base_offset, last_offset, header.max_timestamp, leader_epoch, now_ms)
        except BaseException:
            self._drop_prepared_abort()
            raise
        try:
            self._replay(batch, 0, read_header(batch), now_ms)
        except BaseException:
            self._take_back(self._active, self._active.size - size, base_offset)
            raise
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
        position = segment.size
        set_base_offset(batch, 0, base_offset, leader_epoch)
        try:
            segment.append(batch, size, last_offset, max_timestamp)
            if leader_epoch != self.epochs.latest and leader_epoch >= 0:
                self.assign_epoch(leader_epoch, base_offset)
            self._next_offset = last_offset + 1  # after the epoch: `flush`, on its thread, reads this first
            if position == 0:
                self._set_active(segment)
        except OSError as error:  # from the write: the code after it does not touch the disk
            raise self._storage_error("cannot be written", error) from error
        except BaseException:
            self._take_back(segment, position, base_offset)
            raise

    def append_preassigned(self, data: Buffer, now_ms: int = -1, *, max_leader_epoch: int | None = None) -> None:
        """Append batches that already have offsets and epochs: replicated, or built by the metadata quorum. With
        `max_leader_epoch`, the first batch of a later epoch and everything after it is left out."""
        view = memoryview(data)
        if self._append_preassigned_run(view, now_ms, max_leader_epoch):
            return
        run: list[BatchHeader] = []
        run_start = end = 0
        for position, header in replicated_batches(view, self._next_offset, self.topic_partition):
            if max_leader_epoch is not None and header.leader_epoch > max_leader_epoch:
                break
            aborts = header.attributes & CONTROL and aborts_transaction(view, position, header)
            if run and (aborts or not self._fits(run[0], position - run_start, header, now_ms)):
                self._write_preassigned(view[run_start:position], run, now_ms)
                run, run_start = [], position
            run.append(header)
            end = position + header.size
            if aborts:  # written alone: its index entry depends on all batches before it
                self._write_preassigned(view[run_start:end], run, now_ms, aborts=True)
                run, run_start = [], end
        if run:
            self._write_preassigned(view[run_start:end], run, now_ms)

    def _append_preassigned_run(self, view: memoryview, now_ms: int, max_leader_epoch: int | None) -> bool:
        """Append whole batches of the log's own epoch with one write, if nothing else changes with any of them.

        False if something else does, or if one of them is bad; nothing has changed then.
        """
        segment, rule, epoch = self._active, self._rule, self.epochs.latest
        start = segment.size
        if start == 0 or self._before_append is not None or (max_leader_epoch is not None and epoch > max_leader_epoch):
            return False
        end = len(view)
        position, next_offset = 0, self._next_offset
        written: list[Written] = []
        produced: list[tuple[int, BatchHeader]] = []
        try:
            while position < end:
                header = read_header(view, position)
                (
                    base_offset,
                    length,
                    leader_epoch,
                    magic,
                    crc,
                    attributes,
                    delta,
                    _,
                    max_timestamp,
                    producer,
                    _,
                    _,
                    _,
                ) = header
                size = length + LENGTH_OVERHEAD
                following = position + size
                last_offset = base_offset + delta
                if (
                    magic != MAGIC
                    or length < MIN_LENGTH
                    or following > end
                    or leader_epoch != epoch
                    or base_offset < next_offset
                    or delta < 0
                    or attributes & CONTROL
                    or start + following > rule.unquestioned_bytes
                    or last_offset > rule.max_offset
                    or (max_timestamp if rule.by_timestamp else now_ms) > rule.after_ms
                    or crc32c(view[position + CRC_START : following]) != crc
                ):
                    return False
                if producer >= 0:
                    produced.append((position, header))
                written.append((size, last_offset, max_timestamp))
                position, next_offset = following, last_offset + 1
        except CorruptBatch:
            return False
        before = self._next_offset
        try:
            segment.append_run(view, written)
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
        except BaseException:
            self._take_back(segment, start, before)
            raise
        try:
            self._next_offset = next_offset
            for position, header in produced:
                self._replay(view, position, header, now_ms if now_ms >= 0 else header.max_timestamp)
        except BaseException:
            self._take_back(segment, start, before)
            raise
        return bool(written)

    def _fits(self, first: BatchHeader, written_before: int, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch can be written together with those before it, because nothing changes between them."""
        rule = self._rule
        return (
            header.leader_epoch == first.leader_epoch
            and self._active.size > 0
            and self._active.size + written_before + header.size <= rule.unquestioned_bytes
            and header.last_offset <= rule.max_offset
            and (header.max_timestamp if rule.by_timestamp else now_ms) <= rule.after_ms
        )

    def _write_preassigned(
        self, data: memoryview, headers: list[BatchHeader], now_ms: int, *, aborts: bool = False
    ) -> None:
        """Write one batch, or several that fit. A batch that `aborts` a transaction is written alone."""
        if self._before_append is not None:
            self._before_append()
        first, last = headers[0], headers[-1]
        if self._rule.demands(first.size, first.last_offset, first.max_timestamp, now_ms):
            # The segment starts at the end of the log, even if this batch begins later: recovery takes a gap between
            # segments for a loss. The batch gets its own segment only if its offset is too far from that base.
            near = first.last_offset - self._next_offset <= MAX_RELATIVE_OFFSET
            self._roll(self._next_offset if near else first.base_offset, now_ms)
        if aborts:
            self._prepare_abort(first.producer_id, first.last_offset)
        segment, size, end = self._active, self._active.size, self._next_offset
        try:
            if first is last:
                segment.append(data, first.size, first.last_offset, first.max_timestamp)
            else:
                segment.append_run(data, [(each.size, each.last_offset, each.max_timestamp) for each in headers])
        except OSError as error:
            self._drop_prepared_abort()
            raise self._storage_error("cannot be written", error) from error
        except BaseException:
            self._take_back(segment, size, end)
            raise
        try:
            if first.leader_epoch >= 0 and first.leader_epoch != self.epochs.latest:
                self.assign_epoch(first.leader_epoch, first.base_offset)
            self._next_offset = last.last_offset + 1
            if size == 0:
                self._set_active(segment)
            position = 0
            for header in headers:
                if header.producer_id >= 0:
                    self._replay(data, position, header, now_ms if now_ms >= 0 else header.max_timestamp)
                position += header.size
        except BaseException:
            self._take_back(segment, size, end)
            raise

    def _replay(self, batch: Buffer, position: int, header: BatchHeader, now_ms: int) -> None:
        """Update the producers, in memory only."""
        replay_batch(None, self.producers, batch, position, header, now_ms)
        self._active.transactions.keep_prepared()

    def _prepare_abort(self, producer_id: int, offset: int) -> None:
        """Write the index entry before a marker at `offset`. Marked as unsynced here: a flush of the marker syncs it
        too."""
        completed = self.producers.completed_by_marker(producer_id, offset, aborted=True)
        if completed is None:
            return
        index = self._active.transactions
        try:
            index.prepare(AbortedTransaction(*completed[:4]))
        except OSError as error:
            self._drop_prepared_abort()
            raise self._storage_error("has no disk space for its transaction index", error) from error
        self._disk.unsynced.add(index.path)
        self._disk.unsynced.add_directory(self.directory)

    def _drop_prepared_abort(self) -> None:
        try:
            self._active.transactions.drop_prepared()
        except OSError as error:  # another entry may overwrite it; nothing else is written before it is gone
            logger.warning("%s: an entry cannot be cut off yet: %s", self._active.transactions.path, error)

    # -- reading

    def read(self, offset: int, max_bytes: int, max_offset: int, *, at_least_one: bool = True) -> Slice:
        """Read whole batches from `offset` on, up to `max_bytes` and below `max_offset`. With `at_least_one` the first
        batch is returned whatever its size. For a worker thread: it waits for the disk."""
        end = min(max_offset, self._next_offset)
        if offset >= end or offset < self.log_start_offset:
            return self._nothing_at(offset)
        return self._read_waiting(offset, max_bytes, end, at_least_one)[0]

    def read_cached(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        *,
        at_least_one: bool = True,
        doubted: bool = False,
        takes_ranges: bool = False,
    ) -> Slice | None:
        """On the event loop: the result of `read`, or None if that would wait for the disk; the caller then calls
        `read` on a worker thread.

        Data from the disk is checked, and so is data that the reader has `doubted`. With `takes_ranges` a long result
        may be a range of a file, for the kernel to send.
        """
        end = self._next_offset
        if max_offset > end:
            max_offset = end
        if offset >= max_offset or offset < self.log_start_offset:
            return self._nothing_at(offset)
        disk, active = self._disk, self._active
        log_end = LogEnd(active, active.size, end)
        try:
            return disk.segments.read(
                offset, max_bytes, max_offset, log_end, at_least_one, disk.access, doubted, takes_ranges
            )
        except NotCached:
            return None
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._described("cannot be read", error) from error
        except CorruptIndex as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _nothing_at(self, offset: int) -> Slice:
        start, end = self.log_start_offset, self._next_offset
        if start <= offset <= end:
            return Slice(b"", offset)
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition}: offset {offset} is not in {start} to {end}"
        )

    def read_committed(
        self, offset: int, max_bytes: int, max_offset: int, *, at_least_one: bool = True
    ) -> tuple[Slice, list[AbortedTransaction]]:
        """On a worker thread: the result of `read`, and the aborted transactions that overlap it. Both are from the
        same moment, whatever retention and compaction do meanwhile."""
        return self._read_waiting(offset, max_bytes, max_offset, at_least_one, with_aborted=True)

    def _read_waiting(
        self, offset: int, max_bytes: int, max_offset: int, at_least_one: bool, *, with_aborted: bool = False
    ) -> tuple[Slice, list[AbortedTransaction]]:
        """Read while the event loop may append, roll or delete. The end of the log is an offset and a position that are
        consistent only on the event loop, so it is not used here: a search for `max_offset` finds where to stop."""

        def read() -> tuple[Slice, list[AbortedTransaction]]:
            disk = self._disk
            try:
                # Transactions first: if their entries are gone when the records are read, so are the records, and the
                # read fails.
                aborted = disk.segments.aborted_transactions(offset, max_offset) if with_aborted else []
                with OwnAccess(disk.system) as access:
                    found = disk.segments.read(offset, max_bytes, max_offset, None, at_least_one, access, True)
            except FileNotFoundError:
                if offset < self.log_start_offset:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition}: offset {offset} was deleted"
                    ) from None
                raise
            return found, aborted

        return self._undisturbed(read, "cannot be read")

    def offset_for_timestamp(
        self, timestamp: int, *, max_size: int = DECOMPRESSED_BYTES_MAX
    ) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp`. For a worker thread: it reads from the disk, and
        decompresses up to `max_size` bytes of a batch."""
        return self._undisturbed(
            lambda: self._disk.segments.offset_for_timestamp(timestamp, self.log_start_offset, max_size),
            "cannot be searched",
        )

    def offset_of_max_timestamp(self, *, max_size: int = DECOMPRESSED_BYTES_MAX) -> TimestampedOffset | None:
        """The first record with the largest timestamp. For a worker thread as well."""
        return self._undisturbed(lambda: self._disk.segments.offset_of_max_timestamp(max_size), "cannot be searched")

    def _undisturbed(self, read: Callable[[], Found], otherwise: str) -> Found:
        """The result of a read on a worker thread."""
        try:
            return self._replacements.undisturbed(read)
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._described(otherwise, error) from error
        except CorruptIndex as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def last_stable_offset(self, high_watermark: int) -> int:
        return max(self.producers.last_stable_offset(high_watermark), self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions for a read_committed reader of the batches in [start, end)."""
        return self._disk.segments.aborted_transactions(start, end)
