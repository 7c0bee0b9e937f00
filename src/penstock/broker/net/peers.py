"""Client connections to other nodes: send requests and pass each answer to the caller.

Theory of operation:

- A `Peer` is one connection to one address, for one purpose (`channel`). Requests that must not wait behind others have
  their own channel: a heartbeat must not wait behind a bulky answer. A peer connects when there is something to send,
  sends ApiVersions first, and sends each request in the highest version that both sides support.
- Requests are pipelined and answered in order. An answer that does not belong to the oldest request means that the
  stream is broken, and closes it.
- `done` is called exactly once for each request, and never from within `send`: with the response, or with a
  `PeerFailed`. The response may hold views of the receive buffer (records); they are valid only during `done`.
- When a connection is lost, all requests that wait for an answer fail; the other node may or may not have carried them
  out. An overdue request closes the connection: the requests behind it would not get through either, and a new
  connection may.
- After a failed attempt to connect, the next attempt is delayed, longer each time. Requests sent meanwhile wait for
  that attempt and share its outcome, so a caller that retries at once does no harm.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from penstock import __version__
from penstock.model.errors import KafkaError
from penstock.protocol.apis import ApiKey, ApiSpec
from penstock.protocol.codec import MalformedMessage, UnencodableMessage
from penstock.protocol.conversation import (
    SESSION_PART,
    AuthenticationRefused,
    Conversation,
    Form,
    HandshakeRefused,
    Login,
    spec_of,
)
from penstock.protocol.declaration import Message
from penstock.security.sasl.exchange import AuthenticationFailed

logger = logging.getLogger("penstock.peers")

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
TIMER_SLACK_S: Final = 0.001


class PeerFailed(Exception):
    """A request got no answer. `refused`: no process listens there; `timed_out`: the answer did not arrive in time."""

    def __init__(self, message: str, *, refused: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.refused = refused
        self.timed_out = timed_out


Done = Callable[[Any], None]  # gets the response (of the type that answers the request), or a PeerFailed


class Peers:
    """The connections of this node to the listeners of one kind of other nodes: brokers or controllers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        *,
        login: Login | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`login`: how this node authenticates itself at those listeners; None if it need not, or does so by its
        certificate. `tls` returns the context of a new connection; None for plain connections."""
        self.loop = loop
        self.client_id = client_id
        self.login = login
        self.tls = tls
        self._peers: dict[tuple[str, int, str], Peer] = {}

    def at(self, host: str, port: int, channel: str = "") -> Peer:
        key = (host, port, channel)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(self, host, port, channel)
        return peer

    def local_host(self) -> str | None:
        """The address under which other nodes see this machine.

        It is taken from any connection; a loopback address only if there is no other.
        """
        hosts = [host for peer in self._peers.values() if (host := peer.local_host)]
        return next((host for host in hosts if not is_loopback(host)), hosts[0] if hosts else None)

    def forget(self, peer: Peer) -> None:
        key = (peer.host, peer.port, peer.channel)
        if self._peers.get(key) is peer:
            del self._peers[key]

    def close(self) -> None:
        for peer in list(self._peers.values()):
            peer.close()


class _Pending(NamedTuple):
    message: Message
    spec: ApiSpec
    done: Done
    deadline: float
    form: Form | None


class Peer:
    def __init__(self, peers: Peers, host: str, port: int, channel: str) -> None:
        self.host = host
        self.port = port
        self.channel = channel
        self._peers = peers
        self._loop = peers.loop
        self._conversation: Conversation[_Pending] = Conversation(peers.client_id)  # a new one for each connection
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Pending] = deque()  # not sent yet: there is no connection
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._session_ends_s: float | None = None  # when to authenticate again
        self._is_closed = False
        self.on_lost: Callable[[], None] | None = None  # called when a connection is lost, even an idle one

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    # -- for callers --------------------------------------------------------------------------------------------------

    @property
    def local_host(self) -> str | None:
        """The address of this machine that the peer sees; None while not connected."""
        return self._stream.local_host if self._stream is not None else None

    def version(self, key: ApiKey) -> int | None:
        """The version in which requests of this API are sent; None if there is no common one, or not known yet."""
        return self._conversation.version(key)

    def send(self, message: Message, done: Done, *, timeout: float, form: Form | None = None) -> None:
        """`done` gets the response (what the `form` decodes, if there is one) or a PeerFailed, after at most about
        `timeout` seconds."""
        pending = _Pending(message, spec_of(message), done, self._loop.time() + timeout, form)
        if self._is_closed:
            self._loop.call_soon(done, PeerFailed(f"the connection to {self} was closed"))
            return
        if self._conversation.is_open and not self._is_session_old():
            self._transmit(pending)
        else:
            self._waiting.append(pending)
            self._connect()
            self._renew_session()
        self._watch(pending.deadline)

    def disconnect(self, reason: str) -> None:
        """Drop this connection, even if it is still being opened, and fail all requests that wait for an answer on it.

        The next request opens a new connection.
        """
        self._stop_connecting()
        if self._stream is not None or self._waiting:
            self._lose(PeerFailed(reason))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._peers.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        self._stop_connecting()
        self._lose(PeerFailed(f"the connection to {self} was closed"))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _transmit(self, pending: _Pending) -> None:
        version = self._conversation.version(pending.spec.key)
        if version is None:
            failure = PeerFailed(f"{self} does not serve {pending.spec.name} in a version this node speaks")
            self._loop.call_soon(pending.done, failure)
            return
        try:
            self._conversation.request(pending.message, pending, version, form=pending.form)
        except (UnencodableMessage, KafkaError) as error:
            self._loop.call_soon(pending.done, PeerFailed(f"{pending.spec.name} cannot be sent to {self}: {error}"))
            return
        self._write_outgoing()

    def _write_outgoing(self) -> None:
        assert self._stream is not None
        self._stream.write(self._conversation.take_outgoing())

    def received(self, stream: _Stream) -> None:
        """The conversation has received bytes. Raises MalformedMessage if they are not responses."""
        conversation = stream.conversation
        was_open = conversation.is_open
        while (answer := conversation.next_answer()) is not None:
            self._answer(*answer)
            if self._stream is not stream:
                return
        if not was_open:
            self._write_outgoing()  # the next step of the handshake, if there is one
            if conversation.work is not None:
                self._log_in(stream)
            elif conversation.is_open:
                self._opened()
        elif self._waiting:
            self._renew_session()

    # -- login --------------------------------------------------------------------------------------------------------

    def _log_in(self, stream: _Stream) -> None:
        """Take the next step of the login in a thread: it may derive a key from a password."""
        conversation = stream.conversation
        assert conversation.work is not None

        def done(future: asyncio.Future[bytes | None]) -> None:
            if self._stream is not stream or future.cancelled():
                return
            error = future.exception()
            if error is not None:
                self.lost(stream, error if isinstance(error, Exception) else None)
                return
            conversation.worked(future.result())
            self._write_outgoing()
            if conversation.is_open:
                self._opened()

        self._loop.run_in_executor(None, conversation.work).add_done_callback(done)

    def _is_session_old(self) -> bool:
        return self._session_ends_s is not None and self._loop.time() >= self._session_ends_s

    def _renew_session(self) -> None:
        """Authenticate again if it is time and no request waits for its answer; others wait meanwhile."""
        conversation = self._conversation
        if conversation.is_open and self._is_session_old() and not conversation.sent:
            self._session_ends_s = None
            conversation.authenticate_again()
            self._write_outgoing()

    def _answer(self, pending: _Pending, outcome: object) -> None:
        try:
            pending.done(outcome)
        except Exception:
            # A defect in the caller; it must not affect the requests that wait behind this one.
            logger.exception("the answer of %s to %s could not be processed", self, pending.spec.name)

    # -- connecting ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._stream is None and self._connecting is None:
            self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            delay = self._not_before - self._loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            tls = self._peers.tls
            if tls is None:
                await self._loop.create_connection(self._new_stream, self.host, self.port)
            else:
                await self._loop.create_connection(
                    self._new_stream, self.host, self.port, ssl=tls(), server_hostname=self.host
                )
        except OSError as error:
            self._connecting = None
            self._back_off()
            self._fail_all(
                PeerFailed(f"cannot connect to {self}: {error.strerror or error}", refused=_is_refused(error))
            )
        else:
            self._connecting = None

    def _new_stream(self) -> _Stream:
        conversation: Conversation[_Pending] = Conversation(
            self._peers.client_id, software_version=__version__, login=self._peers.login
        )
        return _Stream(self, conversation)

    def _stop_connecting(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None

    def _back_off(self) -> None:
        self._backoff_s = min(max(BACKOFF_MIN_S, 2 * self._backoff_s), BACKOFF_MAX_S)
        self._not_before = self._loop.time() + self._backoff_s

    def connected(self, stream: _Stream) -> None:
        if self._is_closed or self._stream is not None:
            stream.abort()
            return
        self._stream = stream
        self._conversation = stream.conversation
        # The requests that wait for the handshake end the connection if it takes too long.
        self._conversation.greet()
        self._write_outgoing()

    def _opened(self) -> None:
        self._backoff_s = self._not_before = 0.0
        lifetime_ms = self._conversation.session_lifetime_ms
        self._session_ends_s = self._loop.time() + SESSION_PART * lifetime_ms / 1000 if lifetime_ms else None
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            self._transmit(pending)

    # -- failures -----------------------------------------------------------------------------------------------------

    def lost(self, stream: _Stream, error: Exception | None) -> None:
        """The peer has closed the connection, or sent malformed data."""
        if self._stream is stream:
            if isinstance(error, HandshakeRefused):
                self._lose(PeerFailed(f"{self} refuses ApiVersions with error {error.error_code}"))
                return
            if isinstance(error, AuthenticationRefused | AuthenticationFailed):
                logger.error("cannot log in to %s: %s", self, error)
                self._lose(PeerFailed(f"cannot log in to {self}: {error}"))
                return
            reason = str(error) if error is not None else "it was closed at the other end"
            self._lose(PeerFailed(f"lost the connection to {self}: {reason}"))
            if self.on_lost is not None:
                self.on_lost()

    def _lose(self, failure: PeerFailed) -> None:
        stream, self._stream = self._stream, None
        self._session_ends_s = None
        if stream is not None:
            stream.abort()
            if not self._conversation.is_open:
                self._back_off()
        self._fail_all(failure)

    def _fail_all(self, failure: PeerFailed) -> None:
        failed = [*self._sent(), *self._waiting]
        self._conversation = Conversation(self._peers.client_id)
        self._waiting.clear()
        for pending in failed:
            self._loop.call_soon(self._answer, pending, failure)

    def _sent(self) -> list[_Pending]:
        return [sent.context for sent in self._conversation.sent if sent.context is not None]

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        self._timer = None
        now = self._loop.time() + TIMER_SLACK_S
        overdue = next((each for each in self._sent() if each.deadline <= now), None)
        late = [each for each in self._waiting if each.deadline <= now]
        if overdue is not None or (late and self._stream is not None):
            name = overdue.spec.name if overdue is not None else "ApiVersions or the login"
            self._lose(PeerFailed(f"{self} does not answer {name} in time", timed_out=True))
        elif late:
            failure = PeerFailed(f"cannot connect to {self} in time", timed_out=True)
            self._waiting = deque(each for each in self._waiting if each.deadline > now)
            for pending in late:
                self._loop.call_soon(self._answer, pending, failure)
            # A new attempt sends a SYN at once; the kernel would wait longer before each retransmission.
            self._stop_connecting()
            if self._waiting:
                self._connect()
        remaining = [each.deadline for each in (*self._sent(), *self._waiting)]
        if remaining:
            self._watch(min(remaining))


class _Stream(asyncio.BufferedProtocol):
    """Sends and receives the bytes of one connection."""

    def __init__(self, peer: Peer, conversation: Conversation[_Pending]) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self.conversation = conversation
        self.local_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods but another base class
        name = transport.get_extra_info("sockname")
        self.local_host = str(name[0]) if isinstance(name, tuple) and name else ""
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._peer.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._peer.lost(self, exc)

    def eof_received(self) -> bool:
        return False

    def write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.conversation.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.conversation.received(nbytes)
        try:
            self._peer.received(self)
        except (HandshakeRefused, AuthenticationRefused) as error:
            self._peer.lost(self, error)
        except MalformedMessage as error:
            logger.error("%s sends bytes that are no Kafka response: %s", self._peer, error)
            self._peer.lost(self, error)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _is_refused(error: OSError) -> bool:
    """Whether the connection was refused.

    If a name has several addresses, asyncio raises one error whose text contains the errors of all of them.
    """
    return error.errno == errno.ECONNREFUSED or (error.errno is None and f"Errno {errno.ECONNREFUSED}" in str(error))
