"""A log directory: its partitions, and the checkpoints that cover all of them.

Three checkpoints store, for each partition, the offset up to which it is synced (recovery point), its start offset
(only if that is not the base of its first segment) and the committed offset (high watermark). They are written
periodically and on a clean stop. Outdated values cost time, never records. The broker flushes logs in a thread and
writes the checkpoints every `log.flush.offset.checkpoint.interval.ms`, so that after a crash recovery reads a minute of
data and not a segment of 1 GiB. Kafka moves recovery points only when a segment rolls. `.kafka_cleanshutdown` exists
only between a clean stop and the next start, which removes it durably before it opens the first log.

Deleting a partition first renames its directory (`-delete`), which is fast, atomic and crash-safe; a worker thread then
removes the files. A partition that the cluster does not know is renamed to `-stray` and never removed. In both cases
its start offset leaves the checkpoint before the name can be used again. Otherwise a new topic with the same name would
get the start offset of the deleted one, and would seem to have lost everything.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.io.files import FileSystem, read_file, write_file_atomically
from penstock.io.threads import SharedLock
from penstock.log.checkpoints import (
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    MalformedCheckpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from penstock.log.handles import Handles
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.model.topics import METADATA_TOPIC
from penstock.replication.producers import DAY_MS
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.log")

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_TRANSIENT = (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)
_PARTITION = re.compile(r"(.+)-(\d+)")
_FUTURE = re.compile(r"(.+)-(\d+)\.[^.]+-future")
_MAX_NAME = 255


class Checkpoint(NamedTuple):
    """Offsets as of one moment, which a worker thread writes."""

    number: int
    """The order in which checkpoints were taken: threads may write them in another order."""
    recovery_points: dict[TopicPartition, int]
    log_start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]


class LogDirectory:
    def __init__(
        self,
        files: FileSystem,
        path: str,
        *,
        producer_expiration_ms: int = DAY_MS,
        open_files: int | None = None,
    ) -> None:
        """Create the directory if necessary, read its checkpoints, and remove the clean-shutdown marker."""
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Copies of logs that move here from other directories, until they are promoted (see `future`)."""
        self._files = files
        self._handles = Handles(files) if open_files is None else Handles(files, open_files)
        self._checkpointing = SharedLock()
        self._checkpoints_taken = 0
        self._checkpoint_on_disk = 0
        self._producer_expiration_ms = producer_expiration_ms
        make_durable_directory(files, path)
        self.clean_shutdown, self.previous_broker_epoch = self._take_clean_shutdown_marker()
        self._recovery_points = self._read(RECOVERY_POINT_CHECKPOINT)
        self._log_start_offsets = self._read(LOG_START_CHECKPOINT)
        self._checkpointed_starts = dict(self._log_start_offsets)
        self._checkpointed_points = dict(self._recovery_points)
        self.high_watermarks = self._read(REPLICATION_CHECKPOINT)
        self._checkpointed_high_watermarks = dict(self.high_watermarks)
        self._cuts: dict[
            TopicPartition, tuple[int, int]
        ] = {}  # the last checkpoint taken before a cut, and where it was

    # -- start

    def _take_clean_shutdown_marker(self) -> tuple[bool, int]:
        """Whether the last stop was clean, and the broker epoch at that time (-1 if unknown)."""
        path = os.path.join(self.path, CLEAN_SHUTDOWN)
        if not self._files.exists(path):
            return False, -1
        try:
            epoch = int(json.loads(read_file(self._files, path))["brokerEpoch"])
        except (ValueError, KeyError, TypeError):  # Kafka before 3.7 left it empty
            epoch = -1
        self._files.remove(path)
        self._files.sync_directory(self.path)
        return True, epoch

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offset_checkpoint(self._files, os.path.join(self.path, name))
        except MalformedCheckpoint as error:
            logger.error("%s; going on without", error)
            if name == RECOVERY_POINT_CHECKPOINT:
                self.clean_shutdown = False
            return {}

    def partitions(self) -> list[TopicPartition]:
        """The partitions with a directory here, except the metadata log."""
        found = [parse_partition_directory(name) for name in self._files.list(self.path)]
        return [partition for partition in found if partition is not None and partition.topic != METADATA_TOPIC]

    def leftovers(self) -> list[str]:
        """Remaining directories of deleted partitions, to be removed on a worker thread."""
        return [os.path.join(self.path, name) for name in self._files.list(self.path) if name.endswith(DELETE_SUFFIX)]

    # -- partitions

    def open(
        self,
        topic_partition: TopicPartition,
        settings: TopicSettings,
        *,
        now_ms: int,
        topic_id: Uuid | None = None,
    ) -> Log:
        """Open the log of a partition; create it if it does not exist."""
        log = self._open(topic_partition, self.directory_of(topic_partition), settings, now_ms, topic_id)
        self.logs[topic_partition] = log
        return log

    def _open(
        self, topic_partition: TopicPartition, path: str, settings: TopicSettings, now_ms: int, topic_id: Uuid | None
    ) -> Log:
        self._forget_namesake(topic_partition)
        log = Log.open(
            self._files,
            path,
            topic_partition,
            settings,
            clean_shutdown=self.clean_shutdown,
            recovery_point=self._recovery_points.get(topic_partition),
            log_start_offset=self._log_start_offsets.get(topic_partition, 0),
            now_ms=now_ms,
            topic_id=topic_id,
            producer_expiration_ms=self._producer_expiration_ms,
            handles=self._handles,
        )
        if topic_partition not in self._recovery_points and log.log_end_offset > log.log_start_offset:
            log.flushed(log.flush())  # copied files may have gaps, which count as losses above a recovery point
        log.checkpointed_start = self._checkpointed_starts.get(topic_partition, 0)
        self._look_after(log)
        return log

    def _look_after(self, log: Log) -> None:
        log.before_cut = lambda offset: self._lower_checkpoints(log.topic_partition, offset)
        log.before_roll = lambda: self._note_recovery_point(log)

    def _lower_checkpoints(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower the checkpoints before a log is cut: otherwise, after a power loss, recovery would trust the records
        appended after the cut without a check, and take them for committed."""
        with self._checkpointing:
            if self._checkpointed_points.get(topic_partition, 0) > offset:
                points = {**self._checkpointed_points, topic_partition: offset}
                self._write(RECOVERY_POINT_CHECKPOINT, points)
                self._checkpointed_points = points
            former = self._cuts.get(topic_partition, (0, offset))
            self._cuts[topic_partition] = self._checkpoints_taken, min(offset, former[1])
            if self._checkpointed_high_watermarks.get(topic_partition, 0) > offset:
                high_watermarks = {**self._checkpointed_high_watermarks, topic_partition: offset}
                self._write(REPLICATION_CHECKPOINT, high_watermarks)
                self._checkpointed_high_watermarks = high_watermarks

    def _note_recovery_point(self, log: Log) -> None:
        """Record it before a log gets its second segment: a gap between segments is a loss, unless they were copied."""
        if log.topic_partition not in self._checkpointed_points:
            with self._checkpointing:
                points = {log.topic_partition: log.recovery_point, **self._checkpointed_points}
                self._write(RECOVERY_POINT_CHECKPOINT, points)
                self._checkpointed_points = points

    def _forget_namesake(self, topic_partition: TopicPartition) -> None:
        """Drop checkpoint entries of a deleted partition: they do not apply to a new one with the same name."""
        try:
            if topic_partition not in self._log_start_offsets:
                with self._checkpointing:
                    self._forget_checkpointed_start(topic_partition)
            if topic_partition not in self._recovery_points:
                self._lower_checkpoints(topic_partition, 0)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} cannot take the place of a deleted one: {error}"
            ) from error

    def directory_of(self, topic_partition: TopicPartition) -> str:
        return os.path.join(self.path, str(topic_partition))

    def delete(self, topic_partition: TopicPartition, unique: str) -> str:
        """Forget a partition; returns the path to remove on a worker thread. `unique` makes the new name unique."""
        return self._set_aside(topic_partition, unique, DELETE_SUFFIX)

    def set_aside_stray(self, topic_partition: TopicPartition, unique: str) -> str:
        """Forget a partition that the cluster does not know, but keep its files."""
        return self._set_aside(topic_partition, unique, STRAY_SUFFIX)

    def _set_aside(self, topic_partition: TopicPartition, unique: str, suffix: str) -> str:
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            log.close(clean=False)
        self._forget_offsets(topic_partition)
        return self._rename_aside(self.directory_of(topic_partition), topic_partition, unique, suffix)

    def _forget_offsets(self, topic_partition: TopicPartition) -> None:
        with self._checkpointing:
            for offsets in (self._recovery_points, self._log_start_offsets, self.high_watermarks):
                offsets.pop(topic_partition, None)
            try:
                self._forget_checkpointed_start(topic_partition)
            except OSError as error:
                # Deletion must also work on a full disk. `open` removes the offset before the name is used again.
                logger.error("%s: the start offset of %s stays for now: %s", self.path, topic_partition, error)

    def _rename_aside(self, source: str, topic_partition: TopicPartition, unique: str, suffix: str) -> str:
        ending = f"-{topic_partition.partition}.{unique}{suffix}"
        target = os.path.join(self.path, topic_partition.topic[: _MAX_NAME - len(ending)] + ending)
        self._files.rename(source, target)
        return target

    def _forget_checkpointed_start(self, topic_partition: TopicPartition) -> None:
        if topic_partition in self._checkpointed_starts:
            starts = {key: offset for key, offset in self._checkpointed_starts.items() if key != topic_partition}
            self._write(LOG_START_CHECKPOINT, starts)
            self._checkpointed_starts = starts

    # -- future logs

    def future_directories(self) -> list[tuple[TopicPartition, str]]:
        """The future logs in this directory, with their directory names."""
        found = [(_FUTURE.fullmatch(name), name) for name in self._files.list(self.path)]
        return [(TopicPartition(match[1], int(match[2])), name) for match, name in found if match is not None]

    def open_future(
        self, topic_partition: TopicPartition, name: str, settings: TopicSettings, *, now_ms: int, topic_id: Uuid
    ) -> Log:
        """Open the future log in the directory `name`; create it if it does not exist."""
        path = os.path.join(self.path, name)
        if not self._files.exists(path):
            self._forget_offsets(topic_partition)
        log = self._open(topic_partition, path, settings, now_ms, topic_id)
        self.futures[topic_partition] = log
        return log

    def delete_future(self, topic_partition: TopicPartition, unique: str) -> str:
        """Forget a future log; returns the path to remove on a worker thread."""
        log = self.futures.pop(topic_partition)
        log.close(clean=False)
        self._forget_offsets(topic_partition)
        return self._rename_aside(log.directory, topic_partition, unique, DELETE_SUFFIX)

    def set_aside_stray_future(self, topic_partition: TopicPartition, name: str, unique: str) -> str:
        """Keep the files of a future log that was not opened, for manual inspection."""
        self._forget_offsets(topic_partition)
        return self._rename_aside(os.path.join(self.path, name), topic_partition, unique, STRAY_SUFFIX)

    def take_over(self, log: Log) -> None:
        """Register a log that has adopted the future log of its partition in this directory."""
        self.futures.pop(log.topic_partition)
        self.logs[log.topic_partition] = log
        log.checkpointed_start = self._checkpointed_starts.get(log.topic_partition, 0)
        self._look_after(log)

    def release(self, topic_partition: TopicPartition, unique: str) -> str:
        """Release a log that continues in another directory. Returns the path of its old files, which can be
        removed."""
        del self.logs[topic_partition]
        return self._set_aside(topic_partition, unique, DELETE_SUFFIX)

    def has_start(self, log: Log) -> bool:
        """Whether the start offset of the log, current or future, would survive a crash."""
        return log.start_known_from(self._checkpointed_starts.get(log.topic_partition, 0)) >= log.log_start_offset

    # -- checkpoints

    def _all_logs(self) -> list[tuple[TopicPartition, Log]]:
        return [*self.logs.items(), *self.futures.items()]

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Checkpoint:
        """Collect the offsets for `write_checkpoint`. Partitions that are not open keep the values read at the
        start."""
        recovery_points = dict(self._recovery_points)
        log_start_offsets = dict(self._log_start_offsets)
        for topic_partition, log in self._all_logs():
            recovery_points[topic_partition] = log.recovery_point
            if log.has_guessed_start:
                continue
            if log.log_start_offset > log.start_known_from(0):
                log_start_offsets[topic_partition] = log.log_start_offset
            else:
                log_start_offsets.pop(topic_partition, None)
        self._checkpoints_taken += 1
        return Checkpoint(
            self._checkpoints_taken, recovery_points, log_start_offsets, {**self.high_watermarks, **high_watermarks}
        )

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; runs on any thread. Skips partitions that were set aside meanwhile. Does nothing if a
        later checkpoint was written first: otherwise the start of a log would move back."""
        with self._checkpointing:
            if checkpoint.number < self._checkpoint_on_disk:
                return
            known = (
                self.logs.keys() | self.futures.keys() | self._recovery_points.keys() | self._log_start_offsets.keys()
            )
            points, starts, high_watermarks = (
                {partition: offset for partition, offset in offsets.items() if partition in known}
                for offsets in checkpoint[1:]
            )
            for partition, log in self._all_logs():
                # The log may have been cut or opened meanwhile.
                points[partition] = min(log.recovery_point, points.get(partition, log.recovery_point))
            self._write(RECOVERY_POINT_CHECKPOINT, points)
            self._checkpointed_points = points
            self._write(LOG_START_CHECKPOINT, starts)
            self._checkpointed_starts = starts
            self._checkpoint_on_disk = checkpoint.number
            for partition, (taken, offset) in self._cuts.items():
                if partition in high_watermarks and checkpoint.number <= taken:
                    high_watermarks[partition] = min(offset, high_watermarks[partition])
            self._write(REPLICATION_CHECKPOINT, high_watermarks)
            self._checkpointed_high_watermarks = high_watermarks
            self._cuts = {partition: cut for partition, cut in self._cuts.items() if cut[0] > checkpoint.number}

    def checkpoint_written(self, checkpoint: Checkpoint) -> None:
        """`write_checkpoint` returned: the start offsets of the logs are now durable."""
        if checkpoint.number < self._checkpoint_on_disk:
            return
        for topic_partition, log in self.logs.items():
            start = checkpoint.log_start_offsets.get(topic_partition, 0)
            if start <= log.log_start_offset:  # otherwise the log was restarted meanwhile
                log.checkpointed_start = start

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_offset_checkpoint(self._files, os.path.join(self.path, name), offsets)

    # -- stop

    def close(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, clean: bool = True, broker_epoch: int = -1
    ) -> None:
        """Close all logs. With `clean`, sync each log and write the marker that spares the next start all checks."""
        for _, log in self._all_logs():
            log.close(clean=clean)
        self._handles.close()
        if clean:
            self.write_checkpoint(self.checkpoint(high_watermarks or {}))
            content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()
            write_file_atomically(self._files, os.path.join(self.path, CLEAN_SHUTDOWN), content)


def make_durable_directory(files: FileSystem, path: str) -> None:
    """Create a directory and all its parents, and sync their names, which a power loss would otherwise remove."""
    missing = []
    while path and not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if missing:
        files.make_directories(missing[0])
        for made in missing:
            files.sync_directory(os.path.dirname(made) or ".")


def future_directory(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a future log's directory; ValueError if the topic name is too long for it."""
    name = f"{topic_partition}.{unique}{FUTURE_SUFFIX}"
    if len(name) > _MAX_NAME:
        raise ValueError(f"{name} is longer than {_MAX_NAME} characters")
    return name


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Parse a directory name; None if it is not a partition's, or is transient."""
    if name.endswith(_TRANSIENT):
        return None
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
