"""Listening sockets and the connection limits.

A `Listener` is one entry of Kafka's `listeners`. All listeners of a node share one `ConnectionLimits`. A refused
connection is closed before any byte is read from it; an idle one after `connections.max.idle.ms`.

A node that cannot open a file any more cannot sync its metadata log, and stops. So connections never get the last files
that the process may open: the kernel gives each its lowest free descriptor, and a connection whose descriptor is too
high is refused.

Clients must not keep nodes from each other. A protected listener, on which only nodes connect, is exempt from
`max.connections`, and may use some more of the files.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.connection import RECEIVE_BUFFER_SIZE, Connection, Gate
from penstock.broker.net.latency import Latency, now_ns
from penstock.broker.net.tls import HandshakeRefused, TlsStream

if TYPE_CHECKING:
    from penstock.tls.contexts import TlsContexts

logger = logging.getLogger("penstock.server")

FrameHandler = Callable[[Connection, memoryview, int, int], None]
RunHandler = Callable[[Connection, memoryview, int, int], int]

KEPT_BYTES_MAX = 16 * 1024 * 1024  # total size of receive buffers kept for the next large frame of their connections
HELD_MAX = 1000  # connections above a quota that are held; further ones are closed at once
FILES_KEPT_SHARE = 4  # of the files that the process may open, connections do not get this part: a fourth
FILES_KEPT_SHARE_PROTECTED = 8
WRITE_BUFFER_HIGH = 1024 * 1024  # above this, a connection's next request waits until its peer has read


@dataclass(slots=True)
class ConnectionLimits:
    total_max: int
    per_address_max: int
    per_address_overrides: Mapping[str, int]
    parked_max: int  # limit on the parked requests of all connections together
    parked: int = 0
    buffered: int = 0  # bytes of the connections' own receive buffers
    open_total: int = 0
    open_by_address: Counter[str] = field(default_factory=Counter)
    opened_ever: int = 0
    refused_ever: int = 0

    @property
    def may_park(self) -> bool:
        return self.parked < self.parked_max

    def refusal(self, host: str, *, is_protected: bool = False) -> str | None:
        if self.open_total >= self.total_max and not is_protected:
            return f"{self.open_total} connections are open already (max.connections)"
        address_max = self.per_address_overrides.get(host, self.per_address_max)
        if self.open_by_address[host] >= address_max:
            return f"{address_max} connections from {host} are open already (max.connections.per.ip)"
        return None

    def opened(self, host: str) -> None:
        self.open_total += 1
        self.opened_ever += 1
        self.open_by_address[host] += 1

    def closed(self, host: str) -> None:
        self.open_total -= 1
        self.open_by_address[host] -= 1
        if not self.open_by_address[host]:
            del self.open_by_address[host]


def files_refusal(descriptor: int, *, is_protected: bool) -> str | None:
    """Why a connection with this descriptor is refused, if it is."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    share = FILES_KEPT_SHARE_PROTECTED if is_protected else FILES_KEPT_SHARE
    if limit == resource.RLIM_INFINITY or descriptor < limit - limit // share:
        return None
    return f"the process may open {limit} files, and the last ones are not for connections (ulimit -n)"


