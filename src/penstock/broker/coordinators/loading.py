"""Loads shards: replays the log of a partition into a shard, in order, from start to end.

A load holds the event loop for one slice of a few milliseconds, then lets other work run. All loads of a broker share
the slice and take turns; otherwise they would add up when fifty partitions move at once. A thread reads data that has
left the page cache, and decompresses large batches. The log's end does not move meanwhile: only this broker appends,
and only after the shard is loaded.

Records of unknown types or versions, written by a later release, are logged and skipped: they cannot change anything
here. A record of a known type that cannot be read ends the load. As in Kafka for groups, the partition then has no
coordinator until the next election.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.broker.coordinators.shard import NO_PRODUCER, ShardT
from penstock.broker.partitions.replica import Replica
from penstock.log.log import Slice
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import MalformedMessage
from penstock.records.batch import BatchHeader, Buffer, CorruptBatch, check_crc, iterate_headers
from penstock.records.compression import RecordsTooLarge
from penstock.records.control import read_transaction_marker
from penstock.records.record import iterate_spans, records_body

if TYPE_CHECKING:
    from penstock.broker.coordinators.coordinator import Coordinator

logger = logging.getLogger("penstock.coordinator")

RECORDS_BETWEEN_LOOKS: Final = 100
READ_BYTES_MAX: Final = 512 * 1024
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
DECOMPRESSED_HERE_BYTES_MAX: Final = 64 * 1024  # a thread decompresses larger batches
# From this many records on, exempt the shard from garbage collection: a full collection over a hundred thousand offsets
# takes 30 ms.
MANY_RECORDS: Final = 1000


class Load(Generic[ShardT]):
    """One load in progress. It ends with a call of `done` or `failed`, unless it is cancelled."""

    def __init__(
        self,
        coordinator: Coordinator[ShardT],
        replica: Replica,
        shard: ShardT,
        done: Callable[[ShardT], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._loop = coordinator.loop
        self._loads = coordinator.loads
        self._records = coordinator.records
        self._replay_record = coordinator.replay
        self._replay_bytes = None if coordinator.bytes_replay is None else coordinator.bytes_replay(shard)
        self._end_transaction = coordinator.end_transaction
        self._replica = replica
        self._log = replica.log
        self._shard = shard
        self._done = done
        self._failed = failed
        self._read_bytes = min(coordinator.load_buffer_size, READ_BYTES_MAX)
        self._offset = self._log.log_start_offset
        self._end = self._log.log_end_offset
        self._count = 0
        self._unknown: dict[str, int] = {}
        self._began = self._loop.time()
        self._steps: Iterator[Any] | None = None
        self._body: asyncio.Future[bytes] | None = None
        self._is_over = False
        self._loads.add(self._go_on)

    def cancel(self) -> None:
        self._is_over = True

    def _go_on(self, until: float) -> bool:
        """Replay for one slice; returns False if there is nothing more to do now."""
        if self._is_over:
            return False
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return self._run_until(until)
        except CorruptBatch as error:
            self._log.on_corruption()
            self._give_up(error)
        except (KafkaError, MalformedMessage) as error:
            self._give_up(error)
        except Exception as error:  # a bug of ours: it must not leave the partition loading forever
            logger.exception("%s cannot be replayed", self._replica.topic_partition)
            self._give_up(error)
        finally:
            if was_enabled:
                if self._count >= MANY_RECORDS:
                    gc.freeze()  # loaded objects stay, or reference counting frees them
                gc.enable()
        return False

    def _give_up(self, error: Exception) -> None:
        self._is_over = True
        known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self._failed(known)

    def _run_until(self, until: float) -> bool:
        time = self._loop.time
        while time() < until:
            if self._steps is None:
                if self._offset >= self._end:
                    self._finish()
                    return False
                found = self._log.read_cached(self._offset, self._read_bytes, self._end)
                if found is None:
                    self._read_from_disk()
                    return False
                self._steps = self._replay(found)
            step: Any = next(self._steps, self)
            if step is self:
                self._steps = None
            elif step is not None:
                self._decompress(step)
                return False
        return True

    def _decompress(self, work: Callable[[], bytes]) -> None:
        def done(future: asyncio.Future[bytes]) -> None:
            if self._is_over or future.cancelled():
                return
            self._body = future
            self._loads.add(self._go_on)

        self._loop.run_in_executor(None, work).add_done_callback(done)

    def _read_from_disk(self) -> None:
        log, offset, size, end = self._log, self._offset, self._read_bytes, self._end
        future = self._loop.run_in_executor(None, lambda: log.read(offset, size, end, at_least_one=True))
        future.add_done_callback(self._was_read)

    def _was_read(self, future: asyncio.Future[Slice]) -> None:
        if self._is_over or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._give_up(error if isinstance(error, Exception) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._steps = self._replay(future.result())
        self._loads.add(self._go_on)

    def _replay(self, found: Slice) -> Iterator[Callable[[], bytes] | None]:
        """Replays the batches of a slice record by record. Yields where it may be interrupted; a yielded callable must
        run on a thread before the replay can continue."""
        data = found.data
        if not data:
            self._offset = self._end  # compaction removed everything up to the end
        for position, header in iterate_headers(data):
            if header.last_offset < self._offset:
                continue
            check_crc(data, position, header)
            if header.is_control:
                marker = read_transaction_marker(data, position, header)
                if marker is not None and self._end_transaction is not None:
                    self._end_transaction(self._shard, header.producer_id, header.producer_epoch, marker.committed)
            else:
                yield from self._replay_batch(data, position, header)
            self._offset = header.last_offset + 1
            yield None

    def _replay_batch(self, data: Buffer, position: int, header: BatchHeader) -> Iterator[Callable[[], bytes] | None]:
        try:
            body = records_body(data, position, header, max_size=DECOMPRESSED_HERE_BYTES_MAX)
        except RecordsTooLarge:
            yield partial(records_body, data, position, header, max_size=DECOMPRESSED_BYTES_MAX)
            assert self._body is not None
            body = self._body.result()
            self._body = None
        is_plain = not header.is_transactional
        producer_id = NO_PRODUCER if is_plain else header.producer_id
        replay_bytes = self._replay_bytes if is_plain else None
        skipped = self._offset - header.base_offset
        until_look = RECORDS_BETWEEN_LOOKS
        for _, _, _, timestamp_delta, offset_delta, key, start, end, _ in iterate_spans(body, header):
            if offset_delta < skipped:
                continue
            value = None if start < 0 else body[start:end]
            if replay_bytes is None or not replay_bytes(key, value):
                known = self._records.decode(key, value)
                if known is None:
                    self._leave_alone(key, value)
                else:
                    timestamp = header.base_timestamp + timestamp_delta
                    offset = header.base_offset + offset_delta
                    self._replay_record(self._shard, known.key, known.value, producer_id, timestamp, offset)
            self._count += 1
            until_look -= 1
            if not until_look:
                until_look = RECORDS_BETWEEN_LOOKS
                yield None

    def _leave_alone(self, key: bytes | None, value: bytes | None) -> None:
        kind = f"type {(key or b'')[:2].hex()} and version {(value or b'')[:2].hex() or '-'}"
        self._unknown[kind] = self._unknown.get(kind, 0) + 1

    def _finish(self) -> None:
        self._is_over = True
        for kind, count in self._unknown.items():
            logger.warning(
                "%s: %d records of %s are not known here, and left alone; a later version may have written them",
                self._replica.topic_partition,
                count,
                kind,
            )
        if self._count:
            logger.info(
                "%s: loaded %d records in %d ms",
                self._replica.topic_partition,
                self._count,
                (self._loop.time() - self._began) * 1000,
            )
        self._done(self._shard)
