"""The authentication of one connection: the server's state machine, without I/O.

The machine gets every frame of the connection until the client is authenticated, and says what to do with it:

| state            | frame                         | answer                                     | next state       |
|------------------|-------------------------------|--------------------------------------------|------------------|
| START            | ApiVersions                   | the router answers                         | HANDSHAKE        |
| START            | ApiVersions, wrong version    | the router answers with an error           | START            |
| START, HANDSHAKE | SaslHandshake v0              | mechanisms                                 | BARE_TOKENS      |
| START, HANDSHAKE | SaslHandshake v1              | mechanisms                                 | AUTHENTICATE     |
| START, HANDSHAKE | SaslHandshake, other mechanism | error 33 and mechanisms, close            | OVER             |
| BARE_TOKENS      | a token                       | a token                                    | itself, or READY |
| BARE_TOKENS      | a token that is refused       | close                                      | OVER             |
| AUTHENTICATE     | SaslAuthenticate              | a token                                    | itself, or READY |
| AUTHENTICATE     | SaslAuthenticate, refused     | error 58, close                            | OVER             |
| AUTHENTICATE     | another request               | its error 34, close                        | OVER             |
| READY            | SaslHandshake, in time        | as in HANDSHAKE                            | as in HANDSHAKE  |
| READY            | any, in time                  | the router answers                         | READY            |
| READY            | any, after the session's end  | close                                      | OVER             |
| any              | anything else                 | close                                      | OVER             |

Before READY no frame but ApiVersions reaches the router. Refusals of a client's credentials, and the close after them,
are delayed (`Close.is_delayed`), so that guessing is slow.

A session has a lifetime if its credential expires or `connections.max.reauth.ms` is set. Its client then authenticates
again in time (KIP-368), with the same mechanism and principal. After a handshake with another mechanism the next token
closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from penstock.model.errors import MESSAGE_MAX, ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import UnencodableMessage, decode, decode_from, encode, join
from penstock.protocol.declaration import Message
from penstock.protocol.frames import RequestHeader, read_request_header, response_parts
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.primitives import Buffer, MalformedMessage, Part
from penstock.protocol.software import is_well_formed
from penstock.security.principal import Principal, is_storable
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge, ServerExchange, Verification

REAUTHENTICATION_INTERVAL_MS: Final = 1000
REASON_MAX: Final = 300  # characters of a line in the log: the reason may quote what the client sent
_read_api_key = struct.Struct(">h").unpack_from
_LENGTH: Final = struct.Struct(">i")


class State(Enum):
    START = auto()
    HANDSHAKE = auto()
    BARE_TOKENS = auto()
    AUTHENTICATE = auto()
    # A handshake of a re-authentication named another mechanism.
    OTHER_MECHANISM = auto()
    VERIFYING = auto()
    READY = auto()
    OVER = auto()


class Send(NamedTuple):
    frame: bytes


class PassOn(NamedTuple):
    """The router handles the frame."""


class Verify(NamedTuple):
    """Run the work in a thread, and pass its outcome to `verified`. The connection handles nothing meanwhile."""

    work: Callable[[], Challenge | Accepted]


class Close(NamedTuple):
    """Close the connection, after this reply if there is one."""

    reason: str
    reply: bytes = b""
    is_delayed: bool = False


Step = Send | PassOn | Verify | Close


class Session(NamedTuple):
    principal: Principal
    mechanism: str
    by_token: bool
    # When the session ends, on the clock of `now_ms`; None for a session without an end.
    ends_at_ms: int | None


class Mechanism(NamedTuple):
    """A mechanism that a listener has enabled."""

    new_exchange: Callable[[], ServerExchange]
    # connections.max.reauth.ms; 0 for no limit.
    max_session_ms: int = 0


class Authentication:
    def __init__(self, mechanisms: Mapping[str, Mechanism], *, wall_clock_ms: Callable[[], int]) -> None:
        """`wall_clock_ms`: for the expiry of credentials."""
        self._mechanisms = mechanisms
        self._wall_clock_ms = wall_clock_ms
        self._state = State.START
        self.session: Session | None = None
        """The session once the client is authenticated. It stays while the client authenticates again."""
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._header: RequestHeader | None = None  # of the SaslAuthenticate request that is being answered
        self._begun_at_ms: int | None = None  # when the last re-authentication began

    @property
    def is_ready(self) -> bool:
        return self._state is State.READY

    @property
    def needs_watching(self) -> bool:
        """Whether frames must still pass through this machine: the client is not ready, or its session will end."""
        return self._state is not State.READY or (self.session is not None and self.session.ends_at_ms is not None)

    def received(self, frame: Buffer, now_ms: int) -> Step:
        """`now_ms`: a clock that never goes back."""
        try:
            if self._state is State.READY:
                return self._in_session(frame, now_ms)
            if self._state in (State.START, State.HANDSHAKE):
                return self._handshake(frame)
            if self._state is State.AUTHENTICATE:
                return self._authenticate(frame, now_ms)
            if self._state is State.BARE_TOKENS:
                return self._token(bytes(frame), now_ms)
        except MalformedMessage as error:
            return self._close(f"a malformed request: {error}")
        if self._state is State.OTHER_MECHANISM:
            return self._close("another mechanism than before cannot be used to authenticate again", is_delayed=True)
        return self._close("a request while nothing is expected")

    def verified(self, outcome: Challenge | Accepted | AuthenticationFailed, now_ms: int) -> Step:
        """The outcome of a `Verify`."""
        assert self._state is State.VERIFYING
        self._state = State.BARE_TOKENS if self._header is None else State.AUTHENTICATE
        return self._refuse(outcome) if isinstance(outcome, AuthenticationFailed) else self._answer(outcome, now_ms)

    # -- states -------------------------------------------------------------------------------------------------------

    def _handshake(self, frame: Buffer) -> Step:
        header, position = read_request_header(frame, 0)
        if header.api_key == ApiKey.API_VERSIONS and self._state is State.START:
            return self._versions(header, frame, position)
        if header.api_key != ApiKey.SASL_HANDSHAKE or not _is_served(header):
            return self._close(f"API {header.api_key} version {header.api_version} before authentication")
        request, _ = decode_from(SaslHandshakeRequest, frame, header.api_version, position)
        mechanisms = list(self._mechanisms)
        if request.mechanism not in self._mechanisms:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            reply = _response(header, SaslHandshakeResponse(error_code=error, mechanisms=mechanisms))
            return self._close(f"the mechanism {request.mechanism!r} is not enabled", reply, is_delayed=True)
        if self.session is not None and self.session.mechanism != request.mechanism:
            self._state = State.OTHER_MECHANISM
        else:
            self._mechanism = request.mechanism
            self._exchange = self._mechanisms[request.mechanism].new_exchange()
            self._state = State.AUTHENTICATE if header.api_version >= 1 else State.BARE_TOKENS
        self._header = None
        return Send(_response(header, SaslHandshakeResponse(mechanisms=mechanisms)))

    def _versions(self, header: RequestHeader, frame: Buffer, position: int) -> Step:
        """A request that the router answers with an error may be repeated."""
        if _is_served(header):
            request, _ = decode_from(ApiVersionsRequest, frame, header.api_version, position)
            if is_well_formed(request, header.api_version):
                self._state = State.HANDSHAKE
        return PassOn()

    def _authenticate(self, frame: Buffer, now_ms: int) -> Step:
        header, position = read_request_header(frame, 0)
        if not _is_served(header):
            return self._close(f"API {header.api_key} version {header.api_version} during authentication")
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            reply = _error_response(header, ErrorCode.ILLEGAL_SASL_STATE)
            return self._close(f"API {header.api_key} during authentication", reply, is_delayed=True)
        request, _ = decode_from(SaslAuthenticateRequest, frame, header.api_version, position)
        self._header = header
        return self._token(bytes(request.auth_bytes), now_ms)

    def _in_session(self, frame: Buffer, now_ms: int) -> Step:
        session = self.session
        if session is None or session.ends_at_ms is None:
            return PassOn()
        is_handshake = len(frame) >= 2 and _read_api_key(frame)[0] == ApiKey.SASL_HANDSHAKE
        if is_handshake and self._may_begin_again(now_ms):
            self._begun_at_ms = now_ms
            self._state = State.HANDSHAKE
            return self._handshake(frame)
        if now_ms > session.ends_at_ms:
            return self._close(f"the session of {str(session.principal)!r} has ended")
        return PassOn()

    def _may_begin_again(self, now_ms: int) -> bool:
        return self._begun_at_ms is None or now_ms - self._begun_at_ms >= REAUTHENTICATION_INTERVAL_MS

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _token(self, token: bytes, now_ms: int) -> Step:
        assert self._exchange is not None
        try:
            outcome = self._exchange.step(token)
        except AuthenticationFailed as failure:
            return self._refuse(failure)
        if isinstance(outcome, Verification):
            self._state = State.VERIFYING
            return Verify(outcome.work)
        return self._answer(outcome, now_ms)

    def _answer(self, outcome: Challenge | Accepted, now_ms: int) -> Step:
        lifetime_ms = 0
        if isinstance(outcome, Accepted):
            if not is_storable(outcome.principal):
                return self._refuse(AuthenticationFailed("the name of the user is too long, or no text"))
            former = self.session
            if former is not None and former.principal != outcome.principal:
                old, new = former.principal, outcome.principal
                text = (
                    "Cannot change principals during re-authentication from "
                    f"{old.type}.{old.name}: {new.type}.{new.name}"
                )
                return self._refuse(AuthenticationFailed(text, text))
            lifetime = self._lifetime_ms(outcome)
            lifetime_ms = lifetime or 0
            ends_at_ms = None if lifetime is None else now_ms + lifetime
            self.session = Session(outcome.principal, self._mechanism, outcome.by_token, ends_at_ms)
            self._exchange = None
            self._state = State.READY
        if self._header is None:
            return Send(_LENGTH.pack(len(outcome.token)) + outcome.token)
        response = SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=lifetime_ms)
        return Send(_response(self._header, response))

    def _lifetime_ms(self, accepted: Accepted) -> int | None:
        limits = []
        if accepted.expires_at_ms is not None:
            limits.append(max(0, accepted.expires_at_ms - self._wall_clock_ms()))
        if (longest := self._mechanisms[self._mechanism].max_session_ms) > 0:
            limits.append(longest)
        return min(limits, default=None)

    def _refuse(self, failure: AuthenticationFailed) -> Close:
        reply = b""
        if self._header is not None:
            occasion = "authentication" if self.session is None else "re-authentication"
            text = failure.public or (
                f"Authentication failed during {occasion} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            text = text[:MESSAGE_MAX].encode(errors="replace").decode()  # it may quote what the client sent
            error = ErrorCode.SASL_AUTHENTICATION_FAILED
            reply = _response(self._header, SaslAuthenticateResponse(error_code=error, error_message=text))
        return self._close(f"{self._mechanism}: {failure}", reply, is_delayed=True)

    def _close(self, reason: str, reply: bytes = b"", *, is_delayed: bool = False) -> Close:
        self._state = State.OVER
        self._exchange = None
        return Close(reason[:REASON_MAX], reply, is_delayed)


def _is_served(header: RequestHeader) -> bool:
    spec = API.get(header.api_key)
    return spec is not None and spec.min_version <= header.api_version <= spec.max_version


def _response(header: RequestHeader, response: Message) -> bytes:
    parts: list[Part] = []
    response_parts(header.api_key, header.api_version, header.correlation_id, response, parts)
    return join(parts)


def _error_response(header: RequestHeader, error: ErrorCode) -> bytes:
    """The response of any API with an error; empty if this version of it has no place for one.

    The request itself is not decoded: the client is not authenticated yet.
    """
    response_type: Any = API[header.api_key].response
    if "error_code" not in getattr(response_type, "__slots__", ()):
        return b""
    response = response_type(error_code=error)
    try:
        encoded = encode(response, header.api_version)
    except UnencodableMessage:
        return b""
    carries_error = decode(response_type, encoded, header.api_version).error_code == error
    return _response(header, response) if carries_error else b""
