"""Signing in with a user of the cluster, or at an OpenID provider, and signing out.

The cluster itself says whether a login is good. A session gets a new identity at each sign-in. At the sign-out
it ends, with its streams; and with the last session of a user, all connections and the password.
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from penstock.client.access import open_access
from penstock.client.errors import ClientError, NotAuthorized
from penstock.client.wire.login import ACCESS_TOKEN
from penstock.console.markup import Markup, joined, tag
from penstock.console.observe.access import ClusterAccess
from penstock.console.pages.layout import SECTIONS, Frame, Page, Part, document, form, labelled
from penstock.console.server.audit import ClusterAudit
from penstock.console.server.bodies import not_ours, read_form
from penstock.console.server.guard import is_own_form
from penstock.console.server.oidc import come_back, go, open_provider
from penstock.console.server.sessions import Session, Sessions
from penstock.console.server.workspaces import Workspaces
from penstock.console.settings import ConsoleSettings
from penstock.console.views.clusters import cluster_path
from penstock.console.views.oidc import SignInFailed
from penstock.model.errors import KafkaError


class SignIn:
    def __init__(
        self,
        settings: ConsoleSettings,
        sessions: Sessions,
        workspaces: Workspaces,
        audit: ClusterAudit,
        clusters: tuple[str, ...] = (),
    ) -> None:
        """`clusters`: the names of all, if there are several."""
        self._settings = settings
        self._sessions = sessions
        self._workspaces = workspaces
        self._audit = audit
        self._cluster = audit.cluster
        self._clusters = clusters
        self._provider = open_provider(settings)

    def routes(self) -> list[Route]:
        return [
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-in/go", self._go_to_provider),
            Route("/sign-in/back", self._back_from_provider),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def _sign_in(self, request: Request) -> Response:
        session, is_new = self._sessions.of(request)
        if not self._settings.sign_in:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._sessions.with_cookie(HTMLResponse(self._sign_in_page(session)), session, is_new)
        given = await read_form(request)
        if self._provider is not None or not is_own_form(
            session, given.get("csrf", ""), request.headers.get("sec-fetch-site")
        ):
            return not_ours()
        user = given.get("user", "")
        login = {
            "sasl.mechanism": self._settings.mechanism,
            "sasl.username": user,
            "sasl.password": given.get("password", ""),
        }
        return await self._enter(session, user, login)

    async def _go_to_provider(self, request: Request) -> Response:
        session, is_new = self._sessions.of(request)
        if self._provider is None:
            return RedirectResponse("/sign-in", 303)
        scheme = "http" if self._settings.certificate is None else "https"
        prefix = cluster_path(self._cluster) if self._cluster else ""
        # The guard has checked that the name is one of ours.
        returns_to = f"{scheme}://{request.headers['host']}{prefix}/sign-in/back"
        try:
            where = await asyncio.to_thread(go, self._provider, session, returns_to)
        except SignInFailed as error:
            session.flash = ("error", str(error))
            where = "/sign-in"
        return self._sessions.with_cookie(RedirectResponse(where, 303), session, is_new)

    async def _back_from_provider(self, request: Request) -> Response:
        session, is_new = self._sessions.of(request)
        if self._provider is None:
            return RedirectResponse("/sign-in", 303)
        try:
            found = await asyncio.to_thread(come_back, self._provider, session, dict(request.query_params))
        except SignInFailed as error:
            self._audit.write(None, "sign-in", "", f"refused: {error}")
            session.flash = ("error", str(error))
            return self._sessions.with_cookie(RedirectResponse("/sign-in", 303), session, is_new)
        login = {"sasl.mechanism": "OAUTHBEARER", ACCESS_TOKEN: found.access_token}
        return await self._enter(session, found.user, login, found.lasts_s)

    async def _enter(
        self, session: Session, user: str, login: dict[str, str], lasts_s: float | None = None
    ) -> Response:
        """Let the cluster say whether this login is good; if so, the session of before ends and a new one begins."""
        options = {**open_access(self._settings.bootstrap).properties, **login}
        options.pop("sasl.jaas.config", None)
        if not options.get("security.protocol", "").startswith("SASL_"):
            options["security.protocol"] = "SASL_SSL" if options.get("security.protocol") == "SSL" else "SASL_PLAINTEXT"
        access = ClusterAccess(open_access(self._settings.bootstrap).bootstrap, options)
        try:
            await asyncio.to_thread(access.run, _try, access)
        except (ClientError, KafkaError) as error:
            access.close()
            self._audit.write(user, "sign-in", user, "refused")
            session.flash = (
                "error",
                "The cluster refused this user, password or token." if isinstance(error, NotAuthorized) else str(error),
            )
            return RedirectResponse("/sign-in", 303)
        self._audit.write(user, "sign-in", user, "ok")
        self._sessions.end(session)
        self._workspaces.enter(user, access)
        signed_in = self._sessions.begin(user)
        signed_in.expires = None if lasts_s is None else time.monotonic() + lasts_s
        return self._sessions.with_cookie(RedirectResponse("/", 303), signed_in)

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
            here=self._cluster,
            others=self._clusters,
        )
        return document(page, frame)

    async def _sign_out(self, request: Request) -> Response:
        session, _ = self._sessions.of(request)
        given = await read_form(request)
        if not is_own_form(session, given.get("csrf", ""), request.headers.get("sec-fetch-site")):
            return not_ours()
        self._sessions.end(session)
        self._audit.write(session.user, "sign-out", session.user or "", "ok")
        await self._workspaces.leave(session.user)
        return self._sessions.without_cookie(RedirectResponse("/sign-in", 303))


def _try(access: ClusterAccess) -> None:
    """Log in once."""
    with access.admin() as admin:
        admin.cluster.describe()
