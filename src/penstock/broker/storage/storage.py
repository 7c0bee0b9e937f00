"""The logs of this broker and their maintenance: opening, deletion, retention, timed flushes, checkpoints.

Work that waits for the disk runs in threads; changes to a log run on the event loop. A checkpoint is always written
after the flush that it records.

Every `log.flush.offset.checkpoint.interval.ms`, the logs are flushed in a thread and the checkpoints are written. After
a crash, recovery thus reads a minute of data and not a segment of 1 GiB. Kafka flushes only when a segment rolls.

A log directory that fails goes offline with all its replicas (`log_directories`). They leave the broker's replicas, and
requests for them are answered with KAFKA_STORAGE_ERROR until the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from penstock.broker.metadata.formatting import NodeIdentity
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.replica import Replica, ReplicaContext
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.broker.storage.log_directories import LogDirectories, cordoned_paths, is_disk_failure
from penstock.broker.storage.replica_mover import ReplicaMover
from penstock.io.clock import Clock, Randomness
from penstock.io.files import FileSystem
from penstock.io.threads import handed_over
from penstock.log.cleaner import Cleaner
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.partition_metadata import read_partition_metadata
from penstock.log.promotion import settle_promotions
from penstock.metadata.features import METADATA_4_3_IV0
from penstock.metadata.image import Metadata
from penstock.metadata.partition import UNASSIGNED_DIRECTORY
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid, uuid_text
from penstock.model.ownership import owned_by_loop
from penstock.settings.definition import LONG_MAX
from penstock.settings.live import LiveSettings
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.storage")

FLUSH_CHECK_S = 0.1
FLUSH_LOOK_S = 1.0


@owned_by_loop(anywhere=("_io_error_anywhere",))
class Storage:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        identity: NodeIdentity,
        loop: asyncio.AbstractEventLoop,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        metadata: Metadata,
        context: ReplicaContext,
        replicas: Replicas,
        flusher: Flusher,
        cleaner: Cleaner,
        directory_assignments: DirectoryAssignments,
        on_replica_failed: Callable[[Replica], None],
        on_directory_failed: Callable[[Uuid, str], None],
        fail: Callable[[str], None],
    ) -> None:
        """`context` is passed to the replicas that are opened.

        When a directory goes offline, `on_replica_failed` is called for each of its replicas, then
        `on_directory_failed`. `fail` is called if the broker cannot continue.
        """
        self._settings = settings
        self.log_directories = LogDirectories(
            files,
            settings.now.log_directories,
            identity.directories,
            identity.offline,
            metadata_directory=settings.now.metadata_directory,
            producer_expiration_ms=settings.now.producer_id_expiration_ms,
        )
        self._loop = loop
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._metadata = metadata
        self._context = context
        self._replicas = replicas
        self._flusher = flusher
        self.cleaner = cleaner
        self._on_replica_failed = on_replica_failed
        self._on_directory_failed = on_directory_failed
        self._fail = fail
        # The online directories.
        self.directories = self.log_directories.online
        # Partitions in offline directories, with their topic ids.
        self._offline: dict[TopicPartition, Uuid] = {}
        settle_promotions(files, self.directories, lambda: uuid_text(randomness.bytes(16)))
        self._home = {partition: directory for directory in self.directories for partition in directory.partitions()}
        self.mover = self._new_mover(directory_assignments)
        # Log start offsets moved since the last checkpoint: records below them must not return.
        self._start_checkpoint_due = False

    def _new_mover(self, directory_assignments: DirectoryAssignments) -> ReplicaMover:
        return ReplicaMover(
            self,
            settings=self._settings,
            loop=self._loop,
            files=self._files,
            clock=self._clock,
            randomness=self._randomness,
            metadata=self._metadata,
            replicas=self._replicas,
            directory_assignments=directory_assignments,
            fail=self._fail,
        )

    # -- partitions -------------------------------------------------------------------------------------------------

    def open_replica(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        settings: TopicSettings,
        assigned: Uuid = UNASSIGNED_DIRECTORY,
    ) -> Replica:
        """`assigned`: the directory that the metadata names for the replica; a new replica is created there."""
        directory = self._home.get(partition)
        if directory is None:
            directory = self.mover.preferred(partition)
            if directory is None:
                directory = self.log_directories.for_new_replica(assigned, self.cordoned)
            self._home[partition] = directory
        try:
            log = directory.open(partition, settings, now_ms=self._clock.now_ms(), topic_id=topic_id)
        except KafkaError as error:
            if isinstance(error.__cause__, OSError) and self._io_error(directory, error.__cause__):
                self._offline[partition] = topic_id
            raise
        self._watch(log, directory)
        high_watermark = directory.high_watermarks.get(partition, 0)
        replica = Replica(log, partition, topic_id, self._context, high_watermark)
        self._replicas.add(replica)
        self.mover.opened(replica)
        return replica

    def _watch(self, log: Log, directory: LogDirectory) -> None:
        log.before_cut = partial(self._before_cut, log, log.before_cut)
        self.watch_disk(log, directory)

    def watch_disk(self, log: Log, directory: LogDirectory) -> None:
        """Let I/O errors of this log, current or future, take the directory offline."""
        log.on_io_error = partial(self._io_error_anywhere, directory)

    def moved(self, replica: Replica, directory: LogDirectory) -> None:
        """The log of a replica is now in another directory.

        Request a flush: one that was running proves nothing about the new files, and acknowledgements may wait for it.
        """
        self._home[replica.topic_partition] = directory
        self._watch(replica.log, directory)
        self._flusher.request(replica)

    def may_be_offline(self, partition: TopicPartition, assigned: Uuid) -> bool:
        """Whether a replica that is in no online directory may be in an offline one.

        This is so if a directory is offline and the metadata names a directory that is not online, or none at all.
        """
        if partition in self._home or not self.log_directories.offline:
            return False
        return self.log_directories.with_id(assigned) is None

    def set_offline(self, partition: TopicPartition, topic_id: Uuid) -> None:
        self._offline[partition] = topic_id

    def is_offline(self, partition: TopicPartition, topic_id: Uuid) -> bool:
        return self._offline.get(partition) == topic_id

    def forget_offline(self, partition: TopicPartition) -> None:
        """The partition is no longer assigned to this broker: if it is assigned again, it starts anew."""
        self._offline.pop(partition, None)

    @property
    def cordoned(self) -> frozenset[str]:
        """The directories that get no new replicas."""
        if self._metadata.image.metadata_version < METADATA_4_3_IV0:
            return frozenset()
        return cordoned_paths(self._settings.now.cordoned_log_dirs, self._settings.now.log_directories)

    def _before_cut(self, log: Log, lower_recovery_point: Callable[[int], None], offset: int) -> None:
        self.mover.before_cut(log, offset)
        lower_recovery_point(offset)
        if "compact" in log.settings.cleanup_policy:
            self._loop.create_task(self.cleaner.truncated(log, offset)).add_done_callback(_log_failure)

    async def settle(self) -> None:
        """Before clients connect: flush the logs whose records count only once they are flushed.

        Their records may have been acknowledged or read before the restart, and must not seem lost.
        """
        for replica in list(self._replicas):
            leader = replica.leader
            if leader is not None and leader.counts_flushed and leader.flushed < leader.log_end:
                await self._flusher.flush(replica)

    def delete_replica(self, replica: Replica) -> None:
        """Remove a partition now; a thread deletes its files later."""
        self.mover.deleted(replica)
        self._replicas.remove(replica)
        replica.retire()
        directory = self._home.pop(replica.topic_partition)
        self._loop.create_task(self.cleaner.forget(replica.log)).add_done_callback(_log_failure)
        self._delete_files(directory, replica.topic_partition, replica.log.settings.file_delete_delay_ms)

    def delete_unopened(self, partition: TopicPartition) -> None:
        """Remove a partition that may have a directory but has no replica, because its log could not be opened."""
        directory = self._home.pop(partition, None)
        if directory is not None and self._files.exists(directory.directory_of(partition)):
            self._delete_files(directory, partition, 0)

    def _delete_files(self, directory: LogDirectory, partition: TopicPartition, delay_ms: int) -> None:
        try:
            path = directory.delete(partition, uuid_text(self._randomness.bytes(16)))
        except OSError as error:
            if not self._io_error(directory, error):
                raise
        else:
            self._remove_later([path], delay_ms, self._files.remove_tree)

    def set_aside_strays(self, is_known: Callable[[TopicPartition, Uuid | None], bool]) -> None:
        """Before the logs are opened: rename logs that are not in the metadata; they stay on disk."""
        for partition, directory in list(self._home.items()):
            try:
                topic_id = read_partition_metadata(self._files, directory.directory_of(partition))
                if not is_known(partition, topic_id):
                    path = directory.set_aside_stray(partition, uuid_text(self._randomness.bytes(16)))
                    del self._home[partition]
                    logger.warning("%s is not in the metadata; set aside as %s", partition, path)
            except OSError as error:
                if not self._io_error(directory, error):
                    raise
        self.mover.sort_out(is_known, self._home)

    def directory_of(self, log: Log) -> LogDirectory:
        return self._home[log.topic_partition]

    def directory_id_of(self, replica: Replica) -> Uuid:
        return self.log_directories.id_of(self._home[replica.topic_partition])

    # -- failing directories ----------------------------------------------------------------------------------------

    def flush_failed(self, replica: Replica, reason: str) -> None:
        """A flush failed, so the state of the disk is unknown: take the directory offline or stop the node."""
        if replica.is_offline:
            return  # an earlier error has taken its directory offline
        directory = self._home[replica.topic_partition]
        if self.log_directories.can_do_without(directory):
            self._take_offline(directory, reason)
        else:
            self._fail(reason)

    def _io_error_anywhere(self, directory: LogDirectory, error: OSError) -> None:
        """A log could not be written or synced. Any thread may call this; handled after the caller got the error."""
        if is_disk_failure(error):
            self._loop.call_soon_threadsafe(self._io_error, directory, error)

    def _io_error(self, directory: LogDirectory, error: OSError) -> bool:
        """Handle an I/O error. Returns true if the directory is offline; otherwise the caller handles the error."""
        if not is_disk_failure(error) or directory not in self.directories:
            return directory not in self.directories
        if not self.log_directories.can_do_without(directory):
            if len(self.directories) > 1:
                self._fail(f"{directory.path}, which has the metadata log, has failed: {error}")
            return False
        self._take_offline(directory, str(error))
        return True

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        self.log_directories.take_offline(directory, reason)
        self.mover.directory_failed(directory)
        for partition in [partition for partition, home in self._home.items() if home is directory]:
            del self._home[partition]
            topic_id = self._metadata.image.topics.id_of(partition.topic)
            if topic_id is not None:
                self._offline[partition] = topic_id
            replica = self._replicas.get(*partition)
            if replica is not None:
                self._replicas.remove(replica)
                replica.fail()
                self._on_replica_failed(replica)
        self._loop.run_in_executor(None, handed_over(partial(_let_go, directory))).add_done_callback(_log_failure)
        self._on_directory_failed(self.log_directories.id_of(directory), directory.path)
        self._context.wakeups.run()

    def delete_before(self, replica: Replica, offset: int) -> None:
        """Delete the records of a log before an offset: now for readers, soon on disk."""
        replica.log.advance_log_start(offset)
        replica.log_start_moved()
        self._retain(replica)
        if not self._start_checkpoint_due:
            self._start_checkpoint_due = True
            self._loop.call_soon(self._checkpoint_log_starts)

    def _checkpoint_log_starts(self) -> None:
        self._start_checkpoint_due = False
        self._loop.create_task(self.write_checkpoints()).add_done_callback(_log_failure)

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def start_upkeep(self, tasks: asyncio.TaskGroup) -> None:
        settings = self._settings.now
        for leftovers in (directory.leftovers() for directory in self.directories):
            self._remove_later(leftovers, 0, self._files.remove_tree)
        tasks.create_task(self._repeat(settings.log_retention_check_interval_ms / 1000, self._retain_all))
        tasks.create_task(self._repeat(settings.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint))
        if settings.log_cleaner_enable:
            for _ in range(settings.log_cleaner_threads):
                tasks.create_task(self.cleaner.run())
        tasks.create_task(self._flush_by_time())
        tasks.create_task(self.mover.run())
        tasks.create_task(
            self._repeat(settings.producer_id_expiration_check_interval_ms / 1000, self._expire_producers)
        )

    @staticmethod
    async def _repeat(seconds: float, job: Callable[[], asyncio.Future[None] | None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            waiting = job()
            if waiting is not None:
                await waiting

    def _retain_all(self) -> None:
        for replica in self._replicas:
            self._retain(replica)
        self._context.wakeups.run()

    def _retain(self, replica: Replica) -> None:
        """Delete the segments that retention no longer covers."""
        if replica.is_offline:
            return
        try:
            paths = replica.log.delete_old_segments(self._clock.now_ms(), replica.high_watermark)
        except KafkaError as error:
            logger.error("retention of %s: %s", replica.topic_partition, error.message)
            return
        if paths:
            self._remove_later(paths, replica.log.settings.file_delete_delay_ms, self._files.remove)
            replica.log_start_moved()
            self._loop.call_soon(self._retain, replica)  # the log deletes only some at a time

    def _checkpoint(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._flush_and_checkpoint())

    async def _flush_and_checkpoint(self) -> None:
        """Flush all unflushed logs, then write the checkpoints."""
        for replica in list(self._replicas):
            if replica.log.needs_flush and not replica.is_offline:
                await self._flusher.flush(replica)
        await self.write_checkpoints()

    async def write_checkpoints(self) -> None:
        """Write the current checkpoints, then answer the DeleteRecords requests that waited for them."""
        high_watermarks = {replica.topic_partition: replica.high_watermark for replica in self._replicas}
        taken = [(directory, directory.checkpoint(high_watermarks)) for directory in self.directories]

        def write() -> None:
            failed: OSError | None = None
            for directory, checkpoint in taken:
                try:
                    directory.write_checkpoint(checkpoint)
                except OSError as error:  # the other directories' checkpoints are still written
                    self._io_error_anywhere(directory, error)
                    failed = error
            if failed is not None:
                raise failed

        try:
            await self._loop.run_in_executor(None, write)
        except OSError as error:  # outdated checkpoints cost time at the next start, never records
            logger.error("the checkpoints cannot be written: %s", error)
            return
        for directory, checkpoint in taken:
            directory.checkpoint_written(checkpoint)
        for replica in self._replicas:
            replica.log_start_stored()

    async def _flush_by_time(self) -> None:
        """Flush the topics that set `flush.ms`. Few do, so while there are none they are searched for less often."""
        seconds = FLUSH_LOOK_S
        while True:
            await asyncio.sleep(seconds)
            timed = [replica for replica in self._replicas if replica.log.settings.flush_ms != LONG_MAX]
            seconds = FLUSH_CHECK_S if timed else FLUSH_LOOK_S
            now = self._loop.time()
            for replica in timed:
                if replica.log.needs_flush and now - replica.last_flush >= replica.log.settings.flush_ms / 1000:
                    replica.last_flush = now
                    self._flusher.request(replica)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for replica in self._replicas:
            replica.log.producers.expiration_ms = self._settings.now.producer_id_expiration_ms
            replica.log.producers.expire(now_ms)

    def remove_files(self, paths: list[str], remove: Callable[[str], None]) -> None:
        """Remove files soon, on a thread."""
        self._remove_later(paths, 0, remove)

    def _remove_later(self, paths: list[str], delay_ms: int, remove: Callable[[str], None]) -> None:
        if not paths:
            return

        def job() -> None:
            for path in paths:
                remove(path)

        def start() -> None:
            self._loop.run_in_executor(None, job).add_done_callback(_log_failure)

        self._loop.call_later(delay_ms / 1000, start)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def close(self, broker_epoch: int) -> None:
        """Flush everything and mark each directory as clean, so that the next start need not check anything.

        A directory that fails now is not marked. Raises KafkaError if the broker cannot work without it.
        """
        self._flusher.close()
        high_watermarks = {replica.topic_partition: replica.high_watermark for replica in self._replicas}
        for replica in self._replicas:
            # A batch that is still being rewritten must not be appended after the log has been marked as complete.
            replica.resign()
        unflushed = [replica for replica in self._replicas if replica.log.needs_flush]
        await asyncio.gather(*map(self._flusher.flush, unflushed))
        for directory in list(self.directories):
            try:
                await self._close(directory, high_watermarks, broker_epoch)
            except (OSError, KafkaError) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                if not isinstance(cause, OSError) or not self._io_error(directory, cause):
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"this is no clean stop: {error}") from error

    async def _close(
        self, directory: LogDirectory, high_watermarks: dict[TopicPartition, int], broker_epoch: int
    ) -> None:
        # Each close syncs files; in parallel they take a tenth of the time. The logs are no longer in use.
        logs = list(directory.logs.values())
        await asyncio.gather(*(self._loop.run_in_executor(None, handed_over(log.close)) for log in logs))
        if directory in self.directories:  # otherwise it has failed meanwhile
            directory.close(high_watermarks, clean=True, broker_epoch=broker_epoch)


def _let_go(directory: LogDirectory) -> None:
    """Close all open files, so that the disk can be unmounted."""
    directory.close(clean=False)


def _log_failure(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.error("upkeep failed: %s", future.exception())
