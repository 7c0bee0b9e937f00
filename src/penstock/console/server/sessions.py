"""Sessions: who a browser is. In memory only, as are the passwords in their clients: gone at the sign-out, after some
hours without a request, and with the process.

Every browser gets a session, also without a sign-in, because its token is what a form must send to change anything.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.console.views.oidc import Pending

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

COOKIE = "penstock-console"
IDLE_S = 8 * 3600.0
SESSIONS_MAX = 10_000


@dataclass(slots=True)
class Session:
    identity: str
    csrf: str
    user: str | None = None
    used: float = field(default_factory=time.monotonic)
    flash: tuple[str, str] | None = None
    expires: float | None = None
    """When the user's token does; by the clock of `used`."""
    pending: Pending | None = None
    """A sign-in at an OpenID provider that has begun."""
    draft: str | None = None
    """What was typed into a form that was refused."""
    has_ended: bool = False
    """Somebody signed out."""

    def is_valid(self, now: float) -> bool:
        return not self.has_ended and now - self.used <= IDLE_S and (self.expires is None or now < self.expires)

    def is_over(self) -> bool:
        """Whether streams of this session must end. Without a sign-in there is nothing that a session would allow."""
        return self.user is not None and not self.is_valid(time.monotonic())

    def take_flash(self) -> tuple[str, str] | None:
        flash, self.flash = self.flash, None
        return flash

    def take_draft(self) -> str | None:
        draft, self.draft = self.draft, None
        return draft


class Sessions:
    def __init__(self, cookie: str = COOKIE, *, is_secure: bool = False) -> None:
        """`is_secure`: the cookie is sent over HTTPS only."""
        self._cookie = cookie
        self._is_secure = is_secure
        self._sessions: dict[str, Session] = {}

    def known(self, request: Request) -> Session | None:
        return self.find(request.cookies.get(self._cookie))

    def of(self, request: Request) -> tuple[Session, bool]:
        """The session of a browser, and whether it is a new one."""
        found = self.known(request)
        return (found, False) if found is not None else (self.begin(), True)

    def with_cookie(self, response: Response, session: Session, is_new: bool = True) -> Response:
        if is_new:
            # Lax, and not strict: a link from a colleague opens the page. Changes need the token of the session.
            response.set_cookie(self._cookie, session.identity, httponly=True, samesite="lax", secure=self._is_secure)
        return response

    def without_cookie(self, response: Response) -> Response:
        response.delete_cookie(self._cookie)
        return response

    def find(self, identity: str | None) -> Session | None:
        session = self._sessions.get(identity or "")
        if session is None:
            return None
        if not session.is_valid(time.monotonic()):
            del self._sessions[session.identity]
            return None
        session.used = time.monotonic()
        return session

    def begin(self, user: str | None = None) -> Session:
        """A new session, with a new identity: it is not known before the sign-in."""
        if len(self._sessions) >= SESSIONS_MAX:
            oldest = min(self._sessions.values(), key=lambda session: session.used)
            del self._sessions[oldest.identity]
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), user)
        self._sessions[session.identity] = session
        return session

    def end(self, session: Session) -> None:
        session.has_ended = True
        self._sessions.pop(session.identity, None)

    def users(self) -> set[str]:
        now = time.monotonic()
        return {each.user for each in self._sessions.values() if each.user is not None and each.is_valid(now)}
