"""Server-sent events, and iterators that block, stepped in threads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from starlette.responses import StreamingResponse

from penstock.console.observe.access import ClusterAccess

Item = TypeVar("Item")

HEARTBEAT_S = 15.0
_END: Any = object()


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


class _Steps(Generic[Item]):
    """An iterator that blocks, of which one thread at a time takes a step. The last thread that leaves it closes it."""

    def __init__(self, iterator: Iterator[Item], access: ClusterAccess) -> None:
        self._iterator = iterator
        self._access = access
        self._lock = threading.Lock()
        self._is_inside = False
        self._abandoned = threading.Event()

    def take(self) -> Any:
        with self._lock:
            if self._abandoned.is_set():
                return _END
            self._is_inside = True
        try:
            return self._access.run(next, self._iterator, _END)
        finally:
            with self._lock:
                self._is_inside = False
                is_last = self._abandoned.is_set()
            if is_last:
                self._close()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned.set()
            is_last = not self._is_inside
        if is_last:
            self._close()

    def _close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


async def stepped(iterator: Iterator[Item], access: ClusterAccess) -> AsyncGenerator[Item, None]:
    """Each step in a thread, with connections of this user. The iterator is closed in the end, also if the rest is not
    wanted: a thread that is still in it closes it after its step."""
    steps = _Steps(iterator, access)
    try:
        while True:
            step = asyncio.create_task(asyncio.to_thread(steps.take))
            step.add_done_callback(_forget_failure)
            item = await asyncio.shield(step)
            if item is _END:
                return
            yield item
    finally:
        steps.abandon()


def _forget_failure(ended: asyncio.Task[Any]) -> None:
    """No coroutine may be left to take the exception; asyncio would report it as never retrieved."""
    if not ended.cancelled():
        ended.exception()
