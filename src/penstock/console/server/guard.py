"""What every request passes: the names this server answers to, and headers that limit what a page may do.

A page of another site cannot use a console on 127.0.0.1 by giving its own name that address: the Host header must be
one of ours. It cannot send a form either: changes need the session's token, and browsers say where a request is from.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock.console.server.sessions import Session
    from penstock.console.settings import ConsoleSettings

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Guard:
    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        host = host_name(Headers(scope=scope).get("host", ""))
        if host not in self._names:
            refusal = PlainTextResponse(
                f"This console does not answer to the name {host!r}: start it with --name {host}\n", status_code=421
            )
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def known_names(settings: ConsoleSettings) -> frozenset[str]:
    """Of the host, by which browsers may ask."""
    return frozenset({*LOOPBACK, settings.host.lower(), *(name.lower() for name in settings.names)})


def host_name(header: str) -> str:
    """Without the port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


def is_own_form(session: Session, token: str, site: str | None) -> bool:
    """Whether a change comes from a form of ours, in this session."""
    return secrets.compare_digest(token.encode(), session.csrf.encode()) and site in (None, "same-origin", "none")
