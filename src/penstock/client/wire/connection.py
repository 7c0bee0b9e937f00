"""One blocking connection to one broker, for administration and readiness checks.

One request is in flight at a time. After an error on the wire the connection is closed, because the state of the stream
is unknown.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.client.errors import BadResponse, NotAuthorized, TimedOut, Unreachable, UnsupportedApi, raise_for
from penstock.client.wire.bundle import join_bundle
from penstock.client.wire.closing import Closing
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.conversation import (
    SESSION_PART,
    AuthenticationRefused,
    Conversation,
    HandshakeRefused,
    ImplausibleLength,
    Login,
    spec_of,
)
from penstock.protocol.declaration import Message
from penstock.security.sasl.exchange import AuthenticationFailed

Response = TypeVar("Response", bound=Message)

CLIENT_ID = "penstock"
DEFAULT_TIMEOUT_S = 10.0
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection(Closing):
    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        client_id: str = CLIENT_ID,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.timeout = timeout
        self._conversation: Conversation[Any] = Conversation(client_id, login=login)
        self._session_ends_s: float | None = None  # when to authenticate again
        # What may be wrong if the broker closes the connection before it has answered a request.
        self._hint = "" if login or tls else ": it may ask for TLS or a login (security.protocol is PLAINTEXT)"
        try:
            self._socket = socket.create_connection((host, port), timeout)
            if tls is not None:
                self._socket = _encrypted(self._socket, tls, host)
            join_bundle(self._socket)
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or error
            raise Unreachable(f"cannot connect to {self.address}: the TLS handshake failed: {reason}") from error
        except TimeoutError as error:
            raise Unreachable(f"{self.address} does not accept the connection within {timeout:g} s") from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {self.address}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation.greet()
        self._shake_hands("ApiVersions or the login" if login else "ApiVersions", timeout)

    def close(self) -> None:
        self._socket.close()

    def _shake_hands(self, what: str, timeout: float) -> None:
        conversation = self._conversation
        deadline = time.monotonic() + timeout
        with self._failures_named(what, timeout):
            while not conversation.is_open:
                self._move_bytes(deadline)
                conversation.next_answer()
                if conversation.work is not None:
                    conversation.worked(conversation.work())
        lifetime_s = conversation.session_lifetime_ms / 1000
        self._session_ends_s = time.monotonic() + SESSION_PART * lifetime_s if lifetime_s else None

    @property
    def is_open(self) -> bool:
        """False once either side has closed it, as brokers do with idle connections."""
        try:
            self._socket.setblocking(False)
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.recv(1)  # all requests are answered: what arrives can only be the end
                return False
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except WOULD_BLOCK:
            return True
        except OSError:
            return False

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version that the broker serves, by API key."""
        return self._conversation.versions

    def supports(self, key: ApiKey) -> bool:
        return self._conversation.version(key) is not None

    def version(self, key: int) -> int:
        """The version for requests of this API."""
        version = self._conversation.version(key)
        if version is None:
            raise UnsupportedApi(f"{self.address} does not serve {API[key].name}")
        return version

    def served(self, key: ApiKey) -> int:
        """The newest version that the broker supports, stable or not; -1: none."""
        return self.versions.get(key, (0, -1))[1]

    def request(
        self,
        message: Message,
        response: type[Response],
        *,
        timeout: float | None = None,
        newest: int | None = None,
        draft: int | None = None,
    ) -> Response:
        """Send a request, in no later version than `newest`, and wait. The caller checks error codes in the response.

        `draft` is a version that Kafka does not call stable yet. A caller that passes one has checked that it is
        `served`.
        """
        spec = spec_of(message)
        if spec.response is not response:
            raise TypeError(f"{spec.name} is answered by {spec.response.__name__}, not {response.__name__}")
        version = self.version(spec.key) if draft is None else draft
        conversation = self._conversation
        if self._session_ends_s is not None and time.monotonic() >= self._session_ends_s:
            conversation.authenticate_again()
            self._shake_hands("the login", self.timeout)
        conversation.request(message, spec, version if newest is None else min(version, newest))
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        answer = None
        with self._failures_named(spec.name, seconds):
            while answer is None:
                self._move_bytes(deadline)
                answer = conversation.next_answer()
        self._hint = ""
        conversation.keep_received()
        received: Response = answer.response
        return received

    def _move_bytes(self, deadline: float) -> None:
        """Send queued bytes, then receive some."""
        conversation = self._conversation
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self._socket.sendall(conversation.take_outgoing())
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self._receive(conversation)

    def _receive(self, conversation: Conversation[Any]) -> None:
        count = self._socket.recv_into(conversation.receive_buffer())
        if not count:
            raise Unreachable(f"{self.address} closed the connection{self._hint}")
        conversation.received(count)

    @contextmanager
    def _failures_named(self, name: str, seconds: float) -> Iterator[None]:
        """Close the connection after any failure, and raise it as a ClientError."""
        try:
            try:
                yield
            except TimeoutError as error:
                raise TimedOut(f"{self.address} does not answer {name} within {seconds:g} s") from error
            except OSError as error:
                raise Unreachable(f"lost the connection to {self.address}: {error.strerror or error}") from error
            except ImplausibleLength as error:
                raise BadResponse(f"{self.address} is not a Kafka broker: it announces {error}") from error
            except MalformedMessage as error:
                raise BadResponse(f"{self.address} answers {name} with bytes that are no Kafka response") from error
            except (AuthenticationRefused, AuthenticationFailed) as error:
                raise NotAuthorized(f"cannot log in to {self.address}: {error}") from error
            except HandshakeRefused as error:
                raise_for(error.error_code, None, f"{self.address} refuses ApiVersions")
        except BaseException:
            self.close()
            raise


def _encrypted(plain: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
