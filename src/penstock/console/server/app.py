"""The console as a Starlette application: the pages of one cluster.

A page is asked for by its address. The same address, asked for as an event stream, sends the live parts of that page
whenever they change (`live`). What a page shows is in the modules of pages; what it may change, in `forms`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from importlib import import_module

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock.client.errors import ClientError, NotAuthorized, UnknownTopic
from penstock.console.history import History
from penstock.console.markup import joined, tag
from penstock.console.observe.access import ClusterAccess
from penstock.console.pages.layout import Frame, Page, Part, document, empty
from penstock.console.server import cluster_pages, message_pages, security_pages, work_pages
from penstock.console.server.audit import Audit, ClusterAudit
from penstock.console.server.backfills import Backfills
from penstock.console.server.boards import read_board
from penstock.console.server.forms import Forms
from penstock.console.server.guard import Guard, known_names
from penstock.console.server.live import LivePages
from penstock.console.server.sessions import COOKIE, Session, Sessions
from penstock.console.server.sign_in import SignIn
from penstock.console.server.static import static_file
from penstock.console.server.streams import event_stream
from penstock.console.server.visit import NotFound, PageOf, Visit
from penstock.console.server.workspace import Workspace
from penstock.console.server.workspaces import Workspaces
from penstock.console.settings import ConsoleSettings
from penstock.console.views.decoding import SchemaDecoder
from penstock.console.views.masking import parse_rule
from penstock.model.errors import ErrorCode, KafkaError

PATIENCE_S = 10.0
PATIENCE_LIVE_S = 0.5  # of pages that fill themselves when the first sample is there
_UNAUTHORIZED = frozenset(code for code in ErrorCode if "AUTHORIZATION" in code.name)

Handler = Callable[[Request], Awaitable[Response]]


class SignInNeeded(Exception):
    """The console asks for a sign-in, and this session has none."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the clusters of a console have in common."""

    history: History
    audit: Audit
    schema: SchemaDecoder | None = None
    clusters: tuple[str, ...] = ()
    """Their names; none if there is one cluster alone."""


