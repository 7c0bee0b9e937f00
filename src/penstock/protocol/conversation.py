"""The client side of a connection without I/O: requests in and bytes out, bytes in and responses out.

A driver moves the bytes. It writes `take_outgoing()` to its socket, receives into `receive_buffer()`, reports the
number of bytes with `received(count)`, and takes responses from `next_answer()` until that returns None:

    conversation = Conversation("my-client")
    conversation.greet()
    socket.sendall(conversation.take_outgoing())
    conversation.received(socket.recv_into(conversation.receive_buffer()))

`greet` starts the handshake: ApiVersions in version 4, and again in version 0 if the broker does not know that one.
(Version 5 is for clients that name the node they mean to reach, and most brokers do not know it yet.) With a login,
SaslHandshake and SaslAuthenticate follow. A step of a mechanism may take milliseconds (SCRAM derives a key from the
password), so it is left to the driver: while `work` is not None, the driver calls it, in a thread if others wait for
it, and passes the outcome to `worked`.

When the conversation `is_open`, each request is sent in the highest version that both sides support. Requests are
pipelined and answered in order. A response whose correlation id is not that of the oldest request means that the stream
is broken: it raises MalformedMessage, and the driver closes the connection.

A broker may limit the time of a session (`session_lifetime_ms`, KIP-368). After most of it the driver calls
`authenticate_again`, as soon as no request waits for its response. The conversation is not open meanwhile.

A response is decoded in its receive buffer. Its records are views that stay valid until the next call of
`receive_buffer`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey, ApiSpec
from penstock.protocol.codec import decode, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.header import ResponseHeader
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.protocol.primitives import Buffer, MalformedMessage

RECEIVE_BUFFER_BYTES: Final = 64 * 1024
KEPT_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
SOFTWARE_NAME: Final = "penstock"
GREETING_VERSION: Final = 4
HANDSHAKE_VERSION: Final = 1  # with SaslAuthenticate, and not with bare tokens
# The part of a session's lifetime after which a client authenticates again; Kafka's clients choose 85 to 95 percent.
SESSION_PART: Final = 0.85

_read_length = struct.Struct(">i").unpack_from

ContextT = TypeVar("ContextT")


class ImplausibleLength(MalformedMessage):
    """The peer announces a response of a size that no broker sends: it uses another protocol."""


class HandshakeRefused(Exception):
    """The broker answered ApiVersions with an error."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"ApiVersions is refused with error {error_code}")
        self.error_code = error_code


