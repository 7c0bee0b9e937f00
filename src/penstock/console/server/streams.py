"""Server-sent events, and iterators that block, stepped in threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any, TypeVar

from starlette.responses import StreamingResponse

from penstock.console.observe.access import ClusterAccess

Item = TypeVar("Item")

HEARTBEAT_S = 15.0
_END: Any = object()


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def stepped(iterator: Iterator[Item], access: ClusterAccess) -> AsyncGenerator[Item, None]:
    """Each step in a thread, with connections of this user. The iterator is closed in the end, also if the rest is not
    wanted."""
    step: asyncio.Task[Any] | None = None
    try:
        while True:
            step = asyncio.create_task(asyncio.to_thread(lambda: access.run(next, iterator, _END)))
            item = await asyncio.shield(step)
            if item is _END:
                return
            yield item
    finally:
        close = getattr(iterator, "close", None)
        if step is not None and not step.done():
            # The thread is still in the iterator: it is closed when this step has ended.
            step.add_done_callback(lambda ended: _close(ended, close))
        elif close is not None:
            close()


def _close(ended: asyncio.Task[Any], close: Any) -> None:
    if not ended.cancelled() and ended.exception() is None and close is not None:
        close()
