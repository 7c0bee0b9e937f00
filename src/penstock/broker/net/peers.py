"""Connections to other nodes: requests out, answers back to whoever asked.

Theory of operation:

- A `Peer` is one connection to one address, for one purpose (`channel`): what must not wait behind something else, as a
  heartbeat must not wait behind a bulky answer, has a channel of its own. It connects when there is something to send,
  asks for ApiVersions first, and sends each request in the highest version that both sides speak.
- Requests are pipelined and answered in order; an answer that does not belong to the oldest request means that the
  stream is broken, and ends it.
- `done` is called exactly once for each request, and never from within `send`: with the response, or with a
  `PeerFailed`. The response may hold views of the receive buffer (records): they are good during `done` only.
- When a connection is lost, all that waits for an answer fails; whether it was carried out nobody knows. A request that
  is overdue loses the connection: the ones behind it would not get through either, and a new connection may.
- After an attempt that failed, the next waits, longer each time. What is to be sent meanwhile waits for that attempt
  and shares its outcome, so that a caller who tries again at once does no harm.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from penstock import __version__
from penstock.model.errors import KafkaError
from penstock.protocol.apis import ApiKey, ApiSpec
from penstock.protocol.codec import MalformedMessage, UnencodableMessage
from penstock.protocol.conversation import Conversation, HandshakeRefused, spec_of
from penstock.protocol.declaration import Message

logger = logging.getLogger("penstock.peers")

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
TIMER_SLACK_S: Final = 0.001


class PeerFailed(Exception):
    """There is no answer. `refused`: nobody listens there; `timed_out`: it did not come in time."""

    def __init__(self, message: str, *, refused: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.refused = refused
        self.timed_out = timed_out


Done = Callable[[Any], None]  # of a response of the type that answers the request, or a PeerFailed


class Peers:
    """All the nodes this one talks to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str) -> None:
        self.loop = loop
        self.client_id = client_id
        self._peers: dict[tuple[str, int, str], Peer] = {}

    def at(self, host: str, port: int, channel: str = "") -> Peer:
        key = (host, port, channel)
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(self, host, port, channel)
        return peer

    def local_host(self) -> str | None:
        """The address other nodes see this machine by: that of any connection, loopback only if there is no other."""
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


class Peer:
    def __init__(self, peers: Peers, host: str, port: int, channel: str) -> None:
        self.host = host
        self.port = port
        self.channel = channel
        self._peers = peers
        self._loop = peers.loop
        self._conversation: Conversation[_Pending] = Conversation(peers.client_id)  # another one for each connection
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Pending] = deque()  # for a connection
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._is_closed = False
        self.on_lost: Callable[[], None] | None = None  # called when a connection ends, also an idle one

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    # -- for those who send -------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._conversation.is_open

    @property
    def local_host(self) -> str | None:
        """The address of this machine that the peer sees; None while there is no connection."""
        return self._stream.local_host if self._stream is not None else None

    def version(self, key: ApiKey) -> int | None:
        """The version requests of this kind are sent in; None if there is none, or none is known yet."""
        return self._conversation.version(key)

    def send(self, message: Message, done: Done, *, timeout: float) -> None:
        """`done` gets the response or a PeerFailed, within `timeout` seconds or so."""
        pending = _Pending(message, spec_of(message), done, self._loop.time() + timeout)
        if self._is_closed:
            self._loop.call_soon(done, PeerFailed(f"the connection to {self} was closed"))
            return
        if self._conversation.is_open:
            self._transmit(pending)
        else:
            self._waiting.append(pending)
            self._connect()
        self._watch(pending.deadline)

    def disconnect(self, reason: str) -> None:
        """Give this connection up, also one in the making, and all that waits for an answer on it; the next request
        makes a new one."""
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
            self._conversation.request(pending.message, pending, version)
        except (UnencodableMessage, KafkaError) as error:
            self._loop.call_soon(pending.done, PeerFailed(f"{pending.spec.name} cannot be sent to {self}: {error}"))
            return
        self._write_outgoing()

    def _write_outgoing(self) -> None:
        assert self._stream is not None
        self._stream.write(self._conversation.take_outgoing())

    def received(self, stream: _Stream) -> None:
        """Bytes have come to the conversation; raises MalformedMessage if they are no responses."""
        conversation = stream.conversation
        was_open = conversation.is_open
        while (answer := conversation.next_answer()) is not None:
            self._answer(*answer)
            if self._stream is not stream:
                return
        if not was_open:
            self._write_outgoing()  # the handshake may go on
            if conversation.is_open:
                self._opened()

    def _answer(self, pending: _Pending, outcome: object) -> None:
        try:
            pending.done(outcome)
        except Exception:
            # A defect of whoever asked; the others, who wait behind it, must not suffer for it.
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
            await self._loop.create_connection(self._new_stream, self.host, self.port)
        except OSError as error:
            self._connecting = None
            self._back_off()
            self._fail_all(
                PeerFailed(f"cannot connect to {self}: {error.strerror or error}", refused=_is_refused(error))
            )
        else:
            self._connecting = None

    def _new_stream(self) -> _Stream:
        return _Stream(self, Conversation(self._peers.client_id, software_version=__version__))

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
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            self._transmit(pending)

    # -- failures -----------------------------------------------------------------------------------------------------

    def lost(self, stream: _Stream, error: Exception | None) -> None:
        """The other side is gone, or what it sends makes no sense."""
        if self._stream is stream:
            if isinstance(error, HandshakeRefused):
                self._lose(PeerFailed(f"{self} refuses ApiVersions with error {error.error_code}"))
                return
            reason = str(error) if error is not None else "it was closed at the other end"
            self._lose(PeerFailed(f"lost the connection to {self}: {reason}"))
            if self.on_lost is not None:
                self.on_lost()

    def _lose(self, failure: PeerFailed) -> None:
        stream, self._stream = self._stream, None
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
            name = overdue.spec.name if overdue is not None else "ApiVersions"
            self._lose(PeerFailed(f"{self} does not answer {name} in time", timed_out=True))
        elif late:
            failure = PeerFailed(f"cannot connect to {self} in time", timed_out=True)
            self._waiting = deque(each for each in self._waiting if each.deadline > now)
            for pending in late:
                self._loop.call_soon(self._answer, pending, failure)
            # A new attempt knocks at once, where the kernel would wait ever longer before it does so again.
            self._stop_connecting()
            if self._waiting:
                self._connect()
        remaining = [each.deadline for each in (*self._sent(), *self._waiting)]
        if remaining:
            self._watch(min(remaining))


class _Stream(asyncio.BufferedProtocol):
    """The bytes of one connection."""

    def __init__(self, peer: Peer, conversation: Conversation[_Pending]) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self.conversation = conversation
        self.local_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class
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
        except HandshakeRefused as error:
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
    """Where a name has several addresses, asyncio tells what became of each in one error, as text."""
    return error.errno == errno.ECONNREFUSED or (error.errno is None and f"Errno {errno.ECONNREFUSED}" in str(error))
