"""What a mechanism answers to a token of its client.

A server's exchange gets one token at a time and returns a `Challenge` (the client has to answer), `Accepted` (the
client is authenticated) or a `Verification` (work that may block or take long, which returns one of the other two). An
exchange that fails raises `AuthenticationFailed`; it cannot be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.security.principal import Principal


class AuthenticationFailed(Exception):
    """The client is not authenticated.

    The exception's text is for the log of this node. It never contains what a client sent as a secret. `public` is for
    the client; None stands for Kafka's general sentence, which does not tell users apart.
    """

    def __init__(self, reason: str, public: str | None = None) -> None:
        super().__init__(reason)
        self.public = public


class Challenge(NamedTuple):
    token: bytes


class Accepted(NamedTuple):
    token: bytes
    principal: Principal
    # When the credential expires, in milliseconds since 1970; None if it does not.
    expires_at_ms: int | None = None
    # Whether the client used a delegation token.
    by_token: bool = False


class Verification(NamedTuple):
    """Work for a thread; the connection waits for it. It raises AuthenticationFailed."""

    work: Callable[[], Challenge | Accepted]


Outcome = Challenge | Accepted | Verification


class ServerExchange(Protocol):
    def step(self, token: bytes) -> Outcome: ...


class ClientExchange(Protocol):
    """The client's side: `first` is sent at the start, `step` answers the server's tokens.

    `step` returns None when nothing is left to send, and raises AuthenticationFailed if the server's token is wrong.
    """

    def first(self) -> bytes: ...

    def step(self, token: bytes) -> bytes | None: ...
