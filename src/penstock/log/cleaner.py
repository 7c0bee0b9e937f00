"""The cleaner schedules compaction in the broker: it picks a log and a range, and swaps in the result.

A log with `cleanup.policy=compact` is clean up to the offset in `cleaner-offset-checkpoint`. It is dirty from there to
the first segment that must not be cleaned: the active segment, a segment that reaches above the last stable offset, or
one with records younger than `min.compaction.lag.ms`. The cleaner starts with the dirtiest log. A log needs cleaning if
the dirty share of its bytes exceeds `min.cleanable.dirty.ratio` or if a record has waited for `max.compaction.lag.ms`.

A cleaning has these steps. Only the renames of the swap run on the event loop without a pause:

1. The cleaner writes the job to a file, and a child process (`compaction`) makes the cleaned segments.
2. The cleaner swaps them in (`swap`) one by one, from the front of the log, provided that the segments they were made
   from still exist: retention or a truncation may have removed them.
3. The checkpoint advances.

If this is interrupted anywhere, the next cleaning still starts from a consistent log: compaction removes tombstones and
markers only after the records they delete.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from penstock.io.clock import Clock
from penstock.io.files import FileSystem, read_file
from penstock.io.processes import Processes
from penstock.log.checkpoints import (
    CLEANER_CHECKPOINT,
    MalformedCheckpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from penstock.log.compaction_job import (
    ActiveProducer,
    CleanedGroup,
    CompactionFailure,
    CompactionJob,
    CompactionResult,
    SourceSegment,
    outcome_from_json,
)
from penstock.log.log import Log
from penstock.log.segment import Segment, file_name
from penstock.log.swap import CLEANED_SUFFIX, abandon_swap, finish_swap, prepare_swap, remove_cleaned
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.ownership import owned_by_loop

logger = logging.getLogger("penstock.cleaner")

COMPACTION_MODULE = "penstock.log.compaction"
LONG_MAX = 2**63 - 1

Result = TypeVar("Result")


class CompactedReplica(Protocol):
    """The attributes of a partition that the cleaner needs."""

    @property
    def log(self) -> Log: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


class CleanerSettings(Protocol):
    """The node settings that the cleaner uses."""

    @property
    def log_cleaner_backoff_ms(self) -> int: ...
    @property
    def log_cleaner_dedupe_buffer_size(self) -> int: ...
    @property
    def log_cleaner_io_buffer_load_factor(self) -> float: ...
    @property
    def log_cleaner_io_max_bytes_per_second(self) -> float: ...
    @property
    def socket_request_max_bytes(self) -> int: ...


class LogToClean(NamedTuple):
    replica: CompactedReplica
    segments: list[Segment]
    """All segments that may be cleaned, from the front of the log."""
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def measure(replica: CompactedReplica, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Measure how dirty a log is, given the offset up to which it was cleaned."""
    log = replica.log
    settings = log.settings
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        # Retention passed the checkpoint, or the end of the log was lost: start over.
        first_dirty = log.log_start_offset
    segments = log.segments
    bounds = [segment.base_offset for segment in segments]
    limit = min(replica.last_stable_offset, replica.high_watermark)
    cleanable: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for segment, end in zip(segments[:-1], bounds[1:], strict=True):
        if end > limit:
            break
        if end > first_dirty:
            if (
                settings.min_compaction_lag_ms > 0
                and segment.largest_timestamp() > now_ms - settings.min_compaction_lag_ms
            ):
                break
            dirty_bytes += segment.size
            if settings.max_compaction_lag_ms < LONG_MAX and not is_overdue:
                first = segment.first_timestamp
                is_overdue = first is not None and 0 < first < now_ms - settings.max_compaction_lag_ms
        else:
            clean_bytes += segment.size
        cleanable.append(segment)
    end_offset = bounds[len(cleanable)] if cleanable else bounds[0]
    return LogToClean(replica, cleanable, first_dirty, end_offset, clean_bytes, dirty_bytes, is_overdue)


def dirtiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    due = [
        candidate
        for candidate in candidates
        if candidate.dirty_bytes
        and (candidate.is_overdue or candidate.dirty_ratio > candidate.replica.log.settings.min_cleanable_dirty_ratio)
    ]
    return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)