class AuthenticationRefused(Exception):
    """The broker refuses the login, or does not prove that it knows the credential."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class Exchange(Protocol):
    """One SASL exchange: see `penstock.security.sasl.exchange.ClientExchange`."""

    def first(self) -> bytes: ...

    def step(self, token: bytes) -> bytes | None: ...


class Login(Protocol):
    @property
    def mechanism(self) -> str: ...

    def begin(self) -> Exchange: ...


class Form(Protocol):
    """Encodes a request, and decodes its response, in another way than the codec."""

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes: ...

    def decode(self, frame: Buffer, version: int, position: int) -> object: ...


class Answer(NamedTuple, Generic[ContextT]):
    context: ContextT
    """The context that was passed to `request`."""
    response: Any


class Sent(NamedTuple, Generic[ContextT]):
    """A request that waits for its response."""

    spec: ApiSpec
    version: int
    correlation_id: int
    context: ContextT | None
    """None for a request of the handshake."""
    form: Form | None = None


def spec_of(message: Message) -> ApiSpec:
    """Return the API of a request."""
    key = message.__schema__.key
    if key is None:
        raise TypeError(f"{type(message).__name__} is not a request")
    return API[key]


class Conversation(Generic[ContextT]):
    def __init__(self, client_id: str, *, software_version: str = "0", login: Login | None = None) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        """The lowest and the highest version that the broker serves, by API key; empty before the handshake."""
        self.is_open = False
        """Whether the handshake is complete."""
        self.sent: deque[Sent[ContextT]] = deque()
        """The requests that wait for a response, oldest first."""
        self.work: Callable[[], bytes | None] | None = None
        """A step of the login that the driver has to take; see `worked`."""
        self.session_lifetime_ms = 0
        """How long the broker lets this login last, as of its last response; 0 for no limit."""
        self._login = login
        self._exchange: Exchange | None = None
        self._client_id = client_id
        self._software_version = software_version
        self._correlation_id = 0
        self._outgoing: list[bytes] = []
        self._buffer = bytearray()  # allocated when the first bytes are expected
        self._start = 0  # the start of the received bytes that have not been consumed
        self._end = 0

    # -- requests -----------------------------------------------------------------------------------------------------

    def version(self, key: int) -> int | None:
        """Return the version for requests of this API; None if both sides have no version in common."""
        spec = API[key]
        low, high = self.versions.get(key, (0, -1))
        version = min(high, spec.max_version)
        return version if version >= max(low, spec.min_version) else None

    def greet(self) -> None:
        self._greet(GREETING_VERSION)

    def request(
        self,
        message: Message,
        context: ContextT,
        version: int,
        *,
        is_answered: bool = True,
        form: Form | None = None,
    ) -> None:
        """Send a request. A Produce with acks=0 is not answered. With a `form`, that encodes the message."""
        self._send(message, context, version, is_answered=is_answered, form=form)

    def take_outgoing(self) -> bytes:
        """Return the bytes to write now."""
        outgoing = self._outgoing
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        outgoing.clear()
        return data

    def _greet(self, version: int) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=self._software_version)
        self._send(request, None, version, is_answered=True)

    def _send(
        self,
        message: Message,
        context: ContextT | None,
        version: int,
        *,
        is_answered: bool,
        form: Form | None = None,
    ) -> None:
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        if form is None:
            frame = encode_request(message, version, correlation_id, self._client_id)
        else:
            frame = form.encode(version, correlation_id, self._client_id)
        self._outgoing.append(frame)
        if is_answered:
            self.sent.append(Sent(spec_of(message), version, correlation_id, context, form))

    # -- responses ----------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> memoryview:
        """Return the buffer to receive into; never empty."""
        unused = self._end - self._start
        needed = max(RECEIVE_BUFFER_BYTES, unused + 1)
        if unused >= 4:
            (length,) = _read_length(self._buffer, self._start)
            needed = max(needed, 4 + length)
        size = len(self._buffer)
        if size < needed or (size > max(needed, KEPT_BUFFER_BYTES_MAX)):
            buffer = bytearray(needed)
            buffer[:unused] = memoryview(self._buffer)[self._start : self._end]
            self._buffer = buffer
        elif self._start:
            view = memoryview(self._buffer)
            view[:unused] = view[self._start : self._end]  # memoryview handles overlapping ranges
        self._start, self._end = 0, unused
        return memoryview(self._buffer)[unused:]

    def received(self, count: int) -> None:
        self._end += count

    def next_answer(self) -> Answer[ContextT] | None:
        """Return the next response that has been received completely."""
        while True:
            start = self._start
            if self._end - start < 4:
                return None
            (length,) = _read_length(self._buffer, start)
            if not 4 <= length <= RESPONSE_BYTES_MAX:
                raise ImplausibleLength(f"a response of {length} bytes")
            if self._end - start < 4 + length:
                return None
            frame = memoryview(self._buffer)[start + 4 : start + 4 + length]
            answer = self.read_frame(frame)
            self._start = start + 4 + length
            if answer is not None:
                return answer

    def keep_received(self) -> None:
        """Keep the buffer for the responses that were taken, and receive into a new one from now on."""
        self._buffer = self._buffer[self._start : self._end]
        self._start, self._end = 0, len(self._buffer)

    def read_frame(self, frame: Buffer) -> Answer[ContextT] | None:
        """Decode the response in a frame, without its length; None if it is part of the handshake."""
        if not self.sent:
            raise MalformedMessage("a response without a request")
        spec, version, correlation_id, context, form = self.sent[0]
        header, position = decode_from(ResponseHeader, frame, response_header_version(spec.key, version), 0)
        if header.correlation_id != correlation_id:
            raise MalformedMessage(f"correlation id {header.correlation_id} instead of {correlation_id}")
        if spec.key == ApiKey.API_VERSIONS and _error_code(frame, position) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        response: Any
        if form is None:
            response = decode(spec.response, frame, version, position)
        else:
            response = form.decode(frame, version, position)
        self.sent.popleft()
        if context is not None:
            return Answer(context, response)
        if isinstance(response, SaslHandshakeResponse):
            self._mechanism_chosen(response)
        elif isinstance(response, SaslAuthenticateResponse):
            self._challenged(response)
        else:
            self._greeted(response)
        return None

    def _greeted(self, response: ApiVersionsResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._greet(0)
        elif response.error_code:
            raise HandshakeRefused(response.error_code)
        else:
            self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            self.authenticate_again()

    # -- login --------------------------------------------------------------------------------------------------------

    def authenticate_again(self) -> None:
        """Log in, for the first time or before the session ends. No request may be waiting for its response."""
        self.is_open = self._login is None
        if self._login is not None:
            self._send(SaslHandshakeRequest(mechanism=self._login.mechanism), None, HANDSHAKE_VERSION, is_answered=True)

    def worked(self, token: bytes | None) -> None:
        """The outcome of `work`: the token for the broker, or None if the login is complete."""
        self.work = None
        if token is None:
            self._exchange = None
            self.is_open = True
            return
        version = self.version(ApiKey.SASL_AUTHENTICATE)
        self._send(SaslAuthenticateRequest(auth_bytes=token), None, version or 0, is_answered=True)

    def _mechanism_chosen(self, response: SaslHandshakeResponse) -> None:
        assert self._login is not None
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationRefused(
                response.error_code,
                f"the SASL mechanism {self._login.mechanism} is not enabled: {', '.join(response.mechanisms)}",
            )
        if response.error_code:
            raise AuthenticationRefused(response.error_code, f"SaslHandshake is refused: {response.error_code}")
        exchange = self._exchange = self._login.begin()
        self.work = exchange.first

    def _challenged(self, response: SaslAuthenticateResponse) -> None:
        if response.error_code:
            text = response.error_message or f"SaslAuthenticate is refused with error {response.error_code}"
            raise AuthenticationRefused(response.error_code, text)
        exchange, token = self._exchange, bytes(response.auth_bytes)
        assert exchange is not None
        self.session_lifetime_ms = response.session_lifetime_ms
        self.work = lambda: exchange.step(token)


def _error_code(frame: Buffer, position: int) -> int:
    return int.from_bytes(frame[position : position + 2], "big", signed=True)
