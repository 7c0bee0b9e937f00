"""The console as a Starlette application.

A page is asked for by its address. The same address, asked for as an event stream, sends the live parts of that page
whenever they change: what all tabs of an address get is rendered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.resources import files
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock.client.access import open_access
from penstock.client.errors import ClientError, NotAuthorized, UnknownTopic
from penstock.client.wire.login import ACCESS_TOKEN
from penstock.console.history import History
from penstock.console.markup import Markup, joined, tag
from penstock.console.observe.access import ClusterAccess
from penstock.console.pages.layout import SECTIONS, Frame, Page, Part, document, empty, form, labelled, trouble
from penstock.console.server import cluster_pages, message_pages, security_pages, uploads, work_pages
from penstock.console.server.audit import Audit
from penstock.console.server.backfills import Backfills
from penstock.console.server.boards import read_board
from penstock.console.server.changes import CHANGES, Change, Form, Refused
from penstock.console.server.guard import LOOPBACK, Guard, is_own_form
from penstock.console.server.oidc import come_back, go, open_provider
from penstock.console.server.sessions import Session, Sessions
from penstock.console.server.streams import event, event_stream
from penstock.console.server.visit import NotFound, PageOf, Visit
from penstock.console.server.workspace import Workspace
from penstock.console.settings import ConsoleSettings
from penstock.console.views.backfills import BadBackfill, parse_backfill
from penstock.console.views.clusters import cluster_path
from penstock.console.views.decoding import SchemaDecoder
from penstock.console.views.masking import parse_rule
from penstock.console.views.oidc import SignInFailed
from penstock.console.views.uploads import BadUpload
from penstock.model.errors import ErrorCode, KafkaError

logger = logging.getLogger("penstock.console")

PATIENCE_S = 10.0
PATIENCE_LIVE_S = 0.5  # of pages that fill themselves when the first sample is there
DRAFT_MAX = 2 * 1024 * 1024
FORM_BYTES_MAX = 16 * 1024 * 1024
_RENDERED_MAX = 256
_UNAUTHORIZED = frozenset(code for code in ErrorCode if "AUTHORIZATION" in code.name)
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

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

    def __init__(self, settings: ConsoleSettings, shared: Shared, cluster: str = "") -> None:
        """`cluster`: its name, if the console has several; `settings.bootstrap` is where it is."""
        self.settings = settings
        self.cluster = cluster
        self._shared = shared
        self._schema = shared.schema
        self._rules = tuple(map(parse_rule, settings.masks))
        self._provider = open_provider(settings)
        self._backfills = Backfills()
        self._changes = {**CHANGES, "pipeline.backfill": Change(self._backfill)}
        self._boards = tuple(map(read_board, settings.boards))
        self._sessions = Sessions()
        self._history = shared.history
        self._workspaces: dict[str | None, Workspace] = {}
        self._rendered: dict[tuple[str | None, str], tuple[int, dict[str, str]]] = {}
        self._streams: message_pages.MessageStreams | None = None
        self._stopping = asyncio.Event()
        self.cookie = "penstock-console"
        self.app = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            middleware=[] if cluster else [Middleware(Guard, names=known_names(settings))],
            exception_handlers={404: self._missing},
        )

    def stop(self) -> None:
        """End all streams: the server waits for open responses."""
        self._stopping.set()
        if self._streams is not None:
            self._streams.close()

    def workspace_of(self, request: Request) -> Workspace | None:
        """None if this browser has not signed in."""
        found = self._sessions.find(request.cookies.get(self.cookie))
        return self._workspaces.get(None if found is None else found.user)

    def _note(self, user: str | None, action: str, subject: str, result: str, **details: str) -> None:
        """A line in the audit log."""
        named = {"cluster": self.cluster} if self.cluster else {}
        self._shared.audit.write(user, action, subject, result, **named, **details)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with self.running():
            yield

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._streams = message_pages.MessageStreams()
        if not self.settings.sign_in:
            self._open(None, ClusterAccess(self.settings.bootstrap))
        reaper = asyncio.create_task(self._end_workspaces())
        warming = asyncio.create_task(asyncio.to_thread(import_module, "penstock.arrow"))
        try:
            yield
        finally:
            reaper.cancel()
            warming.cancel()
            self.stop()
            await asyncio.gather(*(workspace.close() for workspace in self._workspaces.values()))
            await asyncio.to_thread(self._backfills.close)

    def _open(self, user: str | None, access: ClusterAccess) -> Workspace:
        url = self.settings.prometheus
        prometheus = None if url is None else (url, self.settings.prometheus_match)
        workspace = self._workspaces[user] = Workspace(access, self._history, user, prometheus)
        workspace.start()
        return workspace

    async def _end_workspaces(self) -> None:
        """Those of users whose last session is over: their passwords are forgotten."""
        while True:
            await asyncio.sleep(10)
            for user in [each for each in self._workspaces if each is not None and each not in self._sessions.users()]:
                await self._workspaces.pop(user).close()

    # -- Routes.

    def _routes(self) -> list[Route]:
        topic = "/topics/{name}"
        return [
            Route("/", self._page(cluster_pages.overview, PATIENCE_LIVE_S)),
            Route("/events", self._page(cluster_pages.events)),
            Route("/topics", self._page(cluster_pages.topics, PATIENCE_LIVE_S)),
            Route(topic, self._page(cluster_pages.topic)),
            Route(f"{topic}/settings", self._page(cluster_pages.topic_settings)),
            Route(f"{topic}/produce", self._page(cluster_pages.topic_produce)),
            Route(f"{topic}/produce/piece", self._piece, methods=["POST"]),
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
            Route("/do/{change}", self._change, methods=["POST"]),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-in/go", self._go_to_provider),
            Route("/sign-in/back", self._back_from_provider),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Route("/static/{file}", static_file),
        ]

    def _page(self, page_of: PageOf, patience_s: float = PATIENCE_S) -> Handler:
        """`patience_s`: how long the page waits for the first sample after the start of the console."""

        async def handle(request: Request) -> Response:
            session, is_new = self._session(request)
            response: Response
            try:
                visit = await self._visit(request, session, patience_s=patience_s)
                visit = replace(visit, draft=session.take_draft())
                if "text/event-stream" in request.headers.get("accept", ""):
                    return event_stream(self._live(request, visit, page_of))
                try:
                    page = await page_of(visit)
                except (NotFound, ClientError, KafkaError) as error:
                    page = _failed(error)
                if request.headers.get("x-part"):
                    response = HTMLResponse(joined([part.content for part in page.parts]), page.status)
                else:
                    frame = replace(visit.frame, flash=session.take_flash())
                    response = HTMLResponse(document(page, frame), page.status)
            except SignInNeeded:
                response = RedirectResponse("/sign-in", 303)
            return self._with_cookie(response, session, is_new)

        return handle

    def _answer(self, respond: Callable[[Visit], Awaitable[Response]]) -> Handler:
        async def handle(request: Request) -> Response:
            session, _ = self._session(request)
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
        workspace = self._workspaces.get(session.user)
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
            schema=self._schema,
            boards=self._boards,
            backfills=self._backfills,
            live=live,
        )

    def _hidden(self) -> frozenset[str]:
        return frozenset() if self.settings.registry else frozenset({"schemas"})

    # -- Live parts.

    async def _live(self, request: Request, visit: Visit, page_of: PageOf) -> AsyncIterator[bytes]:
        workspace, session = visit.workspace, Session("", visit.frame.csrf, visit.frame.user)
        sent: dict[str, str] = {}
        problem: str | None = None
        changes = workspace.changes()
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            yield b": live\n\n"
            while True:
                change = asyncio.ensure_future(anext(changes, None))
                await asyncio.wait({change, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done() or await change is None:
                    change.cancel()
                    return
                parts = await self._live_parts(request, session, page_of)
                changed = {identity: html for identity, html in parts.items() if sent.get(identity) != html}
                sent |= changed
                if workspace.seen.problem != problem:
                    problem = workspace.seen.problem
                    changed["trouble"] = "" if problem is None else trouble(problem)
                at_ms = 0 if workspace.seen.now is None else workspace.seen.now.at_ms
                yield event("parts", {"parts": changed, "at": at_ms})
        finally:
            stopping.cancel()

    async def _live_parts(self, request: Request, session: Session, page_of: PageOf) -> dict[str, str]:
        """Rendered once for all tabs of this address that a user has."""
        workspace = self._workspaces[session.user]
        key = (session.user, str(request.url.path) + "?" + request.url.query)
        known = self._rendered.get(key)
        if known is not None and known[0] == workspace.version:
            return known[1]
        visit = await self._visit(request, session, live=True)
        try:
            page = await page_of(visit)
        except (NotFound, ClientError, KafkaError) as error:
            page = _failed(error)
        parts: dict[str, str] = {part.identity: part.content for part in page.parts if part.live}
        if len(self._rendered) >= _RENDERED_MAX:
            self._rendered.pop(next(iter(self._rendered)))
        self._rendered.pop(key, None)
        self._rendered[key] = (workspace.version, parts)
        return parts

    # -- Changes.

    async def _change(self, request: Request) -> Response:
        session, _ = self._session(request)
        name = request.path_params["change"]
        change = self._changes.get(name)
        workspace = self._workspaces.get(session.user)
        if change is None or workspace is None:
            return Response("there is no such change", 404)
        given = await _read_form(request)
        if not is_own_form(session, given.get("csrf", ""), request.headers.get("sec-fetch-site")):
            self._note(session.user, name, given.get(change.subject, ""), "refused: not a form of this session")
            return Response("This form is not of this session: load the page again.", 403)
        subject = given.get(change.subject, "")
        back = _own_address(given.get("back", "/"))
        try:
            if self.settings.read_only:
                raise Refused("this console is read-only")
            said = await workspace.ask(lambda access: change.run(access, given))
        except (Refused, ClientError, KafkaError, KeyError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            self._note(session.user, name, subject, f"refused: {reason}")
            session.flash = ("error", reason)
            session.draft = given.get(change.draft, "")[:DRAFT_MAX] if change.draft else None
        else:
            self._note(session.user, name, subject, "ok")
            session.flash = ("ok", said)
            back = back if change.then is None else change.then(given)
            await workspace.fresh()
        return RedirectResponse(back, 303)

    def _backfill(self, access: ClusterAccess, given: Form) -> str:
        """It is a process on this machine, with the console's own rights: no user who signed in may start one."""
        if self.settings.sign_in or access.options:
            raise Refused("with a sign-in, backfills are started on the command line")
        name = given.get("name", "")
        seen = self._workspaces[None].seen
        file = work_pages.file_of(self.settings.pipelines, name)
        report = None if seen.now is None else seen.now.pipelines.get(name)
        if file is None or report is None:
            raise Refused(f"the console does not know the file of {name!r}: start it with --pipeline FILE")
        try:
            wanted = parse_backfill(given, datetime.now(UTC))
        except BadBackfill as error:
            raise Refused(str(error)) from error
        self._backfills.start(wanted.name, wanted.arguments(file, access.bootstrap, report.environment))
        return f"The backfill {wanted.name} of {name} starts; it appears among the pipelines when Spark runs."

    async def _piece(self, request: Request) -> Response:
        """A piece of a file of records: looked at, or written."""
        session, _ = self._session(request)
        workspace = self._workspaces.get(session.user)
        topic, given = request.path_params["name"], dict(request.query_params)
        if workspace is None:
            return Response("sign in first", 401)
        data = await _read_body(request)
        if not is_own_form(session, request.headers.get("x-csrf", ""), request.headers.get("sec-fetch-site")):
            self._note(session.user, "file.produce", topic, "refused: not a form of this session")
            return Response("This form is not of this session: load the page again.", 403)
        writes = given.get("write") == "1"
        try:
            if self.settings.read_only:
                raise Refused("this console is read-only")
            piece = await asyncio.to_thread(uploads.read_piece, given, data)
            if writes:
                await workspace.ask(lambda access: uploads.write(access, topic, piece.entries))
        except (Refused, BadUpload, ClientError, KafkaError) as error:
            if writes:
                self._note(session.user, "file.produce", topic, f"refused: {error}")
            return Response(str(error), 400, media_type="text/plain")
        if writes:
            self._note(session.user, "file.produce", topic, "ok", records=str(len(piece.entries)))
        answered = uploads.answer(piece, with_preview=not writes and given.get("first") == "1")
        return JSONResponse(answered)

    # -- Sessions.

    def _session(self, request: Request) -> tuple[Session, bool]:
        found = self._sessions.find(request.cookies.get(self.cookie))
        return (found, False) if found is not None else (self._sessions.begin(), True)

    def _with_cookie(self, response: Response, session: Session, is_new: bool) -> Response:
        if is_new:
            # Lax, and not strict: a link from a colleague opens the page. Changes need the token of the session.
            response.set_cookie(
                self.cookie,
                session.identity,
                httponly=True,
                samesite="lax",
                secure=self.settings.certificate is not None,
            )
        return response

    async def _sign_in(self, request: Request) -> Response:
        session, is_new = self._session(request)
        if not self.settings.sign_in:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._with_cookie(HTMLResponse(self._sign_in_page(session)), session, is_new)
        given = await _read_form(request)
        if self._provider is not None or not is_own_form(
            session, given.get("csrf", ""), request.headers.get("sec-fetch-site")
        ):
            return Response("This form is not of this session: load the page again.", 403)
        user = given.get("user", "")
        login = {
            "sasl.mechanism": self.settings.mechanism,
            "sasl.username": user,
            "sasl.password": given.get("password", ""),
        }
        return await self._enter(session, user, login)

    async def _go_to_provider(self, request: Request) -> Response:
        session, is_new = self._session(request)
        if self._provider is None:
            return RedirectResponse("/sign-in", 303)
        scheme = "http" if self.settings.certificate is None else "https"
        prefix = cluster_path(self.cluster) if self.cluster else ""
        # The guard has checked that the name is one of ours.
        returns_to = f"{scheme}://{request.headers['host']}{prefix}/sign-in/back"
        try:
            where = await asyncio.to_thread(go, self._provider, session, returns_to)
        except SignInFailed as error:
            session.flash = ("error", str(error))
            where = "/sign-in"
        return self._with_cookie(RedirectResponse(where, 303), session, is_new)

    async def _back_from_provider(self, request: Request) -> Response:
        session, is_new = self._session(request)
        if self._provider is None:
            return RedirectResponse("/sign-in", 303)
        try:
            found = await asyncio.to_thread(come_back, self._provider, session, dict(request.query_params))
        except SignInFailed as error:
            self._note(None, "sign-in", "", f"refused: {error}")
            session.flash = ("error", str(error))
            return self._with_cookie(RedirectResponse("/sign-in", 303), session, is_new)
        login = {"sasl.mechanism": "OAUTHBEARER", ACCESS_TOKEN: found.access_token}
        return await self._enter(session, found.user, login, found.lasts_s)

    async def _enter(
        self, session: Session, user: str, login: dict[str, str], lasts_s: float | None = None
    ) -> Response:
        """Let the cluster say whether this login is good; if so, the session of before ends and a new one begins."""
        options = {**open_access(self.settings.bootstrap).properties, **login}
        options.pop("sasl.jaas.config", None)
        if not options.get("security.protocol", "").startswith("SASL_"):
            options["security.protocol"] = "SASL_SSL" if options.get("security.protocol") == "SSL" else "SASL_PLAINTEXT"
        access = ClusterAccess(open_access(self.settings.bootstrap).bootstrap, options)
        try:
            await asyncio.to_thread(_try, access)
        except (ClientError, KafkaError) as error:
            access.close()
            self._note(user, "sign-in", user, "refused")
            session.flash = (
                "error",
                "The cluster refused this user, password or token." if isinstance(error, NotAuthorized) else str(error),
            )
            return RedirectResponse("/sign-in", 303)
        self._note(user, "sign-in", user, "ok")
        self._sessions.end(session)
        earlier = self._workspaces.get(user)
        if earlier is None:
            self._open(user, access)
        else:
            earlier.access.options.update(access.options)  # signed in elsewhere; the password may be a new one
            access.close()
        signed_in = self._sessions.begin(user)
        signed_in.expires = None if lasts_s is None else time.monotonic() + lasts_s
        return self._with_cookie(RedirectResponse("/", 303), signed_in, True)

    def _sign_in_page(self, session: Session) -> Markup:
        if self._provider is not None:
            at = urlsplit(self._provider.client.issuer).hostname or ""
            button = tag("a", f"Sign in at {at}", href="/sign-in/go", class_="button primary")
            hint = tag("p", "The console then acts with the token that you are given there.", class_="note")
            return self._outside(session, joined(hint, tag("p", button, class_="box")))
        content = form(
            "/sign-in",
            session.csrf,
            labelled("User", tag("input", name="user", required=True, autocomplete="username", autofocus=True)),
            labelled(
                "Password",
                tag("input", name="password", type="password", required=True, autocomplete="current-password"),
            ),
            tag("button", "Sign in", class_="primary"),
            class_="stack box",
        )
        hint = tag("p", "With a user of the cluster: the console then acts as that user.", class_="note")
        return self._outside(session, joined(hint, content))

    def _outside(self, session: Session, content: Markup) -> Markup:
        page = Page("Sign in", "", [Part("sign-in", content)])
        everything = frozenset(section[0] for section in SECTIONS)
        frame = Frame(
            csrf=session.csrf,
            hidden=everything,
            flash=session.take_flash(),
            here=self.cluster,
            others=self._shared.clusters,
        )
        return document(page, frame)

    async def _sign_out(self, request: Request) -> Response:
        session, _ = self._session(request)
        given = await _read_form(request)
        if not is_own_form(session, given.get("csrf", ""), request.headers.get("sec-fetch-site")):
            return Response("This form is not of this session: load the page again.", 403)
        self._sessions.end(session)
        self._note(session.user, "sign-out", session.user or "", "ok")
        if session.user is not None and session.user not in self._sessions.users():
            workspace = self._workspaces.pop(session.user, None)
            if workspace is not None:
                await workspace.close()
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(self.cookie)
        return response

    # -- The rest.

    async def _missing(self, request: Request, error: Exception) -> Response:
        session, is_new = self._session(request)
        try:
            visit = await self._visit(request, session)
        except SignInNeeded:
            return RedirectResponse("/sign-in", 303)
        page = _failed(NotFound("There is no such page."))
        return self._with_cookie(HTMLResponse(document(page, visit.frame), 404), session, is_new)