class Listener:
    """One listening address and its connections."""

    def __init__(
        self,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        handle: FrameHandler,
        handle_run: RunHandler,
        after_reads: Callable[[], None],
        limits: ConnectionLimits,
        request_bytes_max: int,
        small_request_bytes_max: int,
        parked_max: int,
        socket_buffers: Mapping[int, int],
        plain_latency: Latency,
        connection_throttle_ms: Callable[[str], int] = lambda host: 0,
        receive_buffer: bytearray | None = None,
        new_gate: Callable[[Connection], Gate] | None = None,
        tls: TlsContexts | None = None,
        failure_delay_s: float = 0.1,
        is_protected: bool = False,
    ) -> None:
        """`connection_throttle_ms`: how long to hold a new connection of a host before it is closed; 0 to accept it.

        `new_gate`: for a listener whose clients must authenticate themselves. `failure_delay_s`: how long a connection
        whose TLS handshake failed is kept, so that trying is slow. `is_protected`: only nodes connect here, and clients
        elsewhere.
        """
        self.name = name
        self._is_protected = is_protected
        # Anybody can cause these lines, as often as they connect.
        self.complaints = SparingLog(logging.getLogger("penstock.connection"), loop.time)
        self._refusals = SparingLog(logger, loop.time)
        self._idle = SparingLog(logger, loop.time)
        self._tls_complaints = SparingLog(logging.getLogger("penstock.tls"), loop.time)
        self.new_gate = new_gate
        self.handle = handle
        self.handle_run = handle_run
        self.after_reads = after_reads
        self.limits = limits
        self.request_bytes_max = request_bytes_max
        self.small_request_bytes_max = small_request_bytes_max
        self.parked_max = parked_max
        self.socket_buffers = socket_buffers  # sizes by SO_SNDBUF and SO_RCVBUF
        self.receive_buffer = receive_buffer if receive_buffer is not None else bytearray(RECEIVE_BUFFER_SIZE)
        self.receive_view = memoryview(self.receive_buffer)
        self.loop = loop
        self.connections: dict[Connection, None] = {}  # in the order of their arrival
        self.plain_latency = plain_latency
        self.plain_requests = 0  # answered in this turn of the loop, and not counted yet
        self.plain_since = 0  # when the first of them arrived
        self._connection_throttle_ms = connection_throttle_ms
        self._held: dict[Connection, asyncio.TimerHandle] = {}  # above a quota: not read from, and closed later
        self._to_flush: list[Connection] = []
        self._kept_buffers: dict[Connection, int] = {}  # sizes, least recently used first
        self._kept_bytes = 0
        self._resting: dict[Connection, tuple[int, float]] = {}  # its last read, and when `close_idle` first saw it
        self.tls = tls
        self._failure_delay_s = failure_delay_s
        self._encrypted_buffer = bytearray(RECEIVE_BUFFER_SIZE if tls is not None else 0)
        self.port = 0
        self.on_closed: Callable[[Connection], None] | None = None  # called for every connection that closes
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, *, backlog: int) -> None:
        """Bind, which reserves the port and makes it known; clients cannot connect before `serve`.

        An empty host means every address, IPv4 and (if the machine has it) IPv6.
        """
        self._server = await self.loop.create_server(
            self._new_connection, host or None, port, backlog=backlog, reuse_address=True, start_serving=False
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _new_connection(self) -> asyncio.BaseProtocol:
        connection = Connection(self)
        if self.tls is None:
            return connection
        return TlsStream(
            self.tls.accepting,
            connection,
            self._encrypted_buffer,
            self.loop,
            failure_delay_s=self._failure_delay_s,
            shaken=self._identify,
            complaints=self._tls_complaints,
        )

    def _identify(self, connection: Connection, tls: ssl.SSLObject) -> None:
        """A client has shown its certificate, if it has one and the listener asks for it.

        With SASL above TLS the certificate only opens the connection: who the client is comes from its login.
        """
        assert self.tls is not None
        if self.new_gate is not None:
            return
        from penstock.tls.names import NoRuleMatches

        try:
            principal = self.tls.principal_of(tls.getpeercert(binary_form=True))
        except NoRuleMatches as error:
            raise HandshakeRefused(f"no rule of ssl.principal.mapping.rules matches {error}") from error
        connection.authenticated(principal)

    async def serve(self) -> None:
        assert self._server is not None
        await self._server.start_serving()

    def flush_soon(self, connection: Connection) -> None:
        """Send a connection's replies after all currently readable connections have been read, together with those to
        the fetches that waited for what they brought."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        try:
            self.after_reads()
        finally:  # otherwise this method would never be called again
            connections, self._to_flush = self._to_flush, []
            for connection in connections:
                try:
                    connection.flush()
                except Exception:
                    logger.exception("closing %s: it cannot be answered", connection.peer_host)
                    connection.abort()
        if self.plain_requests:
            self.plain_latency.add(now_ns() - self.plain_since, self.plain_requests)
            self.plain_requests = 0

    def keep_buffer(self, connection: Connection, size: int) -> None:
        """Let a connection keep its buffer for the next large frame.

        Above the limit, the least recently used buffers are dropped.
        """
        kept = self._kept_buffers
        self._kept_bytes += size - kept.pop(connection, 0)
        kept[connection] = size
        while self._kept_bytes > KEPT_BYTES_MAX:
            oldest = next(iter(kept))
            self._kept_bytes -= kept.pop(oldest)
            oldest.drop_buffer()

    def connection_opened(self, connection: Connection) -> None:
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        # First, because a connection that is held needs a file, too.
        refusal = None if sock is None else files_refusal(sock.fileno(), is_protected=self._is_protected)
        if refusal is not None:
            self._refuse(connection, refusal)
            return
        throttle_ms = self._connection_throttle_ms(connection.peer_host)
        if throttle_ms:
            self._hold(connection, throttle_ms)
            return
        refusal = self.limits.refusal(connection.peer_host, is_protected=self._is_protected)
        if refusal is not None:
            self._refuse(connection, refusal)
            return
        self.limits.opened(connection.peer_host)
        self.connections[connection] = None
        connection.transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in self.socket_buffers.items():
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    def _refuse(self, connection: Connection, reason: str) -> None:
        self.limits.refused_ever += 1
        self._refusals.log(logging.WARNING, "refusing a connection from %s: %s", connection.peer_host, reason)
        connection.abort()

    def _hold(self, connection: Connection, throttle_ms: int) -> None:
        """Close a connection later: a client that is refused at once would come back at once."""
        if len(self._held) >= HELD_MAX:
            connection.abort()
            return
        connection.ignore()
        self._held[connection] = self.loop.call_later(throttle_ms / 1000, connection.abort)

    def connection_closed(self, connection: Connection) -> None:
        timer = self._held.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self._kept_bytes -= self._kept_buffers.pop(connection, 0)
        if connection in self.connections:
            del self.connections[connection]
            self.limits.closed(connection.peer_host)
            if self.on_closed is not None:
                self.on_closed(connection)

    def close_idle(self, idle_max_seconds: float) -> None:
        """Close the connections that have received nothing between two checks at least that far apart.

        The node calls this a few times per `idle_max_seconds`.
        """
        now = self.loop.time()
        resting: dict[Connection, tuple[int, float]] = {}
        for connection in list(self.connections):
            since, looked_at = self._resting.get(connection, (-1, now))
            if since != connection.since:
                resting[connection] = (connection.since, now)
            elif now - looked_at < idle_max_seconds:
                resting[connection] = (since, looked_at)
            elif connection.close_if_idle():
                text = "closed the connection of %s: idle (connections.max.idle.ms)"
                self._idle.log(logging.INFO, text, connection.peer_host)
        self._resting = resting

    async def close(self) -> None:
        """Stop listening, then close every connection; replies that are ready are still sent."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        for connection in list(self._held):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()
