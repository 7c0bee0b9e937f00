"""Live pages: an event stream sends the parts of a page that changed since they were sent.

What all tabs of an address get is rendered once for each user.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request

from penstock.console.pages.layout import Page, trouble
from penstock.console.server.sessions import Session
from penstock.console.server.streams import event
from penstock.console.server.workspace import Workspace

_RENDERED_MAX = 256

Render = Callable[[], Awaitable[Page]]


class LivePages:
    def __init__(self) -> None:
        self._rendered: dict[tuple[str | None, str], tuple[int, dict[str, str]]] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all streams: the server waits for open responses."""
        self._stopping.set()

    async def stream(
        self, request: Request, session: Session, workspace: Workspace, render: Render
    ) -> AsyncIterator[bytes]:
        """Until the browser goes, or the session is over."""
        address = f"{request.url.path}?{request.url.query}"
        sent: dict[str, str] = {}
        problem: str | None = None
        changes = workspace.changes()
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            yield b": live\n\n"
            while True:
                change = asyncio.ensure_future(anext(changes, None))
                await asyncio.wait({change, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done() or await change is None or session.is_over():
                    change.cancel()
                    return
                parts = await self._parts(session.user, address, workspace, render)
                changed = {identity: html for identity, html in parts.items() if sent.get(identity) != html}
                sent |= changed
                if workspace.seen.problem != problem:
                    problem = workspace.seen.problem
                    changed["trouble"] = "" if problem is None else trouble(problem)
                at_ms = 0 if workspace.seen.now is None else workspace.seen.now.at_ms
                yield event("parts", {"parts": changed, "at": at_ms})
        finally:
            stopping.cancel()

    async def _parts(self, user: str | None, address: str, workspace: Workspace, render: Render) -> dict[str, str]:
        key = (user, address)
        known = self._rendered.get(key)
        if known is not None and known[0] == workspace.version:
            return known[1]
        page = await render()
        parts: dict[str, str] = {part.identity: part.content for part in page.parts if part.live}
        if len(self._rendered) >= _RENDERED_MAX:
            self._rendered.pop(next(iter(self._rendered)))
        self._rendered.pop(key, None)
        self._rendered[key] = (workspace.version, parts)
        return parts
