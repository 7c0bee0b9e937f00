"""`AsyncShareConsumer`: the consumer of share groups for asyncio.

    async with AsyncShareConsumer("127.0.0.1:9092", "jobs", group="workers", value=Json(Job)) as consumer:
        async for record in consumer:
            await do(record.value)

It has its own thread: everything that contacts the cluster runs there. A cancelled read loses nothing: its records are
the first of the next read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from penstock.client.errors import Closed, noted_on
from penstock.client.wire.share.consumer import OnError, ShareConsumer
from penstock.client.wire.share.records import K, ShareRecord, V
from penstock.serializers.base import Deserializer

T = TypeVar("T")

# A read that is cancelled goes on in the thread for at most this long.
_WAIT_S = 0.2


class AsyncShareConsumer(Generic[K, V]):
    def __init__(
        self,
        bootstrap: str,
        *topics: str,
        group: str,
        key: Deserializer[K] | None = None,
        value: Deserializer[V] | None = None,
        max_records: int | None = None,
        explicit: bool = False,
        reject: tuple[type[BaseException], ...] = (),
        on_error: OnError = "raise",
        timeout: float = 30.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """As `ShareConsumer`; `start()`, or entering the block, contacts the cluster first."""
        self._new: Callable[[], ShareConsumer[K, V]] = partial(
            ShareConsumer,
            bootstrap,
            *topics,
            group=group,
            key=key,
            value=value,
            max_records=max_records,
            explicit=explicit,
            reject=reject,
            on_error=on_error,
            timeout=timeout,
            settings=settings,
        )
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-share")
        self._consumer: ShareConsumer[K, V] | None = None
        # Records that came after their reader was cancelled.
        self._left: list[ShareRecord[K, V]] = []

    async def __aenter__(self) -> AsyncShareConsumer[K, V]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        consumer = self._consumer
        if consumer is not None:
            await self._do(consumer.interrupted_by, error)
        with noted_on(error):
            await self.close()

    async def start(self) -> None:
        if self._consumer is None:
            try:
                self._consumer = await self._do(self._new)
            except BaseException:
                self._thread.shutdown(wait=False)
                raise

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                await self._do(consumer.close)
            finally:
                self._thread.shutdown(wait=False)

    def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        return self.records()

    async def records(self, idle: float | None = None) -> AsyncIterator[ShareRecord[K, V]]:
        """Iterate over records; with `idle`, until none came for so many seconds."""
        while True:
            record = await self.poll(idle)
            if record is None:
                return
            yield record

    async def poll(self, timeout: float | None = 0.0) -> ShareRecord[K, V] | None:  # noqa: ASYNC109  # as the synchronous twin
        """Return the next record, waiting up to `timeout` seconds, or indefinitely with None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._left:
                return self._left.pop(0)
            left = _WAIT_S if deadline is None else min(_WAIT_S, max(0.0, deadline - time.monotonic()))
            record = await self._read(left)
            if record is not None or (deadline is not None and time.monotonic() >= deadline):
                return record

    async def _read(self, seconds: float) -> ShareRecord[K, V] | None:
        reading = asyncio.get_running_loop().run_in_executor(self._thread, self._open.poll, seconds)
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            record = await reading
            if record is not None:
                self._left.append(record)
            raise

    async def accept(self, record: ShareRecord[K, V]) -> None:
        await self._do(self._open.accept, record)

    async def release(self, record: ShareRecord[K, V]) -> None:
        await self._do(self._open.release, record)

    async def reject(self, record: ShareRecord[K, V]) -> None:
        await self._do(self._open.reject, record)

    async def renew(self, record: ShareRecord[K, V]) -> None:
        """Lock the record for another period. CommitFailed if the lock is lost already."""
        await self._do(self._open.renew, record)

    async def flush(self) -> None:
        """Wait until the cluster knows everything that was said. CommitFailed if some of it had no effect."""
        await self._do(self._open.flush)

    @property
    def refused(self) -> int:
        """Acknowledgements that had no effect: the records were delivered again."""
        return self._open.refused

    @property
    def _open(self) -> ShareConsumer[K, V]:
        if self._consumer is None:
            raise Closed("this AsyncShareConsumer is not started, or closed")
        return self._consumer

    async def _do(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments))