async def static_file(request: Request) -> Response:
    name = request.path_params["file"]
    kind = _TYPES.get(os.path.splitext(name)[1])
    file = files("penstock.console") / "static" / name
    if kind is None or "/" in name or not file.is_file():
        return Response("there is no such file", 404)
    return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "max-age=3600"})


def known_names(settings: ConsoleSettings) -> frozenset[str]:
    """Of the host, by which browsers may ask."""
    return frozenset({*LOOPBACK, settings.host.lower(), *(name.lower() for name in settings.names)})


def _failed(error: Exception) -> Page:
    if isinstance(error, NotFound | UnknownTopic):
        status, title = 404, "Not found"
    elif isinstance(error, NotAuthorized) or (isinstance(error, KafkaError) and error.code in _UNAUTHORIZED):
        status, title = 403, "Not allowed"
    else:
        status, title = 502, "The cluster did not do this"
    return Page(title, "", [Part("failed", empty(str(error), tag("a", "To the overview", href="/")))], status=status)


def _try(access: ClusterAccess) -> None:
    """Log in once."""
    with access.admin() as admin:
        admin.cluster.describe()


def _own_address(text: str) -> str:
    """Only an address of this console: a form cannot send the browser elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"


async def _read_form(request: Request) -> dict[str, str]:
    body = await _read_body(request)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise ClientDisconnect
    return bytes(body)
