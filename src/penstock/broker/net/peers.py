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
import itertools
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

from penstock import __version__
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import API, ApiKey, ApiSpec
from penstock.protocol.codec import MalformedMessage, UnencodableMessage, decode, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.header import ResponseHeader

logger = logging.getLogger("penstock.peers")

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
RECEIVE_BUFFER_BYTES: Final = 64 * 1024
KEPT_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
TIMER_SLACK_S: Final = 0.001

_SPECS: Final[dict[type[Any], ApiSpec]] = {spec.request: spec for spec in API.values()}
_read_length = struct.Struct(">i").unpack_from


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


class _Pending:
    __slots__ = ("correlation_id", "deadline", "done", "message", "spec", "version")

    def __init__(self, message: Message, spec: ApiSpec, done: Done, deadline: float) -> None:
        self.message = message
        self.spec = spec
        self.done = done
        self.deadline = deadline
        self.version = -1
        self.correlation_id = -1


class Peer:
    def __init__(self, peers: Peers, host: str, port: int, channel: str) -> None:
        self.host = host
        self.port = port
        self.channel = channel
        self._peers = peers
        self._loop = peers.loop
        self._client_id = peers.client_id
        self._correlation_ids = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] | None = None  # None: not connected, or not greeted yet
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[_Pending] = deque()  # for a connection
        self._sent: deque[_Pending] = deque()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._closed = False
        self.on_lost: Callable[[], None] | None = None  # called when a connection ends, also an idle one

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    # -- for those who send -------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._versions is not None

    @property
    def local_host(self) -> str | None:
        """The address of this machine that the peer sees; None while there is no connection."""
        return self._stream.local_host if self._stream is not None else None

    def version(self, key: ApiKey) -> int | None:
        """The version requests of this kind are sent in; None if there is none, or none is known yet."""
        return self._common(API[key])

    def send(self, message: Message, done: Done, *, timeout: float) -> None:
        """`done` gets the response or a PeerFailed, within `timeout` seconds or so."""
        pending = _Pending(message, _SPECS[type(message)], done, self._loop.time() + timeout)
        if self._closed:
            self._loop.call_soon(done, PeerFailed(f"the connection to {self} was closed"))
            return
        if self._versions is not None:
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
        if self._closed:
            return
        self._closed = True
        self._peers.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        self._stop_connecting()
        self._lose(PeerFailed(f"the connection to {self} was closed"))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _common(self, spec: ApiSpec) -> int | None:
        if self._versions is None:
            return None
        low, high = self._versions.get(spec.key, (0, -1))
        version = min(high, spec.max_version)
        return version if version >= max(low, spec.min_version) else None

    def _transmit(self, pending: _Pending) -> None:
        version = self._common(pending.spec)
        if version is None:
            failure = PeerFailed(f"{self} does not serve {pending.spec.name} in a version this node speaks")
            self._loop.call_soon(pending.done, failure)
            return
        self._write(pending, version)

    def _write(self, pending: _Pending, version: int) -> None:
        assert self._stream is not None
        pending.version = version
        pending.correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        try:
            frame = encode_request(pending.message, version, pending.correlation_id, self._client_id)
        except (UnencodableMessage, KafkaError) as error:
            self._loop.call_soon(pending.done, PeerFailed(f"{pending.spec.name} cannot be sent to {self}: {error}"))
            return
        self._sent.append(pending)
        self._stream.write(frame)

    def received(self, frame: memoryview) -> None:
        """A whole answer; raises MalformedMessage if it is none, or not to what was asked."""
        if not self._sent:
            raise MalformedMessage("an answer to nothing")
        pending = self._sent[0]
        spec, version = pending.spec, pending.version
        header, position = decode_from(ResponseHeader, frame, response_header_version(spec.key, version), 0)
        if header.correlation_id != pending.correlation_id:
            raise MalformedMessage(f"correlation id {header.correlation_id} instead of {pending.correlation_id}")
        if spec.key == ApiKey.API_VERSIONS and _error_code(frame, position) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        response = decode(spec.response, frame, version, position)
        self._sent.popleft()
        self._answer(pending, response)

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
            await self._loop.create_connection(lambda: _Stream(self), self.host, self.port)
        except OSError as error:
            self._connecting = None
            self._back_off()
            self._fail_all(
                PeerFailed(f"cannot connect to {self}: {error.strerror or error}", refused=_is_refused(error))
            )
        else:
            self._connecting = None

    def _stop_connecting(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None

    def _back_off(self) -> None:
        self._backoff_s = min(max(BACKOFF_MIN_S, 2 * self._backoff_s), BACKOFF_MAX_S)
        self._not_before = self._loop.time() + self._backoff_s

    def connected(self, stream: _Stream) -> None:
        if self._closed or self._stream is not None:
            stream.abort()
            return
        self._stream = stream
        self._greet(API[ApiKey.API_VERSIONS].max_version)

    def _greet(self, version: int) -> None:
        """ApiVersions in our highest version; a node that lacks it says so in version 0."""
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        # It waits as long as those that wait for it, who end the connection if it takes too long.
        self._write(_Pending(request, API[ApiKey.API_VERSIONS], self._greeted, float("inf")), version)

    def _greeted(self, outcome: ApiVersionsResponse | PeerFailed) -> None:
        if isinstance(outcome, PeerFailed):
            return
        if outcome.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._greet(0)
            return
        if outcome.error_code != ErrorCode.NONE:
            self._lose(PeerFailed(f"{self} refuses ApiVersions with error {outcome.error_code}"))
            return
        self._backoff_s = self._not_before = 0.0
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in outcome.api_keys}
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            self._transmit(pending)

    # -- failures -----------------------------------------------------------------------------------------------------

    def lost(self, stream: _Stream, error: Exception | None) -> None:
        """The other side is gone, or what it sends makes no sense."""
        if self._stream is stream:
            reason = str(error) if error is not None else "it was closed at the other end"
            self._lose(PeerFailed(f"lost the connection to {self}: {reason}"))
            if self.on_lost is not None:
                self.on_lost()

    def _lose(self, failure: PeerFailed) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abort()
            if self._versions is None:
                self._back_off()
        self._versions = None
        self._fail_all(failure)

    def _fail_all(self, failure: PeerFailed) -> None:
        failed = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        for pending in failed:
            self._loop.call_soon(self._answer, pending, failure)

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
        overdue = next((each for each in self._sent if each.deadline <= now), None)
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
        remaining = [each.deadline for each in (*self._sent, *self._waiting)]
        if remaining:
            self._watch(min(remaining))