@owned_by_loop()
class Cleaner:
    """Cleans the logs of a broker, as often as they need it. Several tasks may `run` at once."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        processes: Processes,
        replicas: Callable[[], Iterable[CompactedReplica]],
        settings: Callable[[], CleanerSettings],
    ) -> None:
        self._files = files
        self._clock = clock
        self._processes = processes
        self._replicas = replicas
        self._settings = settings
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._in_progress: set[TopicPartition] = set()
        self._postponed: set[TopicPartition] = set()
        # Logs that move to other directories, with the number of moves that paused each of them.
        self._paused: Counter[TopicPartition] = Counter()
        self._something_ended = asyncio.Event()
        # Logs with a corrupt batch, with their number of repairs at the time it was found.
        self._uncleanable: dict[TopicPartition, int] = {}
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Clean until cancelled. Cancelling kills a running child process."""
        while True:
            await self.clean_round()
            await asyncio.sleep(self._settings().log_cleaner_backoff_ms / 1000)

    async def clean_round(self) -> int:
        """Clean every log that needs it and return the number of successes. A log that fails waits for the next
        round."""
        self._postponed.clear()
        count = 0
        while (cleaned := await self.clean_dirtiest()) is not None:
            count += cleaned
        return count

    async def clean_dirtiest(self) -> bool | None:
        """Clean the log that needs it most; returns whether that succeeded, or None if no log needs it."""
        found = self._find()
        if found is None:
            return None
        partition = found.replica.log.topic_partition
        self._in_progress.add(partition)
        cleaned = False
        try:
            cleaned = await self._clean(found)
        except (OSError, KafkaError) as error:
            logger.error("%s cannot be compacted now: %s", partition, error)
        finally:
            self._end(partition)
        if not cleaned:
            self._postponed.add(partition)
        return cleaned

    def _end(self, partition: TopicPartition) -> None:
        self._in_progress.discard(partition)
        self._something_ended.set()

    async def forget(self, log: Log) -> None:
        """Drop the checkpoint of a deleted partition: a new partition with the same name must not count as clean."""
        self._uncleanable.pop(log.topic_partition, None)
        offsets = self._checkpoint_of(log)
        if offsets.pop(log.topic_partition, None) is not None:
            await self._write_checkpoint(log)

    def pause(self, partition: TopicPartition) -> None:
        """Leave a log that moves to another directory alone until `resume`. A cleaning in progress has no effect."""
        self._paused[partition] += 1

    async def has_paused(self, partition: TopicPartition, target: str) -> None:
        """Wait until no work is in progress on a paused log. Then forget what the log directory `target` has recorded
        about this partition: from an earlier partition of the same name, or from before the partition left."""
        while partition in self._in_progress:
            self._something_ended.clear()
            await self._something_ended.wait()
        if self._checkpoint_in(target).pop(partition, None) is not None:
            await self._write_checkpoint_in(target)

    def resume(self, partition: TopicPartition) -> None:
        self._paused[partition] -= 1
        if not self._paused[partition]:
            del self._paused[partition]

    async def moved(self, log: Log, former_parent: str) -> None:
        """The log is now in another directory: the part that was clean there is clean here."""
        cleaned = self._checkpoint_in(former_parent).pop(log.topic_partition, None)
        if cleaned is not None:
            self._checkpoint_of(log)[log.topic_partition] = cleaned
            await self._write_checkpoint(log)

    async def truncated(self, log: Log, offset: int) -> None:
        """The log was cut at `offset`: records appended there later are dirty."""
        offsets = self._checkpoint_of(log)
        if offsets.get(log.topic_partition, 0) > offset:
            offsets[log.topic_partition] = offset
            await self._write_checkpoint(log)

    async def replace(self, log: Log, segment: Segment, make: Callable[[], None]) -> bool:
        """Replace a closed segment with the cleaned segment that `make` writes on a worker thread. False if this is not
        possible now: the log is being cleaned, or has changed."""
        partition = log.topic_partition
        if partition in self._in_progress or partition in self._paused:
            return False
        self._in_progress.add(partition)
        try:
            await self._in_thread(lambda: remove_cleaned(self._files, log.directory))
            await self._in_thread(make)
            group = CleanedGroup(segment.base_offset, [segment.base_offset], segment.size)
            replaced = await _uninterrupted(self._swap(log, [segment], group))
        finally:
            self._end(partition)
        if replaced:
            log.repairs += 1
        return replaced

    def _find(self) -> LogToClean | None:
        now_ms = self._clock.now_ms()
        candidates = [
            measure(replica, self._checkpoint_of(log).get(log.topic_partition), now_ms)
            for replica in self._replicas()
            if "compact" in (log := replica.log).settings.cleanup_policy
            and log.topic_partition not in self._in_progress
            and log.topic_partition not in self._postponed
            and log.topic_partition not in self._paused
            and self._uncleanable.get(log.topic_partition) != log.repairs
        ]
        return dirtiest(candidates)

    async def _clean(self, found: LogToClean) -> bool:
        log = found.replica.log
        partition = log.topic_partition
        job = self._job(found)
        outcome = await self._compact(job)
        if isinstance(outcome, CompactionFailure):
            if outcome.permanent:
                self._uncleanable[partition] = log.repairs
                for segment in found.segments:
                    segment.is_suspect = True
                log.on_corruption()
            logger.error(
                "%s %s: %s",
                partition,
                "cannot be compacted" if outcome.permanent else "was not compacted",
                outcome.message,
            )
            return False
        for group in outcome.groups:
            if not await _uninterrupted(self._swap(log, found.segments, group)):
                logger.info("%s changed while it was compacted; what was compacted of it is dropped", partition)
                await self._in_thread(lambda: remove_cleaned(self._files, log.directory))
                return False
        self._checkpoint_of(log)[partition] = outcome.end_offset
        await self._write_checkpoint(log)
        logger.info(
            "%s is compacted up to %d: %d of %d records kept, %d bytes read, %d written",
            partition,
            outcome.end_offset,
            outcome.records_kept,
            outcome.records_read,
            outcome.bytes_read,
            outcome.bytes_written,
        )
        return True

    def _job(self, found: LogToClean) -> CompactionJob:
        log = found.replica.log
        topic = log.settings
        node = self._settings()
        ends = [*(segment.base_offset for segment in found.segments[1:]), found.end_offset]
        return CompactionJob(
            directory=log.directory,
            segments=[
                SourceSegment(
                    segment.base_offset,
                    segment.size,
                    len(segment.index) * segment.index.entry.size,
                    len(segment.time_index) * segment.time_index.entry.size,
                    end,
                )
                for segment, end in zip(found.segments, ends, strict=True)
            ],
            first_dirty_offset=found.first_dirty_offset,
            high_watermark=found.replica.high_watermark,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=topic.segment_bytes,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            producers={
                entry.producer_id: ActiveProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for entry in log.producers.entries
            },
            map_bytes=int(node.log_cleaner_dedupe_buffer_size * node.log_cleaner_io_buffer_load_factor),
            max_decompressed_bytes=node.socket_request_max_bytes,
            bytes_per_second=node.log_cleaner_io_max_bytes_per_second,
        )

    async def _compact(self, job: CompactionJob) -> CompactionResult | CompactionFailure:
        # Named like a segment's files, so that cleanup code removes them as well.
        prefix = os.path.join(job.directory, file_name(job.segments[0].base_offset, ""))
        job_path = f"{prefix}.job{CLEANED_SUFFIX}"
        result_path = f"{prefix}.result{CLEANED_SUFFIX}"

        def write_job() -> None:
            remove_cleaned(self._files, job.directory)
            file = self._files.open(job_path, create=True)
            try:
                file.pwrite(job.to_json().encode(), 0)
            finally:
                file.close()

        def read_result() -> str:
            text = read_file(self._files, result_path).decode()
            self._files.remove(job_path)
            self._files.remove(result_path)
            return text

        await self._in_thread(write_job)
        code = await self._processes.run(COMPACTION_MODULE, [job_path, result_path])
        if code != 0:
            return CompactionFailure(f"the compaction process ended with {code}", permanent=False)
        return outcome_from_json(await self._in_thread(read_result))

    async def _swap(self, log: Log, sources: Sequence[Segment], group: CleanedGroup) -> bool:
        """Swap in a cleaned segment. False, with nothing changed, if the log is no longer the one that was
        compacted."""
        files, directory, base_offset = self._files, log.directory, group.base_offset
        old = [segment for segment in sources if segment.base_offset in group.replaced]
        if not self._is_current(log, old):
            return False
        try:
            await self._in_thread(lambda: prepare_swap(files, directory, base_offset, group.replaced))
        except OSError:
            # A restart would adopt the prepared swap, and the log may have changed by then.
            await self._in_thread(lambda: abandon_swap(files, directory, base_offset))
            raise
        if not self._is_current(log, old):
            await self._in_thread(lambda: abandon_swap(files, directory, base_offset))
            return False
        set_aside = log.replace_segments(base_offset, group.replaced, self._clock.now_ms())
        await self._in_thread(lambda: finish_swap(files, directory, base_offset, set_aside))
        return True

    def _is_current(self, log: Log, segments: Sequence[Segment]) -> bool:
        """Whether the partition and these segments still exist, and the log is not about to be copied. After a
        deletion, the directory may belong to a new partition."""
        if log.topic_partition in self._paused or not any(replica.log is log for replica in self._replicas()):
            return False
        closed = {id(segment) for segment in log.segments[:-1]}
        return all(id(segment) in closed for segment in segments)

    # -- the checkpoint

    def _checkpoint_of(self, log: Log) -> dict[TopicPartition, int]:
        """The checkpoint for all partitions in the log's parent directory."""
        return self._checkpoint_in(os.path.dirname(log.directory))

    def _checkpoint_in(self, parent: str) -> dict[TopicPartition, int]:
        offsets = self._checkpoints.get(parent)
        if offsets is None:
            try:
                offsets = read_offset_checkpoint(self._files, os.path.join(parent, CLEANER_CHECKPOINT))
            except MalformedCheckpoint as error:
                logger.warning("%s; all compacted logs there are taken for dirty", error)
                offsets = {}
            # Drops partitions that were deleted without a call of `forget`.
            present = {replica.log.topic_partition for replica in self._replicas()}
            offsets = {partition: offset for partition, offset in offsets.items() if partition in present}
            self._checkpoints[parent] = offsets
        return offsets

    async def _write_checkpoint(self, log: Log) -> None:
        await self._write_checkpoint_in(os.path.dirname(log.directory))

    async def _write_checkpoint_in(self, parent: str) -> None:
        path = os.path.join(parent, CLEANER_CHECKPOINT)
        async with self._writing:
            offsets = dict(self._checkpoint_in(parent))
            await self._in_thread(lambda: write_offset_checkpoint(self._files, path, offsets))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(None, work)


async def _uninterrupted(work: Coroutine[None, None, Result]) -> Result:
    """Complete a decided swap, even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
