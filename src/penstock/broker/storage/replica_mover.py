"""Moves replicas between the log directories of this broker (KIP-113), while they are written and read.

A request creates an empty future log in the other directory, and a task copies into it as a follower would. Worker
threads read; the event loop appends one piece at a time, so that other work never waits for long. The copy is flushed
at intervals, so that the disk does not fall behind. `replication.moving` decides the state of a move and its next step;
`log.future` and `log.promotion` handle the files.

When a copy has caught up, the broker reports the new directory to the controller (KIP-858). After the acknowledgement
it copies the rest, and the replica's log adopts the files of the copy (`log/stored.py`), in one step on the event loop.
The log object stays the same: an append, a cold read or a loading coordinator that holds it does not notice. Reads on
threads start again, and a flush that was running proves nothing.

Two directories cannot be changed in one step. So before the future log gets its final name, it lists the directories
whose log it replaces (`former-directories`), and it keeps that file until the removal of the old log is durable. If a
start finds two logs, it knows which one lost; Kafka does not start in this case. Compaction, and repairs that rewrite
segments, leave a log alone while it is copied: the copy could contain an old record and lack its tombstone.

A failed move is given up: its files are removed, and the replica stays where it was. A move interrupted by a stop or
crash of the broker continues at the next start: the future log is still there, in the target directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.throttle import Allowance
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.io.clock import Clock, Randomness
from penstock.io.files import FileSystem
from penstock.log.directory import LogDirectory, future_directory
from penstock.log.future import FutureLog
from penstock.log.log import Log
from penstock.log.partition_metadata import read_partition_metadata
from penstock.log.promotion import (
    Undecided,
    finish_promotion,
    promote_abandoned,
    read_former_directories,
)
from penstock.log.segment import LOG_SUFFIX
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.replication.moving import Action, Event, Move, Phase
from penstock.settings.live import LiveSettings

if TYPE_CHECKING:
    from penstock.broker.storage.storage import Storage

logger = logging.getLogger("penstock.storage")

Result = TypeVar("Result")

# Copied between two flushes: small enough for the disk to keep up, so that writes do not have to wait for it.
BURST_BYTES: Final = 8 * 1024 * 1024
# Limit on what is copied on the event loop before the swap; doubled after each attempt for which it was not enough.
COMPLETE_BYTES: Final = 128 * 1024
COMPLETE_DOUBLINGS_MAX: Final = 6
# How often a copy that has caught up checks for new records while it waits for the controller.
FOLLOW_S: Final = 0.1
# A throttled copy sleeps for at least the minimum, and wakes up after the maximum to check whether the limit changed.
THROTTLED_SECONDS_MIN: Final = 0.01
THROTTLED_SECONDS_MAX: Final = 1.0
PREFERENCES_MAX: Final = 10_000


class _Moving:
    """A move in progress, with its logs."""

    __slots__ = ("assignment", "attempts", "former", "future", "is_running", "old", "progress", "replica", "then")

    def __init__(self, replica: Replica, future: FutureLog) -> None:
        self.replica = replica
        self.future = future
        self.progress = Move()
        self.is_running = False
        self.attempts = 0
        self.assignment: asyncio.Future[bool] | None = None
        # The directory of the old log (`former`), and its new name (`old`); None if it could not be renamed.
        self.former = ""
        self.old: str | None = None
        self.then: LogDirectory | None = None  # the next target, requested while the swap was finishing

    @property
    def partition(self) -> TopicPartition:
        return self.replica.topic_partition

    @property
    def is_on(self) -> bool:
        return self.progress.can_be_cancelled


class ReplicaMover:
    def __init__(
        self,
        storage: Storage,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        metadata: Metadata,
        replicas: Replicas,
        directory_assignments: DirectoryAssignments,
        fail: Callable[[str], None],
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._loop = loop
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._metadata = metadata
        self._replicas = replicas
        self._directory_assignments = directory_assignments
        self._fail = fail
        self._moves: dict[TopicPartition, _Moving] = {}
        self._asked = asyncio.Event()
        self._allowance = Allowance(loop.time)
        # Requested directories of partitions that are not here yet.
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        # Future logs found at the start whose replicas are not open yet.
        self._found: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        for directory in storage.directories:
            for partition, name in directory.future_directories():
                if partition in self._found:  # a second copy
                    directory.set_aside_stray_future(partition, name, self._unique())
                else:
                    self._found[partition] = (directory, name)

    # -- requests ---------------------------------------------------------------------------------------------------

    def ask(self, partition: TopicPartition, path: str) -> None:
        """AlterReplicaLogDirs: move the replica to this directory; raises KafkaError if that is impossible."""
        try:
            name = future_directory(partition, self._randomness.bytes(16).hex())
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long to be moved") from error
        target = self._directory(path)
        replica = self._replicas.get(*partition)
        if replica is None:
            raise self._not_here(partition, target)
        self._preferred.pop(partition, None)
        move = self._moves.get(partition)
        if move is not None and move.future.target is target:
            move.then = None
            return
        if move is not None and not move.is_on:
            move.then = target
            return
        is_elsewhere = self._storage.directory_of(replica.log) is not target
        if is_elsewhere and target.path in self._storage.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
        if move is not None:
            self._cancel(move, f"it is to be in {path}")
        if is_elsewhere:
            self._begin(replica, target, name)

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._storage.directories:
            if os.path.abspath(directory.path) == path:
                return directory
        if path in map(os.path.abspath, self._settings.now.log_directories):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    def _not_here(self, partition: TopicPartition, target: LogDirectory) -> KafkaError:
        """The error for a partition that is not here; its requested directory is remembered for when it is created."""
        if partition in self._preferred or len(self._preferred) < PREFERENCES_MAX:
            self._preferred[partition] = target
        topic = self._metadata.image.topics.by_name(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)

    def preferred(self, partition: TopicPartition) -> LogDirectory | None:
        """The requested directory of a new replica, if that directory is online."""
        directory = self._preferred.pop(partition, None)
        return directory if directory in self._storage.directories else None

    def _begin(self, replica: Replica, target: LogDirectory, name: str) -> None:
        source, log = self._storage.directory_of(replica.log), replica.log
        try:
            if os.path.abspath(target.path) in read_former_directories(self._files, log.directory):
                finish_promotion(self._files, log.directory, target.directory_of(replica.topic_partition))
            future = target.open_future(
                replica.topic_partition,
                name,
                log.settings,
                now_ms=self._clock.now_ms(),
                topic_id=replica.topic_id,
            )
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} has no disk space for a log: {error}"
            ) from error
        self._storage.watch_disk(future, target)
        self._storage.cleaner.pause(replica.topic_partition)
        logger.info("%s moves from %s to %s", replica.topic_partition, source.path, target.path)
        self._moves[replica.topic_partition] = _Moving(replica, FutureLog(log, future, source, target))
        self._asked.set()

    # -- events of moving replicas ----------------------------------------------------------------------------------

    def opened(self, replica: Replica) -> None:
        """A replica was opened: continue a move that an earlier process did not finish."""
        found = self._found.get(replica.topic_partition)
        if found is not None:
            target, name = found
            is_new = replica.log.log_end_offset == 0 and self._has_records(os.path.join(target.path, name))
            if is_new or self._storage.directory_of(replica.log) is target:
                # This log is not the one that was copied: that one was lost with a disk.
                self._set_aside(replica.topic_partition)
                return
            del self._found[replica.topic_partition]
            try:
                self._begin(replica, target, name)
            except KafkaError as error:
                logger.error("the move of %s does not go on: %s", replica.topic_partition, error.message)

    def _has_records(self, directory: str) -> bool:
        names = (name for name in self._files.list(directory) if name.endswith(LOG_SUFFIX))
        return any(self._files.size(os.path.join(directory, name)) for name in names)

    def before_cut(self, log: Log, offset: int) -> None:
        """A log is about to be truncated: truncate its copy first."""
        move = self._moves.get(log.topic_partition)
        if move is not None and move.is_on and move.future.current is log:
            try:
                move.future.cut(offset)
            except (OSError, KafkaError) as error:
                self._give_up(move, error)

    def deleted(self, replica: Replica) -> None:
        """The topic or this replica is deleted; called before the files are removed."""
        move = self._moves.get(replica.topic_partition)
        if move is not None and move.is_on:
            self._cancel(move, "it is deleted")

    def directory_failed(self, directory: LogDirectory) -> None:
        """Cancel the moves from and to this directory.

        A copy from the failed disk is kept: if the disk returns, the next start continues the move; otherwise the copy
        may be all that is left.
        """
        for move in list(self._moves.values()):
            if move.is_on and directory in (move.future.source, move.future.target):
                self._cancel(move, f"{directory.path} is offline", keep=directory is move.future.source)

    def _cancel(self, move: _Moving, why: str, *, keep: bool = False) -> None:
        logger.info("%s does not move to %s: %s", move.partition, move.future.target.path, why)
        self._end(move, keep=keep)

    def _give_up(self, move: _Moving, error: Exception) -> None:
        if move.is_on:
            logger.error("%s cannot be moved to %s: %s", move.partition, move.future.target.path, error)
            self._end(move)

    def _end(self, move: _Moving, *, keep: bool = False) -> None:
        """End a move without a swap. `keep`: keep the files of the copy."""
        actions = move.progress.on(Event.CANCELLED)
        del self._moves[move.partition]
        if not move.is_running:
            self._storage.cleaner.resume(move.partition)
        if keep:
            move.future.target.futures.pop(move.partition).close(clean=False)
        elif Action.DISCARD in actions:
            try:
                self._remove(
                    [move.future.target.delete_future(move.partition, self._unique())], self._files.remove_tree
                )
            except OSError as error:
                logger.error("%s: what was copied stays: %s", move.future.log.directory, error)
        if Action.ASSIGN_SOURCE in actions:
            self._assign(move, move.future.source)

    # -- at the start -----------------------------------------------------------------------------------------------

    def sort_out(
        self, is_known: Callable[[TopicPartition, Uuid | None], bool], homes: dict[TopicPartition, LogDirectory]
    ) -> None:
        """Before the logs are opened: decide which future logs continue.

        If the current log was lost with its disk, the future log replaces it, provided that the controller has the
        future log's directory as the replica's: then the copy had caught up. Otherwise it is unknown what the copy
        lacks, and it is set aside, unless the disk may return.
        """
        offline = self._storage.log_directories.offline
        for partition, (directory, name) in list(self._found.items()):
            path = os.path.join(directory.path, name)
            if is_known(partition, read_partition_metadata(self._files, path)):
                if partition in homes:
                    continue
                if self._is_assigned(partition, directory):
                    logger.warning("%s takes the place of a log that is gone", path)
                    promote_abandoned(self._files, path, directory.directory_of(partition), offline)
                    homes[partition] = directory
                    del self._found[partition]
                    continue
                if offline:
                    continue
            self._set_aside(partition)

    def _set_aside(self, partition: TopicPartition) -> None:
        directory, name = self._found.pop(partition)
        aside = directory.set_aside_stray_future(partition, name, self._unique())
        logger.warning("%s in %s is the copy of a log that is not here; set aside as %s", name, directory.path, aside)

    def _is_assigned(self, partition: TopicPartition, directory: LogDirectory) -> bool:
        topic = self._metadata.image.topics.by_name(partition.topic)
        if topic is None:
            return False
        assigned = topic.partitions[partition.partition].directory_of(self._settings.now.node_id)
        return assigned == self._storage.log_directories.id_of(directory)

    # -- copying ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        threads = self._settings.now.num_replica_alter_log_dirs_threads or len(self._storage.directories)
        turns = asyncio.Semaphore(max(1, threads))
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._asked.wait()
                self._asked.clear()
                for move in self._moves.values():
                    if not move.is_running:
                        move.is_running = True
                        tasks.create_task(self._carry_out(move, turns))

    async def _carry_out(self, move: _Moving, turns: asyncio.Semaphore) -> None:
        cleaner, partition = self._storage.cleaner, move.partition
        try:
            await cleaner.has_paused(partition, move.future.target.path)
            if move.is_on:
                move.progress.on(Event.STARTED)
            while move.is_on:
                async with turns:
                    has_caught_up = await self._copy(move)
                if has_caught_up and move.is_on:
                    await self._caught_up(move)
            if move.progress.phase is Phase.SWAPPED:
                await self._clear(move)
        except (OSError, KafkaError) as error:
            self._give_up(move, error)
        finally:
            cleaner.resume(partition)

    async def _copy(self, move: _Moving) -> bool:
        """Copy up to `BURST_BYTES`; returns true if nothing is left to copy now."""
        future = move.future
        begin = future.copied_bytes
        if future.log.settings is not future.current.settings:
            future.log.update_settings(future.current.settings)
        while future.copied_bytes - begin < BURST_BYTES:
            if not move.is_on:
                return False
            self._allowance.set_rate(self._settings.now.replica_alter_log_dirs_io_max_bytes_per_second)
            seconds = self._allowance.seconds_in_debt
            if seconds > 0:
                await asyncio.sleep(min(max(seconds, THROTTLED_SECONDS_MIN), THROTTLED_SECONDS_MAX))
                continue
            offset = future.next_copy(self._clock.now_ms(), self._remove)
            if offset is None:
                return True
            try:
                piece = await self._in_thread(future.read(offset))
            except KafkaError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    continue  # deleted or truncated meanwhile
                raise
            if move.is_on:
                future.append(piece, self._clock.now_ms())
                self._allowance.take(len(piece.data))
        await self._flush(move)
        return False

    async def _flush(self, move: _Moving) -> None:
        log = move.future.log
        offset = await self._in_thread(log.flush)
        if move.is_on:
            log.flushed(offset)

    async def _caught_up(self, move: _Moving) -> None:
        actions = move.progress.on(Event.CAUGHT_UP)
        if Action.PROMOTE in actions:
            await self._promote(move)
            return
        if Action.ASSIGN_TARGET in actions:
            await self._flush(move)  # the long flush: the next one, before the swap, has little left to do
            if move.is_on:
                self._assign(move, move.future.target)
        if move.is_on and move.assignment is not None:
            await self._look_for_acknowledgement(move, move.assignment)

    def _assign(self, move: _Moving, directory: LogDirectory) -> None:
        """Report to the controller where the replica is, or is about to be."""
        directory_id = self._storage.log_directories.id_of(directory)
        replica = move.replica
        move.assignment = self._directory_assignments.assign(
            replica.topic_id, replica.topic_partition.partition, directory_id
        )

    async def _look_for_acknowledgement(self, move: _Moving, assignment: asyncio.Future[bool]) -> None:
        """Wait briefly for the acknowledgement; a long wait would let the copy fall behind."""
        done, _ = await asyncio.wait([assignment], timeout=FOLLOW_S)
        if not done or not move.is_on:
            return
        if assignment.result():
            move.progress.on(Event.ACKNOWLEDGED)
        else:  # another report about the replica superseded this one
            await asyncio.sleep(FOLLOW_S)
            if move.is_on:
                self._assign(move, move.future.target)

    # -- the swap ---------------------------------------------------------------------------------------------------

    async def _promote(self, move: _Moving) -> None:
        """Swap, unless the copy has fallen too far behind during the preparation; then there is another attempt."""
        future, target = move.future, move.future.target
        future.log.take_epochs(future.current)
        await self._flush(move)
        checkpoint = target.checkpoint({each.topic_partition: each.high_watermark for each in self._replicas})
        await self._in_thread(lambda: future.prepare(self._files, checkpoint))
        if not move.is_on:
            return
        at_once = COMPLETE_BYTES << min(move.attempts, COMPLETE_DOUBLINGS_MAX)
        move.attempts += 1
        if future.complete(self._clock.now_ms(), at_once, self._remove):
            self._swap(move)

    def _swap(self, move: _Moving) -> None:
        future, log = move.future, move.future.current
        former = log.directory
        try:
            old = future.swap(self._files, self._unique())
        except Undecided as error:
            move.progress.on(Event.CANCELLED)  # without its actions: it is unknown what to undo
            self._fail(f"the directory of {move.partition} is unknown: {error}")
            return
        move.progress.on(Event.PROMOTED)
        move.former, move.old = former, old
        self._storage.moved(move.replica, future.target)
        logger.info("%s is in %s now, %d bytes were copied", move.partition, log.directory, future.copied_bytes)

    async def _clear(self, move: _Moving) -> None:
        """Remove the old log after its renaming is durable. If that fails with its disk, the next start does it."""
        log = move.future.current
        try:
            if move.old is not None:
                await self._in_thread(lambda: finish_promotion(self._files, log.directory, move.former))
                self._remove([move.old], self._files.remove_tree)
            if not move.replica.is_offline:
                await self._storage.cleaner.moved(log, os.path.dirname(move.former))
        except OSError as error:
            logger.error("%s: what is left of %s stays for now: %s", move.former, move.partition, error)
        finally:
            move.progress.on(Event.CLEARED)
            del self._moves[move.partition]
        if move.then is not None:
            self._go_on(move.partition, move.then)

    def _go_on(self, partition: TopicPartition, target: LogDirectory) -> None:
        try:
            self.ask(partition, os.path.abspath(target.path))
        except KafkaError as error:
            logger.error("%s cannot be moved to %s: %s", partition, target.path, error)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _unique(self) -> str:
        return self._randomness.bytes(16).hex()

    def _remove(self, paths: list[str], remove: Callable[[str], None] | None = None) -> None:
        self._storage.remove_files(paths, remove or self._files.remove)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread. Even a cancelled caller waits for it: no log is closed while a thread uses it."""
        future = self._loop.run_in_executor(None, work)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # the waiting task may be gone
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise
