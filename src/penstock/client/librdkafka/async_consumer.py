"""`AsyncConsumer`: the consumer for asyncio.

    async with AsyncConsumer("127.0.0.1:9092", "orders", group="billing", value=Json(Order)) as consumer:
        async for record in consumer:
            await bill(record.value)

It has its own thread: calls that may wait for the cluster run there, one after the other, while records are decoded and
returned in the loop. A cancelled read loses nothing: its records are the first of the next read. Rebalance hooks may be
coroutine functions; the thread waits for them.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from re import Pattern
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from penstock.client.errors import ClientError, Closed, noted_on
from penstock.client.librdkafka.consumer_base import CHUNK, ConsumerBase, Offset, Start
from penstock.client.librdkafka.dead_letters import DeadLetter
from penstock.client.librdkafka.rebalances import Hook
from penstock.client.librdkafka.record import Batch, Record
from penstock.client.librdkafka.types import K, Timestamp, V
from penstock.model.ids import TopicPartition
from penstock.serializers.base import Deserializer

T = TypeVar("T")

_WAIT_S = 0.2

AsyncHook = Callable[[list[TopicPartition]], Awaitable[None] | None]


class AsyncConsumer(Generic[K, V]):
    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        pattern: str | Pattern[str] | None = None,
        group: str | None = None,
        key: Deserializer[K] | None = None,
        value: Deserializer[V] | None = None,
        start: Start = "earliest",
        auto_commit: bool = True,
        on_error: Literal["raise", "skip"] | DeadLetter = "raise",
        on_assigned: AsyncHook | None = None,
        on_revoked: AsyncHook | None = None,
        on_lost: AsyncHook | None = None,
        timeout: float = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """As `Consumer`; `start()`, or entering the block, contacts the cluster first."""
        self._topics = topics
        self._pattern = pattern
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-consumer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: SimpleQueue[Callable[[], None] | None] | None = None
        self._inbox_lock = threading.Lock()
        self._is_closed = False
        self._filling: asyncio.Future[None] | None = None
        self._consumer: ConsumerBase[K, V] = ConsumerBase(
            bootstrap,
            group=group,
            key=key,
            value=value,
            start=start,
            auto_commit=auto_commit,
            on_error=on_error,
            on_assigned=self._hook(on_assigned),
            on_revoked=self._hook(on_revoked),
            on_lost=self._hook(on_lost),
            timeout=timeout,
            settings=settings,
        )

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer._interrupted_by(error)
        with noted_on(error):
            await self.close()

    async def start(self) -> None:
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        if self._topics or self._pattern is not None:
            try:
                await self._do(self._consumer.subscribe, *self._topics, pattern=self._pattern)
            except BaseException:
                await self.close()
                raise

    def _hook(self, hook: AsyncHook | None) -> Hook | None:
        """Wrap a hook: the consumer's thread runs it in the loop and executes the hook's calls meanwhile."""
        if hook is None:
            return None

        async def in_loop(partitions: list[TopicPartition]) -> None:
            result = hook(partitions)
            if inspect.isawaitable(result):
                await result

        def call(partitions: list[TopicPartition]) -> None:
            assert self._loop is not None
            with self._inbox_lock:
                inbox = self._inbox = SimpleQueue()
            hooked = asyncio.run_coroutine_threadsafe(in_loop(partitions), self._loop)
            hooked.add_done_callback(lambda _: inbox.put(None))
            while (work := inbox.get()) is not None:
                work()
            with self._inbox_lock:
                self._inbox = None
            while not inbox.empty():
                if (work := inbox.get()) is not None:
                    work()
            hooked.result()

        return call

    async def _do(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run a function in the consumer's thread, also while that thread waits for a hook."""
        if self._is_closed and function != self._consumer.close and self._inbox is None:
            raise Closed("the consumer is closed: make a new one")
        if self._loop is None:
            raise ClientError("enter `async with consumer:` or `await consumer.start()` first")
        done: Future[T] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(function(*arguments, **options))
            except BaseException as error:  # noqa: BLE001  # it is for who awaits
                done.set_exception(error)

        with self._inbox_lock:
            if self._inbox is not None:
                self._inbox.put(work)
            else:
                self._thread.submit(work)
        return await asyncio.wrap_future(done)

    # Reading.

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self.records()

    async def records(self, idle: float | None = None) -> AsyncIterator[Record[K, V]]:
        """Iterate over records; with `idle`, until none came for so many seconds after partitions were assigned."""
        rebalances = self._consumer._rebalances
        while True:
            let_in = rebalances.let_in
            record = await self.poll(idle)
            if record is not None:
                yield record
            elif let_in:
                return

    async def poll(self, timeout: float | None = 0.0) -> Record[K, V] | None:  # noqa: ASYNC109  # as the synchronous twin
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._consumer._must_fill():
                await self._fill(CHUNK, deadline)
            record = self._consumer._next_unread()
            if record is not None:
                return record
            if deadline is not None and time.monotonic() >= deadline:
                return None

    async def batch(self, max_records: int = 500, timeout: float | None = 1.0) -> Batch[K, V]:  # noqa: ASYNC109  # as the synchronous twin
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._consumer._must_fill():
                await self._fill(max_records, deadline)
            batch = self._consumer._take(max_records)
            if batch or (deadline is not None and time.monotonic() >= deadline):
                return batch

    async def _fill(self, count: int, deadline: float | None) -> None:
        """Read, one read at a time: after a cancelled read, the next waits for its end and returns its records.

        No read is long, so that closing never waits for one.
        """
        if self._filling is None or self._filling.done():
            wait = _WAIT_S if deadline is None else min(max(deadline - time.monotonic(), 0.0), _WAIT_S)
            self._filling = asyncio.ensure_future(self._do(self._consumer._fill, count, wait))
        filling = self._filling
        await asyncio.shield(filling)

    @property
    def skipped(self) -> int:
        return self._consumer.skipped

    @property
    def dead_lettered(self) -> int:
        return self._consumer.dead_lettered

    # Methods of the consumer, run in its thread.

    async def subscribe(self, *topics: str, pattern: str | Pattern[str] | None = None) -> None:
        await self._do(self._consumer.subscribe, *topics, pattern=pattern)

    async def assign(self, partitions: Mapping[TopicPartition, Offset | None] | Iterable[TopicPartition]) -> None:
        await self._do(self._consumer.assign, partitions)

    async def assignment(self) -> list[TopicPartition]:
        return await self._do(self._consumer.assignment)

    async def commit(self, record: Record[K, V] | None = None) -> None:
        await self._do(self._consumer.commit, record)

    async def offsets_for_transaction(self) -> tuple[list[Any], Any]:
        return await self._do(self._consumer.offsets_for_transaction)

    async def positions(self) -> dict[TopicPartition, int]:
        return await self._do(self._consumer.positions)

    async def committed(self) -> dict[TopicPartition, int | None]:
        return await self._do(self._consumer.committed)

    async def lag(self) -> dict[TopicPartition, int]:
        return await self._do(self._consumer.lag)

    async def seek(self, topic: str, partition: int, offset: Offset) -> None:
        await self._do(self._consumer.seek, topic, partition, offset)

    async def seek_to_time(self, time: Timestamp, *partitions: TopicPartition) -> None:
        await self._do(self._consumer.seek_to_time, time, *partitions)

    async def rewind(self) -> None:
        await self._do(self._consumer.rewind)

    async def pause(self, *partitions: TopicPartition) -> None:
        await self._do(self._consumer.pause, *partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        await self._do(self._consumer.resume, *partitions)

    async def close(self) -> None:
        """Commit, with `auto_commit`, the processed records, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._filling is not None:
            await asyncio.wait([self._filling])
        try:
            await self._do(self._consumer.close)
        finally:
            self._thread.shutdown(wait=False)
