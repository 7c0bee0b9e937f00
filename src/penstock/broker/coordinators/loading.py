"""Loading a shard: everything in the log, from its start to its end, replayed in order.

The event loop is not held for longer than a slice: records are replayed for a few milliseconds, then everybody else has
a turn. What has left the page cache is read on a thread. The log's end does not move meanwhile: only this broker
appends to it, and does not before the shard is loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Generic

from penstock.broker.coordinators.shard import NO_PRODUCER, ShardT
from penstock.broker.replica import Replica
from penstock.log.log import Slice
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import MalformedMessage
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.control import read_transaction_marker
from penstock.records.record import iterate_records

if TYPE_CHECKING:
    from penstock.broker.coordinators.coordinator import Coordinator

logger = logging.getLogger("penstock.coordinator")

SLICE_SECONDS: Final = 0.005
RECORDS_BETWEEN_LOOKS: Final = 50
READ_BYTES_MAX: Final = 512 * 1024
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024


class Load(Generic[ShardT]):
    """One load under way; it ends by calling `done` or `failed`, unless it is cancelled."""

    def __init__(
        self,
        coordinator: Coordinator[ShardT],
        replica: Replica,
        shard: ShardT,
        done: Callable[[ShardT], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._loop = coordinator.loop
        self._records = coordinator.records
        self._replay_record = coordinator.replay
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
        self._began = self._loop.time()
        self._steps: Iterator[None] | None = None
        self._is_over = False
        self._loop.call_soon(self._go_on)

    def cancel(self) -> None:
        self._is_over = True

    def _go_on(self) -> None:
        if self._is_over:
            return
        try:
            self._slice()
        except (KafkaError, MalformedMessage) as error:
            self._give_up(error)
        except Exception as error:  # a defect of ours, which must not leave the partition in loading for ever
            logger.exception("%s cannot be replayed", self._replica.topic_partition)
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._is_over = True
        known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        self._failed(known)

    def _slice(self) -> None:
        """Replay for a while; then go on later, or end."""
        until = self._loop.time() + SLICE_SECONDS
        while self._loop.time() < until:
            if self._steps is None:
                if self._offset >= self._end:
                    self._finish()
                    return
                found = self._log.read(self._offset, self._read_bytes, self._end, at_least_one=True, cached_only=True)
                if found is None:
                    self._read_from_disk()
                    return
                self._steps = self._replay(found)
            if next(self._steps, self) is self:
                self._steps = None
        self._loop.call_soon(self._go_on)

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
        self._go_on()

    def _replay(self, found: Slice) -> Iterator[None]:
        """The batches of a slice, one record after the other; yields where it may be interrupted."""
        data, replay = found.data, self._replay_record
        if not data:
            self._offset = self._end  # compaction has left nothing up to the end
        for position, header in iterate_headers(data):
            if header.last_offset < self._offset:
                continue
            check_crc(data, position, header)
            if header.is_control:
                marker = read_transaction_marker(data, position, header)
                if marker is not None and self._end_transaction is not None:
                    self._end_transaction(self._shard, header.producer_id, header.producer_epoch, marker.committed)
            else:
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
                for record in iterate_records(data, position, header, max_size=DECOMPRESSED_BYTES_MAX):
                    if record.offset < self._offset:
                        continue
                    known = self._records.decode(record.key, record.value)
                    if known is not None:
                        replay(self._shard, known.key, known.value, producer_id, record.timestamp)
                    self._count += 1
                    if self._count % RECORDS_BETWEEN_LOOKS == 0:
                        yield
            self._offset = header.last_offset + 1
            yield

    def _finish(self) -> None:
        self._is_over = True
        if self._count:
            logger.info(
                "%s: loaded %d records in %d ms",
                self._replica.topic_partition,
                self._count,
                (self._loop.time() - self._began) * 1000,
            )
        self._done(self._shard)
