"""OAUTHBEARER (RFC 7628): the client sends a bearer token, a JWT.

    n,[a=authorization id],^Aauth=Bearer TOKEN^A(key=value^A)*^A

A token that is not valid is answered with JSON and no error, as the RFC says. The client has to send one ^A, and only
then the exchange fails, with the same JSON as its message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.security.principal import Principal
from penstock.security.sasl.bearer_tokens import BearerToken, InvalidToken
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge, Outcome, Verification
from penstock.security.sasl.scram_messages import unescape

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_PAIRS: Final = r"(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+"
_INITIAL: Final = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH: Final = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ACKNOWLEDGEMENT: Final = b"\x01"
REFUSAL: Final = '{"status":"invalid_token"}'


class InitialResponse(NamedTuple):
    authorization_id: str
    token: str
    extensions: dict[str, str]


def parse_initial_response(message: bytes) -> InitialResponse:
    try:
        match = _INITIAL.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationFailed("the first message does not have OAUTHBEARER's format")
    pairs = (pair.partition("=") for pair in match["pairs"].split("\x01") if pair)
    values = {name: value for name, _, value in pairs}
    auth = _AUTH.fullmatch(values.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise AuthenticationFailed("the first OAUTHBEARER message has no bearer token")
    return InitialResponse(unescape(match["authzid"] or ""), auth["token"], values)


class OAuthBearerServer:
    def __init__(self, validate: Callable[[str], BearerToken]) -> None:
        """`validate` returns what a token says, or raises InvalidToken. It runs in a thread: it may wait for keys."""
        self._validate = validate
        self._refused_because = ""

    def step(self, token: bytes) -> Outcome:
        if self._refused_because and token == _ACKNOWLEDGEMENT:
            raise AuthenticationFailed(self._refused_because, REFUSAL)
        self._refused_because = ""
        initial = parse_initial_response(token)
        return Verification(lambda: self._verify(initial))

    def _verify(self, initial: InitialResponse) -> Challenge | Accepted:
        try:
            found = self._validate(initial.token)
        except InvalidToken as error:
            self._refused_because = f"the bearer token is refused: {error}"
            return Challenge(REFUSAL.encode("ascii"))
        if initial.authorization_id not in ("", found.subject):
            text = (
                f"Authentication failed: Client requested an authorization id ({initial.authorization_id}) that is "
                f"different from the token's principal name ({found.subject})"
            )
            raise AuthenticationFailed(text, text)
        return Accepted(b"", Principal("User", found.subject), found.expires_at_ms)


class OAuthBearerClient:
    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}

    def first(self) -> bytes:
        pairs = "".join(f"\x01{name}={value}" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token()}{pairs}\x01\x01".encode()

    def step(self, token: bytes) -> bytes | None:
        """An empty token is the server's agreement; anything else is its refusal, which has to be acknowledged."""
        return _ACKNOWLEDGEMENT if token else None