class _Stream(asyncio.BufferedProtocol):
    """The bytes of one connection, cut into frames."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._filled = 0
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
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        view = memoryview(self._buffer)
        position, end = 0, self._filled
        needed = 0
        try:
            while end - position >= 4:
                (length,) = _read_length(view, position)
                if not 4 <= length <= RESPONSE_BYTES_MAX:
                    raise MalformedMessage(f"an answer of {length} bytes")
                if end - position < 4 + length:
                    needed = 4 + length
                    break
                self._peer.received(view[position + 4 : position + 4 + length])
                position += 4 + length
                if self._transport is None:
                    return
        except MalformedMessage as error:
            logger.error("%s sends what is no Kafka response: %s", self._peer, error)
            self._peer.lost(self, error)
            return
        self._keep(view, position, end, needed)

    def _keep(self, view: memoryview, position: int, end: int, needed: int) -> None:
        """Keep view[position:end], and have room for the rest of the frame it begins; large room only while needed."""
        left = end - position
        size = len(self._buffer)
        if needed > size or (not left and size > KEPT_BUFFER_BYTES_MAX):
            self._buffer = bytearray(max(needed, RECEIVE_BUFFER_BYTES))
            self._buffer[:left] = view[position:end]
        elif position and left:
            view[:left] = view[position:end]  # a view knows about overlaps
        self._filled = left


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


def _error_code(frame: memoryview, position: int) -> int:
    return int.from_bytes(frame[position : position + 2], "big", signed=True)
