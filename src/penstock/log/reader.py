"""What readers see of a log, from the event loop or from a worker thread.

Reading finds the batch that holds an offset (segment by bisection, position by index, then a few headers) and returns
whole batches below a maximal offset. On the event loop it never waits for the disk: what is not in the page cache is
read again on a worker thread, while the loop goes on appending, rolling and deleting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal, TypeVar, overload

from penstock.io.files import FileSystem
from penstock.log.handles import Handles, LoopAccess, NotCached, OwnAccess
from penstock.log.index import CorruptIndex
from penstock.log.segment import Segment
from penstock.log.segments import LogEnd, Segments, Slice, TimestampedOffset
from penstock.log.transaction_index import AbortedTransaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import CorruptBatch
from penstock.replication.producers import ProducerStates

logger = logging.getLogger("penstock.log")

Found = TypeVar("Found")

# Each time something must have changed under the reader; more often than that it is not chance.
_ATTEMPTS = 3
# What one batch may decompress to when its records are searched; socket.request.max.bytes where that is known.
DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024


@owned_by_loop(
    anywhere=(
        "read",
        "read_committed",
        "_read_waiting",
        "_undisturbed",
        "offset_for_timestamp",
        "offset_of_max_timestamp",
        "_search",
        "_described",
    ),
    shared=("_cut_during_flush", "_epochs_changed"),  # by `flush`
)
class ReadableLog:
    """The state that appending and removing change, and everything that only looks at it."""

    _active: Segment

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        handles: Handles,
        producers: ProducerStates,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.producers = producers
        self.log_start_offset = 0
        self._files = files
        self._handles = handles
        self._loop_access = LoopAccess(handles)
        self._segments = Segments(files, [])
        self._next_offset = 0
        self._replacing = threading.Lock()
        """Held while compacted segments are swapped in, and for a moment by worker threads that begin to read."""
        self._replacements = 0
        self.on_corruption: Callable[[], None] = _nobody_cares
        """Called when a reader, on any thread, has found a batch that is not what was written."""

    @property
    def log_end_offset(self) -> int:
        return self._next_offset

    @property
    def size(self) -> int:
        return self._segments.size

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last one is active."""
        return self._segments.copy()

    @property
    def first_base_offset(self) -> int:
        return self._segments[0].base_offset

    @property
    def active_segment(self) -> Segment:
        return self._active

    @overload
    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        *,
        at_least_one: bool = True,
        cached_only: Literal[False] = False,
        doubted: bool = False,
    ) -> Slice: ...

    @overload
    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        *,
        at_least_one: bool = True,
        cached_only: bool,
        doubted: bool = False,
    ) -> Slice | None: ...

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        *,
        at_least_one: bool = True,
        cached_only: bool = False,
        doubted: bool = False,
    ) -> Slice | None:
        """Whole batches from `offset` on, up to `max_bytes` and below `max_offset`; the first one whatever its size if
        `at_least_one`.

        With `cached_only` (on the event loop only) None is returned where this would wait for the disk; the caller
        repeats the read on a worker thread without it. What does come from the disk is checked, and so is what the
        reader has `doubted`.
        """
        end = self._next_offset
        if max_offset > end:
            max_offset = end
        if offset >= max_offset or offset < self.log_start_offset:
            if offset > end or offset < self.log_start_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{self.topic_partition}: offset {offset} is not in {self.log_start_offset} to {end}",
                )
            return Slice(b"", offset)
        try:
            if cached_only:
                active = self._active
                log_end = LogEnd(active, active.size, end)
                return self._segments.read(
                    offset, max_bytes, max_offset, log_end, at_least_one, self._loop_access, doubted
                )
            return self._read_waiting(offset, max_bytes, max_offset, at_least_one)[0]
        except NotCached:
            return None
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._described("cannot be read", error) from error
        except CorruptIndex as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def read_committed(
        self, offset: int, max_bytes: int, max_offset: int, *, at_least_one: bool = True
    ) -> tuple[Slice, list[AbortedTransaction]]:
        """On a worker thread: what `read` gives, and the aborted transactions that overlap it. Both are of one moment,
        whatever retention and compaction do meanwhile."""
        try:
            return self._read_waiting(offset, max_bytes, max_offset, at_least_one, with_aborted=True)
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._described("cannot be read", error) from error
        except CorruptIndex as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _read_waiting(
        self, offset: int, max_bytes: int, max_offset: int, at_least_one: bool, *, with_aborted: bool = False
    ) -> tuple[Slice, list[AbortedTransaction]]:
        """The event loop may append, roll or delete meanwhile. So the end of the log, an offset and a position that
        belong together only on the event loop, is not used: where to stop is found by searching for `max_offset`."""

        def read() -> tuple[Slice, list[AbortedTransaction]]:
            # These first: were they gone when the records are read, those would be, too, and the read fails.
            aborted = self._segments.aborted_transactions(offset, max_offset) if with_aborted else []
            with OwnAccess(self._files) as access:
                found = self._segments.read(offset, max_bytes, max_offset, None, at_least_one, access, True)
            return found, aborted

        for _ in range(_ATTEMPTS):
            try:
                return self._undisturbed(read)
            except FileNotFoundError:
                if offset < self.log_start_offset:
                    raise KafkaError(
                        ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition}: offset {offset} was deleted"
                    ) from None
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: offset {offset} moved under a read")

    def _undisturbed(self, read: Callable[[], Found]) -> Found:
        """The result of a read on a worker thread; it is repeated if compacted segments were swapped in meanwhile, as
        it may have seen the old description of a segment and the bytes of the new one."""
        for _ in range(_ATTEMPTS):
            with self._replacing:
                replacements = self._replacements
            try:
                found = read()
            except (OSError, CorruptIndex, KafkaError):
                if self._replacements == replacements:
                    raise
            else:
                if self._replacements == replacements:
                    return found
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: its segments moved under a read")

    def offset_for_timestamp(
        self, timestamp: int, *, max_size: int = DECOMPRESSED_BYTES_MAX
    ) -> TimestampedOffset | None:
        """The first record whose timestamp is at least `timestamp`. For a worker thread: it reads from the disk, and
        decompresses up to `max_size` bytes of a batch."""
        return self._search(lambda: self._segments.offset_for_timestamp(timestamp, self.log_start_offset, max_size))

    def offset_of_max_timestamp(self, *, max_size: int = DECOMPRESSED_BYTES_MAX) -> TimestampedOffset | None:
        """The first record with the largest timestamp. For a worker thread, too."""
        return self._search(lambda: self._segments.offset_of_max_timestamp(max_size))

    def _search(self, search: Callable[[], TimestampedOffset | None]) -> TimestampedOffset | None:
        try:
            return self._undisturbed(search)
        except CorruptBatch:
            self.on_corruption()
            raise
        except OSError as error:
            raise self._described("cannot be searched", error) from error
        except CorruptIndex as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def last_stable_offset(self, high_watermark: int) -> int:
        return max(self.producers.last_stable_offset(high_watermark), self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """For a reader of committed data that was given the batches in [start, end)."""
        return self._segments.aborted_transactions(start, end)

    def _described(self, what: str, error: OSError) -> KafkaError:
        logger.error("%s %s: %s", self.directory, what, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} {what}: {error}")


def _nobody_cares() -> None:
    """Until somebody says that he does."""
