"""Sessions: who a browser is. In memory only, as are the passwords in their clients: gone at the sign-out, after some
hours without a request, and with the process.

Every browser gets a session, also without a sign-in, because its token is what a form must send to change anything.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from penstock.console.views.oidc import Pending

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

    def is_valid(self, now: float) -> bool:
        return now - self.used <= IDLE_S and (self.expires is None or now < self.expires)

    def take_flash(self) -> tuple[str, str] | None:
        flash, self.flash = self.flash, None
        return flash

    def take_draft(self) -> str | None:
        draft, self.draft = self.draft, None
        return draft


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

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
        self._sessions.pop(session.identity, None)

    def users(self) -> set[str]:
        now = time.monotonic()
        return {each.user for each in self._sessions.values() if each.user is not None and each.is_valid(now)}
