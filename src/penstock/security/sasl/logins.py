"""How a client logs in: a mechanism with its credential. A login makes one exchange for each connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.security.credentials import ScramMechanism, salted_password
from penstock.security.sasl.exchange import ClientExchange
from penstock.security.sasl.oauthbearer import OAuthBearerClient
from penstock.security.sasl.plain import PlainClient
from penstock.security.sasl.scram import TOKEN_EXTENSION, ScramClient

_DERIVED_MAX: Final = 16


class PlainLogin:
    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def begin(self) -> ClientExchange:
        return PlainClient(self._user, self._password)


class ScramLogin:
    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: Callable[[], str], *, by_token: bool = False
    ) -> None:
        """`by_token`: the user is the id of a delegation token."""
        self._mechanism = mechanism
        self.mechanism = mechanism.title
        self._user = user
        self._password = password
        self._nonce = nonce
        self._extensions: Mapping[str, str] = {TOKEN_EXTENSION: "true"} if by_token else {}
        # Salted passwords: a node has many connections, and each would take milliseconds.
        self._derived: dict[tuple[bytes, int], bytes] = {}

    def begin(self) -> ClientExchange:
        return ScramClient(
            self._mechanism,
            self._user,
            self._password,
            self._nonce(),
            extensions=self._extensions,
            derive=self._derive,
        )

    def _derive(self, salt: bytes, iterations: int) -> bytes:
        known = self._derived.get((salt, iterations))
        if known is None:
            known = salted_password(self._mechanism, self._password, salt, iterations)
            if len(self._derived) >= _DERIVED_MAX:
                self._derived.clear()
            self._derived[salt, iterations] = known
        return known


class OAuthBearerLogin:
    mechanism = "OAUTHBEARER"

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        """`token` returns a token that is still valid; it is called for each connection, in a thread: it may wait."""
        self._token = token
        self._extensions = extensions

    def begin(self) -> ClientExchange:
        return OAuthBearerClient(self._token, self._extensions)


AnyLogin = PlainLogin | ScramLogin | OAuthBearerLogin


def password_login(
    mechanism: str, user: str, password: str, nonce: Callable[[], str], *, by_token: bool = False
) -> AnyLogin:
    """A login by PLAIN or SCRAM. ValueError for another mechanism."""
    if mechanism == "PLAIN":
        return PlainLogin(user, password)
    scram = ScramMechanism.of(mechanism)
    if scram is None:
        raise ValueError(f"{mechanism} is not PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    return ScramLogin(scram, user, password, nonce, by_token=by_token)
