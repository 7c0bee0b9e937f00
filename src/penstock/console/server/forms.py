"""What pages send: changes by forms, and files in pieces. Each is checked to be of this session, and audited."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock.client.errors import ClientError
from penstock.console.observe.access import ClusterAccess
from penstock.console.server import uploads, work_pages
from penstock.console.server.audit import ClusterAudit
from penstock.console.server.backfills import Backfills
from penstock.console.server.bodies import not_ours, own_address, read_body, read_form
from penstock.console.server.changes import CHANGES, Change, Form, Refused
from penstock.console.server.guard import is_own_form
from penstock.console.server.sessions import Sessions
from penstock.console.server.workspaces import Workspaces
from penstock.console.settings import ConsoleSettings
from penstock.console.views.backfills import BadBackfill, parse_backfill
from penstock.console.views.sample import Seen
from penstock.console.views.uploads import BadUpload
from penstock.model.errors import KafkaError

DRAFT_MAX = 2 * 1024 * 1024


class Forms:
    def __init__(
        self,
        settings: ConsoleSettings,
        sessions: Sessions,
        workspaces: Workspaces,
        audit: ClusterAudit,
        backfills: Backfills,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._workspaces = workspaces
        self._audit = audit
        self._backfills = backfills
        self._changes = {**CHANGES, "pipeline.backfill": Change(self._backfill)}

    def routes(self) -> list[Route]:
        return [
            Route("/do/{change}", self._change, methods=["POST"]),
            Route("/topics/{name}/produce/piece", self._piece, methods=["POST"]),
        ]

    async def _change(self, request: Request) -> Response:
        session, _ = self._sessions.of(request)
        name = request.path_params["change"]
        change = self._changes.get(name)
        workspace = self._workspaces.find(session.user)
        if change is None or workspace is None:
            return Response("there is no such change", 404)
        given = await read_form(request)
        if not is_own_form(session, given.get("csrf", ""), request.headers.get("sec-fetch-site")):
            self._audit.write(session.user, name, given.get(change.subject, ""), "refused: not a form of this session")
            return not_ours()
        subject = given.get(change.subject, "")
        back = own_address(given.get("back", "/"))
        try:
            if self._settings.read_only:
                raise Refused("this console is read-only")
            said = await workspace.ask(lambda access: change.run(access, given))
        except (Refused, ClientError, KafkaError, KeyError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            self._audit.write(session.user, name, subject, f"refused: {reason}")
            session.flash = ("error", reason)
            session.draft = given.get(change.draft, "")[:DRAFT_MAX] if change.draft else None
        else:
            self._audit.write(session.user, name, subject, "ok")
            session.flash = ("ok", said)
            back = back if change.then is None else change.then(given)
            await workspace.fresh()
        return RedirectResponse(back, 303)

    def _backfill(self, access: ClusterAccess, given: Form) -> str:
        """It is a process on this machine, with the console's own rights: no user who signed in may start one."""
        if self._settings.sign_in or access.options:
            raise Refused("with a sign-in, backfills are started on the command line")
        name = given.get("name", "")
        seen = self._seen()
        file = work_pages.file_of(self._settings.pipelines, name)
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
        session, _ = self._sessions.of(request)
        workspace = self._workspaces.find(session.user)
        topic, given = request.path_params["name"], dict(request.query_params)
        if workspace is None:
            return Response("sign in first", 401)
        data = await read_body(request)
        if not is_own_form(session, request.headers.get("x-csrf", ""), request.headers.get("sec-fetch-site")):
            self._audit.write(session.user, "file.produce", topic, "refused: not a form of this session")
            return not_ours()
        writes = given.get("write") == "1"
        try:
            if self._settings.read_only:
                raise Refused("this console is read-only")
            piece = await asyncio.to_thread(uploads.read_piece, given, data)
            if writes:
                await workspace.ask(lambda access: uploads.write(access, topic, piece.entries))
        except (Refused, BadUpload, ClientError, KafkaError) as error:
            if writes:
                self._audit.write(session.user, "file.produce", topic, f"refused: {error}")
            return Response(str(error), 400, media_type="text/plain")
        if writes:
            self._audit.write(session.user, "file.produce", topic, "ok", records=str(len(piece.entries)))
        answered = uploads.answer(piece, with_preview=not writes and given.get("first") == "1")
        return JSONResponse(answered)

    def _seen(self) -> Seen:
        workspace = self._workspaces.find(None)
        return Seen() if workspace is None else workspace.seen
