"""Several clusters in one console: each has all pages under /c/NAME, sessions of its own, and a sign-in of its own.

    /, /c/              all of them, side by side
    /c/prod/topics      the topics of prod
    /static/...         shared

Each cluster is a console of its own (`server.app`) that does not know where it stands: its pages link to /topics. Here
the path of a request loses its prefix, and addresses in pages and redirections get it (`markup.links_under`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from penstock.console.markup import links_under
from penstock.console.pages.clusters import listing
from penstock.console.pages.layout import SECTIONS, Frame, Page, Part, document
from penstock.console.server.app import Console
from penstock.console.server.guard import Guard
from penstock.console.server.static import static_file
from penstock.console.views.clusters import Glance, cluster_path

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATIENCE_S = 2.0


class Clusters:
    """The consoles of several clusters, as one application."""

    def __init__(self, consoles: Sequence[Console], names: frozenset[str]) -> None:
        self._consoles = {console.cluster: console for console in consoles}
        self.app = Starlette(
            routes=[
                Route("/", self._all),
                Route("/c/", self._all),
                Route("/static/{file}", static_file),
            ],
            lifespan=self._lifespan,
            middleware=[Middleware(Guard, names=names), Middleware(_Dispatch, consoles=self._consoles)],
        )

    def stop(self) -> None:
        for console in self._consoles.values():
            console.stop()

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for console in self._consoles.values():
                await stack.enter_async_context(console.running())
            yield

    async def _all(self, request: Request) -> Response:
        found = await asyncio.gather(*(self._glance(console, request) for console in self._consoles.values()))
        page = Page("Clusters", "", [Part("clusters", listing(found))])
        frame = Frame(csrf="", hidden=frozenset(section[0] for section in SECTIONS))
        return HTMLResponse(document(page, frame))

    async def _glance(self, console: Console, request: Request) -> Glance:
        workspace = console.workspace_of(request)
        if workspace is None:
            return Glance(console.cluster, None, needs_sign_in=True)
        return Glance(console.cluster, await workspace.first(_PATIENCE_S))


class _Dispatch:
    """Gives the requests under /c/NAME to the console of that cluster."""

    def __init__(self, app: ASGIApp, consoles: dict[str, Console]) -> None:
        self._app = app
        self._consoles = consoles

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _, _, rest = scope["path"].partition("/c/")
        name, _, path = rest.partition("/")
        console = self._consoles.get(name) if scope["path"].startswith("/c/") else None
        if console is None:
            await self._app(scope, receive, send)
            return
        prefix = cluster_path(name)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                where = headers.get("location", "")
                if where.startswith("/") and not where.startswith("/c/"):
                    headers["location"] = prefix + where
            await send(message)

        with links_under(prefix):
            inner = {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode(), "app": console.app}
            await console.app(inner, receive, sent)