class Console:
    """The pages of one cluster."""

    def __init__(self, settings: ConsoleSettings, shared: Shared, cluster: str = "", cookie: str = COOKIE) -> None:
        """`cluster`: its name, if the console has several; `settings.bootstrap` is where it is."""
        self.settings = settings
        self.cluster = cluster
        self._shared = shared
        self._rules = tuple(map(parse_rule, settings.masks))
        self._boards = tuple(map(read_board, settings.boards))
        self._backfills = Backfills()
        self._sessions = Sessions(cookie, is_secure=settings.certificate is not None)
        self._workspaces = Workspaces(settings, shared.history, self._sessions)
        self._live = LivePages()
        self._streams: message_pages.MessageStreams | None = None
        audit = ClusterAudit(shared.audit, cluster)
        self._forms = Forms(settings, self._sessions, self._workspaces, audit, self._backfills)
        self._sign_in = SignIn(settings, self._sessions, self._workspaces, audit, shared.clusters)
        self.app = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            middleware=[] if cluster else [Middleware(Guard, names=known_names(settings))],
            exception_handlers={404: self._missing},
        )

    def stop(self) -> None:
        """End all streams: the server waits for open responses."""
        self._live.stop()
        if self._streams is not None:
            self._streams.close()

    def workspace_of(self, request: Request) -> Workspace | None:
        """None if this browser has not signed in."""
        found = self._sessions.known(request)
        return self._workspaces.find(None if found is None else found.user)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.running():
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._streams = message_pages.MessageStreams()
        if not self.settings.sign_in:
            self._workspaces.enter(None, ClusterAccess(self.settings.bootstrap))
        reaper = asyncio.create_task(self._workspaces.end_unused())
        warming = asyncio.create_task(asyncio.to_thread(import_module, "penstock.arrow"))
        try:
            yield
        finally:
            reaper.cancel()
            warming.cancel()
            self.stop()
            await self._workspaces.close()
            await asyncio.to_thread(self._backfills.close)

    def _routes(self) -> list[Route]:
        topic = "/topics/{name}"
        return [
            Route("/", self._page(cluster_pages.overview, PATIENCE_LIVE_S)),
            Route("/events", self._page(cluster_pages.events)),
            Route("/topics", self._page(cluster_pages.topics, PATIENCE_LIVE_S)),
            Route(topic, self._page(cluster_pages.topic)),
            Route(f"{topic}/settings", self._page(cluster_pages.topic_settings)),
            Route(f"{topic}/produce", self._page(cluster_pages.topic_produce)),
            Route(f"{topic}/messages", self._page(message_pages.page)),
            Route(f"{topic}/messages/stream", self._answer(self._stream)),
            Route(f"{topic}/messages/export", self._answer(message_pages.export)),
            Route(f"{topic}/messages/{{partition:int}}/{{offset:int}}", self._page(message_pages.record)),
            Route(f"{topic}/messages/{{partition:int}}/{{offset:int}}/raw", self._answer(message_pages.raw)),
            Route("/groups", self._page(cluster_pages.groups, PATIENCE_LIVE_S)),
            Route("/group", self._page(cluster_pages.group)),
            Route("/pipelines", self._page(work_pages.pipelines, PATIENCE_LIVE_S)),
            Route("/pipeline", self._page(work_pages.pipeline)),
            Route("/dead-letters", self._page(work_pages.dead_letters)),
            Route("/dead-letters/edit", self._page(work_pages.edit_letter)),
            Route("/reports", self._page(work_pages.reports)),
            Route("/reports/{board}", self._page(work_pages.board)),
            Route("/transactions", self._page(work_pages.transactions)),
            Route("/security", self._page(security_pages.security)),
            Route("/schemas", self._page(security_pages.schemas)),
            *self._forms.routes(),
            *self._sign_in.routes(),
            Route("/static/{file}", static_file),
        ]

    def _page(self, page_of: PageOf, patience_s: float = PATIENCE_S) -> Handler:
        """`patience_s`: how long the page waits for the first sample after the start of the console."""

        async def handle(request: Request) -> Response:
            session, is_new = self._sessions.of(request)
            response: Response
            try:
                visit = await self._visit(request, session, patience_s=patience_s)
                visit = replace(visit, draft=session.take_draft())
                if "text/event-stream" in request.headers.get("accept", ""):
                    return event_stream(self._live_parts(request, session, visit, page_of))
                page = await _shown(page_of, visit)
                if request.headers.get("x-part"):
                    response = HTMLResponse(joined([part.content for part in page.parts]), page.status)
                else:
                    frame = replace(visit.frame, flash=session.take_flash())
                    response = HTMLResponse(document(page, frame), page.status)
            except SignInNeeded:
                response = RedirectResponse("/sign-in", 303)
            return self._sessions.with_cookie(response, session, is_new)

        return handle

    def _live_parts(self, request: Request, session: Session, visit: Visit, page_of: PageOf) -> AsyncIterator[bytes]:
        async def render() -> Page:
            return await _shown(page_of, await self._visit(request, session, live=True))

        return self._live.stream(request, session, visit.workspace, render)

    def _answer(self, respond: Callable[[Visit], Awaitable[Response]]) -> Handler:
        async def handle(request: Request) -> Response:
            session, _ = self._sessions.of(request)
            try:
                return await respond(await self._visit(request, session))
            except SignInNeeded:
                return Response("sign in first", 401)
            except (NotFound, ClientError, KafkaError) as error:
                return Response(str(error), _failed(error).status, media_type="text/plain")

        return handle

    async def _stream(self, visit: Visit) -> Response:
        assert self._streams is not None
        return await self._streams.stream(visit)

    async def _visit(
        self, request: Request, session: Session, *, live: bool = False, patience_s: float = PATIENCE_S
    ) -> Visit:
        workspace = self._workspaces.find(session.user)
        if workspace is None:
            raise SignInNeeded
        seen = await workspace.first(patience_s)
        frame = Frame(
            csrf=session.csrf,
            user=session.user,
            cluster=workspace.cluster_id,
            here=self.cluster,
            others=self._shared.clusters,
            read_only=self.settings.read_only,
            hidden=self._hidden(),
            live="1",
            problem=seen.problem,
        )
        return Visit(
            settings=self.settings,
            workspace=workspace,
            seen=seen,
            path={name: str(value) for name, value in request.path_params.items()},
            parameters=dict(request.query_params),
            frame=frame,
            rules=self._rules,
            schema=self._shared.schema,
            boards=self._boards,
            backfills=self._backfills,
            live=live,
            is_over=session.is_over,
        )

    def _hidden(self) -> frozenset[str]:
        return frozenset() if self.settings.registry else frozenset({"schemas"})

    async def _missing(self, request: Request, error: Exception) -> Response:
        session, is_new = self._sessions.of(request)
        try:
            visit = await self._visit(request, session)
        except SignInNeeded:
            return RedirectResponse("/sign-in", 303)
        page = _failed(NotFound("There is no such page."))
        return self._sessions.with_cookie(HTMLResponse(document(page, visit.frame), 404), session, is_new)


async def _shown(page_of: PageOf, visit: Visit) -> Page:
    try:
        return await page_of(visit)
    except (NotFound, ClientError, KafkaError) as error:
        return _failed(error)


def _failed(error: Exception) -> Page:
    if isinstance(error, NotFound | UnknownTopic):
        status, title = 404, "Not found"
    elif isinstance(error, NotAuthorized) or (isinstance(error, KafkaError) and error.code in _UNAUTHORIZED):
        status, title = 403, "Not allowed"
    else:
        status, title = 502, "The cluster did not do this"
    return Page(title, "", [Part("failed", empty(str(error), tag("a", "To the overview", href="/")))], status=status)
