"""`AsyncProducer`: the producer for asyncio.

    async with AsyncProducer("127.0.0.1:9092", value=Json(Order)) as producer:
        sent = await producer.send("orders", order)            # wait for this one
        producer.send("orders", another)                       # or only queue it
        await producer.drain()                                 # when sending many: wait while the queue is full

`send` never blocks and never waits: records that librdkafka cannot accept yet, because its queue is full or the topic
is not known yet, wait here in order. `drain` waits until none is left, as with asyncio's stream writers. A caller that
never drains gets a `QueueFull` once as many records wait here as librdkafka's own queue holds.

There is no polling thread, because confluent-kafka takes and releases the GIL for every delivery callback: while
records are in flight, a timer of the loop polls for outcomes every few milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaException

from penstock.client.errors import ClientError, Closed, NotDelivered, TimedOut, noted_on
from penstock.client.librdkafka.delivery import AsyncDelivery
from penstock.client.librdkafka.producer_base import ANY_PARTITION, POLL, Headers, ProducerBase, unserializable
from penstock.client.librdkafka.producer_transaction import Transactions
from penstock.client.librdkafka.types import K, Timestamp, V, milliseconds

T = TypeVar("T")

_TICK_S = 0.002
_WAITING_MAX = 100_000


class _Waiting(NamedTuple):
    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp: int
    headers: Headers | None
    delivery: AsyncDelivery


class AsyncProducer(ProducerBase[K, V]):
    _loop: asyncio.AbstractEventLoop
    _waiting: deque[_Waiting]
    _ticking = False
    _opening: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> AsyncProducer[K, V]:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_on(error, NotDelivered):
            await self.close()

    def _begin(self) -> None:
        if not hasattr(self, "_loop"):
            self._loop = asyncio.get_running_loop()
            self._waiting = deque()

    def send(
        self,
        topic: str,
        value: V | None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        headers: Headers | None = None,
    ) -> AsyncDelivery:
        """Queue a record; await the returned delivery for its offset."""
        if self._closed_because is not None:
            raise Closed(self._closed_because)
        self._begin()
        if len(self._waiting) >= _WAITING_MAX:
            raise self._queue_full()
        key_data, data, headers = self._to_bytes(topic, key, value, headers)
        delivery = AsyncDelivery()
        delivery.state = self
        delivery.loop = self._loop
        at = 0 if timestamp is None else milliseconds(timestamp)
        record = _Waiting(topic, data, key_data, partition, at, headers, delivery)
        if self._waiting or topic not in self._turns or not self._hand_over(record):
            self._waiting.append(record)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(_TICK_S, self._tick)
        return delivery

    def _to_bytes(self, topic: str, key: Any, value: Any, headers: Headers | None) -> tuple[Any, Any, Headers | None]:
        if self._in_context:
            return self._serialize(topic, key, value, headers)
        data = []
        for encode, given, is_key in ((self._encode_key, key, True), (self._encode_value, value, False)):
            if encode is None or given is None:
                data.append(given)
                continue
            try:
                data.append(encode(given))
            except Exception as error:
                raise unserializable(topic, given, self._serializers[not is_key], is_key, error) from error
        return data[0], data[1], headers

    def _hand_over(self, record: _Waiting) -> bool:
        """Pass a record to librdkafka; False if its queue is full.

        A record it refuses raises here if `send` just sent it.
        """
        partition = record.partition
        if partition is None:
            partition = self._choose(record.topic, record.key, record.value)
        if partition is None:
            turn = next(self._turns[record.topic])
            partition = turn % POLL if record.key is None and not self._sticky else ANY_PARTITION
        try:
            self._produce(
                record.topic, record.value, record.key, partition, record.delivery, None, record.timestamp,
                record.headers,
            )  # fmt: skip
        except BufferError:
            return False
        except (KafkaException, TypeError, ValueError) as error:
            raise self._refused(error, record.topic, record.key, record.value) from error
        return True

    # The timer.

    def _tick(self) -> None:
        """Poll for outcomes, pass on waiting records, and repeat while any record is in flight."""
        if self._closed_because is not None:
            return
        self._poll(0)
        self._advance()
        if time.monotonic() > self._refresh_at and self._opening is None:
            self._in_background(self._refresh)
        if self._waiting or len(self._client):
            self._loop.call_later(_TICK_S, self._tick)
        else:
            self._ticking = False

    def _advance(self) -> None:
        while self._waiting:
            record = self._waiting[0]
            if record.topic not in self._turns:
                if self._opening is None:
                    self._in_background(self._open_or_fail, record.topic)
                return
            try:
                if not self._hand_over(record):
                    return
            except ClientError as error:
                record.delivery.fail(error)
            self._waiting.popleft()

    def _open_or_fail(self, topic: str) -> None:
        """Run in a thread: open the topic, or fail the records that wait for it."""
        try:
            self._open(topic)
        except ClientError as error:
            self._loop.call_soon_threadsafe(self._fail_waiting, topic, error)

    def _fail_waiting(self, topic: str, error: ClientError) -> None:
        for record in [each for each in self._waiting if each.topic == topic]:
            self._waiting.remove(record)
            record.delivery.fail(error)

    def _give_up_waiting(self, why: str) -> None:
        while self._waiting:
            record = self._waiting.popleft()
            record.delivery.fail(NotDelivered(f"{record.topic}, record with key {record.key!r:.60}: {why}"))

    def _in_background(self, function: Callable[..., None], *arguments: Any) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            self._opening = None

        self._opening = self._loop.run_in_executor(None, function, *arguments)
        self._opening.add_done_callback(done)

    # Waiting.

    async def drain(self) -> None:
        """Wait until librdkafka has accepted all records; QueueFull if there is no progress for `max_block` seconds."""
        self._check_open()
        moved, left = time.monotonic(), len(self._waiting)
        while self._waiting:
            await asyncio.sleep(_TICK_S)
            if len(self._waiting) != left or self._opening is not None:
                moved, left = time.monotonic(), len(self._waiting)
            elif time.monotonic() - moved > self._max_block:
                raise self._queue_full()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as the synchronous twin
        """Wait until all records are acknowledged; raise failures that were not checked."""
        self._check_open()
        if left := await self._flushed(timeout):
            raise TimedOut(f"{left} records were not acknowledged within {timeout:g} s; they are still being sent")
        self._raise_failures()

    async def _flushed(self, timeout: float | None) -> int:  # noqa: ASYNC109  # as the synchronous twin
        deadline = None if timeout is None else time.monotonic() + timeout
        while left := len(self._waiting) + len(self._client):
            if deadline is not None and time.monotonic() > deadline:
                return left
            # librdkafka's flush does not let records linger.
            await self._loop.run_in_executor(None, self._flush, 0.02)
            await asyncio.sleep(0 if not self._waiting else _TICK_S)
        return 0

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as the synchronous twin
        """Flush; records not acknowledged within the timeout are dropped and raised as not delivered."""
        if self._closed_because is not None:
            return
        self._begin()
        try:
            await self._in_thread(self._transactions.close)
            if await self._flushed(timeout):
                await self._in_thread(self._purge)
        finally:
            self._ended("the producer is closed: make a new one")
        self._give_up_waiting("not sent yet when the producer was closed")
        self._raise_failures()

    # Transactions.

    def transaction(self) -> AsyncTransaction:
        """`async with`: records, and offsets of an `AsyncConsumer`, that take effect together or not at all."""
        self._check_open()
        return AsyncTransaction(self._transactions, self._in_thread, self.drain, self._give_up_waiting)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(None, function, *arguments)

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise Closed(self._closed_because)
        self._begin()


class AsyncTransaction:
    """As `Transaction`, with each step in a thread."""

    def __init__(
        self,
        transactions: Transactions,
        in_thread: Callable[..., Awaitable[Any]],
        drain: Callable[[], Awaitable[None]],
        give_up_waiting: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._in_thread = in_thread
        self._drain = drain
        self._give_up_waiting = give_up_waiting

    async def __aenter__(self) -> AsyncTransaction:
        await self._in_thread(self._transactions.begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._drain()
            await self._in_thread(self._transactions.commit)
            return
        self._give_up_waiting("its transaction was aborted")
        try:
            await self._in_thread(self._transactions.abort)
        except ClientError as failure:
            error.add_note(f"and the transaction could not be aborted: {failure}")

    async def send_offsets(self, consumer: Any) -> None:
        """Commit the consumer's positions with the transaction; all records that it has returned count as processed."""
        offsets, group = await consumer.offsets_for_transaction()
        await self._in_thread(self._transactions.send_offsets, offsets, group)
