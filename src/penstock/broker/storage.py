"""The logs of this broker and their upkeep: opening, deleting, retention, flushes by time, checkpoints.

Whatever waits for the disk runs in threads; what changes a log runs on the loop. A checkpoint is always written after
the flush it speaks of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.replica import Replica
from penstock.io.files import FileSystem
from penstock.io.threads import handed_over
from penstock.log.cleaner import Cleaner
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.partition_metadata import read_partition_metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid, uuid_text
from penstock.model.ownership import owned_by_loop
from penstock.settings.definition import LONG_MAX
from penstock.settings.topic import TopicSettings

if TYPE_CHECKING:
    from penstock.broker.node import Node

logger = logging.getLogger("penstock.storage")

FLUSH_CHECK_SECONDS = 0.1
FLUSH_LOOK_SECONDS = 1.0


@owned_by_loop()
class Storage:
    def __init__(self, node: Node, paths: Iterable[str]) -> None:
        self._node = node
        self._loop = node.loop
        self._files: FileSystem = node.files
        self.directories = [
            LogDirectory(node.files, path, producer_expiration_ms=node.settings.producer_id_expiration_ms)
            for path in paths
        ]
        self._home = {partition: directory for directory in self.directories for partition in directory.partitions()}
        self.cleaner = Cleaner(
            node.files, node.clock, node.processes, lambda: list(node.replicas), lambda: node.settings
        )
        # Log start offsets that the checkpoint does not know yet: records below them must not come back.
        self._start_checkpoint_due = False

    # -- partitions -------------------------------------------------------------------------------------------------

    def open_replica(self, partition: TopicPartition, topic_id: Uuid, settings: TopicSettings) -> Replica:
        directory = self._home.get(partition)
        if directory is None:
            directory = min(self.directories, key=lambda each: len(each.logs))
            self._home[partition] = directory
        log = directory.open(partition, settings, now_ms=self._node.clock.now_ms(), topic_id=topic_id)
        log.before_cut = partial(self._before_cut, log, log.before_cut)
        high_watermark = directory.high_watermarks.get(partition, 0)
        replica = Replica(log, partition, topic_id, self._node.assignment.surroundings, high_watermark)
        self._node.replicas.add(replica)
        return replica

    def _before_cut(self, log: Log, lower_recovery_point: Callable[[int], None], offset: int) -> None:
        lower_recovery_point(offset)
        if "compact" in log.settings.cleanup_policy:
            self._loop.create_task(self.cleaner.truncated(log, offset)).add_done_callback(_log_failure)

    async def settle(self) -> None:
        """Before clients come: what counts only once it is flushed, is. It may have been acknowledged, or read, before
        the restart, and must not seem to be gone."""
        for replica in list(self._node.replicas):
            leader = replica.leader
            if leader is not None and leader.counts_flushed and leader.flushed < leader.log_end:
                await self._node.flusher.flush(replica)

    def delete_replica(self, replica: Replica) -> None:
        """Forget a partition now; its files go when a thread has time for them."""
        self._node.replicas.remove(replica)
        replica.retire()
        directory = self._home.pop(replica.topic_partition)
        self._loop.create_task(self.cleaner.forget(replica.log)).add_done_callback(_log_failure)
        path = directory.delete(replica.topic_partition, uuid_text(self._node.randomness.bytes(16)))
        self._remove_later([path], replica.log.settings.file_delete_delay_ms, self._files.remove_tree)

    def delete_unopened(self, partition: TopicPartition) -> None:
        """Forget a partition that may have a directory, but has no replica: its log could not be opened."""
        directory = self._home.pop(partition, None)
        if directory is not None and self._files.exists(directory.directory_of(partition)):
            path = directory.delete(partition, uuid_text(self._node.randomness.bytes(16)))
            self._remove_later([path], 0, self._files.remove_tree)

    def set_aside_strays(self, is_known: Callable[[TopicPartition, Uuid | None], bool]) -> None:
        """Before the logs are opened: what the metadata does not know gets out of the way, and stays on disk."""
        for partition, directory in list(self._home.items()):
            topic_id = read_partition_metadata(self._files, directory.directory_of(partition))
            if not is_known(partition, topic_id):
                path = directory.set_aside_stray(partition, uuid_text(self._node.randomness.bytes(16)))
                del self._home[partition]
                logger.warning("%s is not in the metadata; set aside as %s", partition, path)

    def directory_of(self, log: Log) -> LogDirectory:
        return self._home[log.topic_partition]

    def log_start_moved(self, replica: Replica) -> None:
        """DeleteRecords moved a log start offset: make that durable soon, and drop the segments below."""
        self._retain(replica)
        if not self._start_checkpoint_due:
            self._start_checkpoint_due = True
            self._loop.call_soon(self._checkpoint_log_starts)

    def _checkpoint_log_starts(self) -> None:
        self._start_checkpoint_due = False
        self._loop.create_task(self.write_checkpoints()).add_done_callback(_log_failure)

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def start_upkeep(self, tasks: asyncio.TaskGroup) -> None:
        settings = self._node.settings
        for leftovers in (directory.leftovers() for directory in self.directories):
            self._remove_later(leftovers, 0, self._files.remove_tree)
        tasks.create_task(self._repeat(settings.log_retention_check_interval_ms / 1000, self._retain_all))
        tasks.create_task(self._repeat(settings.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint))
        if settings.log_cleaner_enable:
            for _ in range(settings.log_cleaner_threads):
                tasks.create_task(self.cleaner.run())
        tasks.create_task(self._flush_by_time())
        tasks.create_task(self._node.repairs.run())
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
        for replica in self._node.replicas:
            self._retain(replica)
        self._node.wakeups.run()

    def _retain(self, replica: Replica) -> None:
        """Drop the segments that retention no longer wants."""
        if replica.is_offline:
            return
        try:
            paths = replica.log.delete_old_segments(self._node.clock.now_ms(), replica.high_watermark)
        except KafkaError as error:
            logger.error("retention of %s: %s", replica.topic_partition, error.message)
            return
        if paths:
            self._remove_later(paths, replica.log.settings.file_delete_delay_ms, self._files.remove)
            replica.wake_all()
            self._loop.call_soon(self._retain, replica)  # the log deletes some at a time

    def _checkpoint(self) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._flush_and_checkpoint())

    async def _flush_and_checkpoint(self) -> None:
        """Flush what is not flushed, then write down how far that is."""
        for replica in list(self._node.replicas):
            if replica.log.needs_flush and not replica.is_offline:
                await self._node.flusher.flush(replica)
        await self.write_checkpoints()

    async def write_checkpoints(self) -> None:
        """As things are now. Deletions that waited for that are answered."""
        high_watermarks = {replica.topic_partition: replica.high_watermark for replica in self._node.replicas}
        taken = [(directory, directory.checkpoint(high_watermarks)) for directory in self.directories]

        def write() -> None:
            for directory, checkpoint in taken:
                directory.write_checkpoint(checkpoint)

        try:
            await self._loop.run_in_executor(None, write)
        except OSError as error:  # values that are out of date cost time at the next start, never records
            logger.error("the checkpoints cannot be written: %s", error)
            return
        for directory, checkpoint in taken:
            directory.checkpoint_written(checkpoint)
        for replica in self._node.replicas:
            replica.log_start_stored()

    async def _flush_by_time(self) -> None:
        """`flush.ms` of the topics that set it; few do, so they are looked for less often than they are looked at."""
        seconds = FLUSH_LOOK_SECONDS
        while True:
            await asyncio.sleep(seconds)
            timed = [replica for replica in self._node.replicas if replica.log.settings.flush_ms != LONG_MAX]
            seconds = FLUSH_CHECK_SECONDS if timed else FLUSH_LOOK_SECONDS
            now = self._loop.time()
            for replica in timed:
                if replica.log.needs_flush and now - replica.last_flush >= replica.log.settings.flush_ms / 1000:
                    replica.last_flush = now
                    self._node.flusher.request(replica)

    def _expire_producers(self) -> None:
        now_ms = self._node.clock.now_ms()
        for replica in self._node.replicas:
            replica.log.producers.expiration_ms = self._node.settings.producer_id_expiration_ms
            replica.log.producers.expire(now_ms)

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
        """Everything on disk, and marked so that the next start need check nothing; KafkaError where that fails."""
        self._node.flusher.close()
        high_watermarks = {replica.topic_partition: replica.high_watermark for replica in self._node.replicas}
        unflushed = [replica for replica in self._node.replicas if replica.log.needs_flush]
        await asyncio.gather(*map(self._node.flusher.flush, unflushed))
        logs = [log for directory in self.directories for log in directory.logs.values()]
        try:
            # Each close syncs files; together they take a tenth of the time. Nobody uses the logs any more.
            await asyncio.gather(*(self._loop.run_in_executor(None, handed_over(log.close)) for log in logs))
            for directory in self.directories:
                directory.close(high_watermarks, clean=True, broker_epoch=broker_epoch)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"this is no clean stop: {error}") from error


def _log_failure(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.error("upkeep failed: %s", future.exception())
