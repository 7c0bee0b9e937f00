"""A closed-loop load generator: N connections, D requests in flight on each, one epoll loop.

It has to be quicker than what it measures, so it sends slices of prebuilt frames (`bench.frames`), reads with one
large buffer, and checks replies by strided slices: correlation ids and error codes of all replies of a read in three
comparisons. The first reply of each connection is decoded in full. Bodies of large Fetch replies are copied out of the
socket, as any client must, but not looked at.

Run as a process of its own: settings as JSON in, a result as JSON out.
"""

from __future__ import annotations

import contextlib
import gc
import json
import select
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bench.frames import (
    REPLY_HEADER_SIZE,
    BadReply,
    Ring,
    batch_of_size,
    check_fetch_reply,
    check_produce_reply,
    fetch_error_positions,
    fetch_ring,
    produce_error_position,
    produce_ring,
    single_record_batch,
)
from bench.processes import cpu_seconds

LARGE_REPLY = 64 * 1024
READ_BUFFER_SIZE = 1024 * 1024
REPLY_TIMEOUT_S = 30.0
_READ = select.EPOLLIN
_READ_WRITE = select.EPOLLIN | select.EPOLLOUT


@dataclass(frozen=True, kw_only=True)
class BlastSettings:
    port: int
    host: str = "127.0.0.1"
    server_pid: int = 0
    """Whose CPU time is charged; 0 if it is not known."""
    kafka: bool = True
    """False for a floor, whose replies have the size of Kafka's and nothing in them."""
    api: Literal["produce", "fetch"]
    topic: str
    connections: int
    depth: int = 1
    value_size: int = 0
    """produce: one record with a value of this size a request ..."""
    batch_size: int = 0
    """... or a batch of exactly this size."""
    acks: int = 1
    offsets: list[int] = field(default_factory=list)
    """fetch: the offsets asked for in turn."""
    fetch_size: int = 0
    """fetch: bytes of records every reply must have."""
    warmup_s: float = 0.2
    seconds: float = 1.0
    max_bytes: int = 1 << 62
    """Stop early once this much was sent and received: large batches would fill the page cache."""

    def ring(self, connection: int) -> Ring:
        if self.api == "fetch":
            return fetch_ring(self.topic, 0, self.offsets, self.fetch_size)
        batch = batch_of_size(self.batch_size) if self.batch_size else single_record_batch(self.value_size)
        return produce_ring(self.topic, connection, batch, self.depth, self.acks)


@dataclass(frozen=True, kw_only=True)
class BlastResult:
    requests: int
    seconds: float
    requests_per_second: float
    bytes_per_second: float
    server_cpu_us: float | None
    """CPU of the server a request."""
    server_cores: float | None
    client_cores: float
    p50_us: float
    p99_us: float
    p999_us: float


class _Connection:
    """One socket and its place in its ring. `completed` replies count as soon as they are checked."""

    def __init__(self, settings: BlastSettings, number: int, connected: socket.socket) -> None:
        self._topic = settings.topic
        self._ring = settings.ring(number)
        self._frames = memoryview(self._ring.frames)
        self._depth = settings.depth
        if self._ring.count < settings.depth:
            raise ValueError("the ring is shorter than the pipeline is deep")
        self.socket = connected
        self.socket.settimeout(REPLY_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fileno = self.socket.fileno()
        self._sent_slot = 0
        self._reply_slot = 0
        self._in_flight = 0
        self._sent_at = [0.0] * self._ring.count
        self._unsent: memoryview | None = None
        if settings.api == "produce":
            self._error_positions: Sequence[int] = (produce_error_position(settings.topic),)
        else:
            self._error_positions = fetch_error_positions(settings.topic)
        self.reply_size = self._first_reply(settings)
        self._expected_ids = bytes(index & 0xFF for index in range(self._ring.count)) * 2
        self._error_free = bytes(self._ring.count)
        self.socket.setblocking(False)

    def _first_reply(self, settings: BlastSettings) -> int:
        """One request and its reply, checked in full; its size is what all others must have."""
        self.socket.sendall(self._frames[: self._ring.frame_size])
        prefix = self._receive(4)
        length = int.from_bytes(prefix, "big")
        reply = prefix + self._receive(length)
        if settings.kafka:
            body = memoryview(reply)[REPLY_HEADER_SIZE:]
            if settings.api == "produce":
                check_produce_reply(body, settings.topic)
            else:
                check_fetch_reply(body, settings.topic, settings.offsets[0], settings.fetch_size)
        self._sent_slot = self._reply_slot = 1 % self._ring.count
        return len(reply)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise BadReply("the server closed the connection at the first request")
            parts += part
        return bytes(parts)

    @property
    def frame_size(self) -> int:
        return self._ring.frame_size

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def send(self, count: int, now: float) -> bool:
        """Send the next `count` requests; false if the socket took only a part of them."""
        slot = self._sent_slot
        size = self._ring.frame_size
        block = self._frames[slot * size : (slot + count) * size]
        if count == 1:
            self._sent_at[slot] = now
        else:
            for index in range(slot, slot + count):
                self._sent_at[index % self._ring.count] = now
        self._sent_slot = (slot + count) % self._ring.count
        self._in_flight += count
        if self._unsent is not None:
            self._unsent = memoryview(bytes(self._unsent) + block)
            return False
        try:
            sent = self.socket.send(block)
        except BlockingIOError:
            sent = 0
        if sent == len(block):
            return True
        self._unsent = block[sent:]
        return False

    def flush(self) -> bool:
        if self._unsent is not None:
            sent = self.socket.send(self._unsent)
            self._unsent = self._unsent[sent:] if sent < len(self._unsent) else None
        return self._unsent is None

    def receive(self, now: float, latencies: list[float]) -> int:
        """Take what has arrived; the number of replies completed by it."""
        raise NotImplementedError

    def _check(self, replies: bytearray | bytes, count: int) -> None:
        size = self.reply_size
        end = count * size
        slot = self._reply_slot
        if replies[7:end:size] != self._expected_ids[slot : slot + count]:
            raise BadReply("a reply of another size, or out of order")
        for position in self._error_positions:
            high, low = replies[position:end:size], replies[position + 1 : end : size]
            if high != self._error_free[:count] or low != self._error_free[:count]:
                raise BadReply(
                    f"{self._topic}: error code {int.from_bytes(bytes(max(zip(high, low, strict=True))), 'big')}"
                )

    def _completed(self, count: int, now: float, latencies: list[float]) -> None:
        slot = self._reply_slot
        latencies.append(now - self._sent_at[slot])
        self._reply_slot = (slot + count) % self._ring.count
        self._in_flight -= count


class _SmallReplies(_Connection):
    """Reads as many replies as there are; an incomplete one is kept for the next time."""

    _buffer = bytearray(READ_BUFFER_SIZE)
    _view = memoryview(_buffer)

    def __init__(self, settings: BlastSettings, number: int, connected: socket.socket) -> None:
        super().__init__(settings, number, connected)
        self._carry = b""

    def receive(self, now: float, latencies: list[float]) -> int:
        held = len(self._carry)
        if held:
            self._view[:held] = self._carry
        received = self.socket.recv_into(self._view[held:] if held else self._view)
        if not received:
            raise BadReply("the server closed a connection under load")
        filled = held + received
        count, rest = divmod(filled, self.reply_size)
        self._carry = bytes(self._view[filled - rest : filled]) if rest else b""
        if count:
            self._check(self._buffer, count)
            self._completed(count, now, latencies)
        return count


class _LargeReplies(_Connection):
    """Reads and checks the head of a reply, and reads over the rest of it."""

    _discard = memoryview(bytearray(READ_BUFFER_SIZE))

    def __init__(self, settings: BlastSettings, number: int, connected: socket.socket) -> None:
        super().__init__(settings, number, connected)
        self._head_size = max(self._error_positions) + 2
        self._head = b""
        self._rest = 0

    def receive(self, now: float, latencies: list[float]) -> int:
        if not self._rest:
            part = self.socket.recv(self._head_size - len(self._head))
            if not part:
                raise BadReply("the server closed a connection under load")
            self._head += part
            if len(self._head) < self._head_size:
                return 0
            if int.from_bytes(self._head[:4], "big") + 4 != self.reply_size:
                raise BadReply("a reply of another size")
            self._check(self._head, 1)
            self._head = b""
            self._rest = self.reply_size - self._head_size
        try:
            received = self.socket.recv_into(self._discard, min(self._rest, len(self._discard)))
        except BlockingIOError:
            return 0
        if not received:
            raise BadReply("the server closed a connection in the middle of a reply")
        self._rest -= received
        if self._rest:
            return 0
        self._completed(1, now, latencies)
        return 1


def blast(settings: BlastSettings) -> BlastResult:
    kind = _LargeReplies if settings.fetch_size > LARGE_REPLY else _SmallReplies
    with contextlib.ExitStack() as open_sockets:
        connections: list[_Connection] = []
        for number in range(settings.connections):
            connected = open_sockets.enter_context(socket.create_connection((settings.host, settings.port)))
            connections.append(kind(settings, number, connected))
        if len({(connection.frame_size, connection.reply_size) for connection in connections}) > 1:
            raise BadReply("the connections of a load do not get replies of one size")
        return _Loop(settings, connections).run()


class _Loop:
    def __init__(self, settings: BlastSettings, connections: Sequence[_Connection]) -> None:
        self._settings = settings
        self._connections = {connection.fileno: connection for connection in connections}
        self._bytes_a_request = connections[0].frame_size + connections[0].reply_size
        self._epoll = select.epoll()
        for fileno in self._connections:
            self._epoll.register(fileno, _READ)

    def run(self) -> BlastResult:
        settings = self._settings
        gc.collect()
        gc.disable()
        now = time.perf_counter()
        for connection in self._connections.values():
            self._send(connection, settings.depth, now)
        self._turn(settings.warmup_s, settings.max_bytes // 8, [])
        latencies: list[float] = []
        server_before = cpu_seconds(settings.server_pid) if settings.server_pid else 0.0
        client_before = time.process_time()
        started = time.perf_counter()
        requests = self._turn(settings.seconds, settings.max_bytes, latencies)
        seconds = time.perf_counter() - started
        client_cpu = time.process_time() - client_before
        server_cpu = cpu_seconds(settings.server_pid) - server_before if settings.server_pid else None
        self._drain()
        gc.enable()
        latencies.sort()
        return BlastResult(
            requests=requests,
            seconds=seconds,
            requests_per_second=requests / seconds,
            bytes_per_second=requests * self._bytes_a_request / seconds,
            server_cpu_us=None if server_cpu is None else server_cpu / requests * 1e6,
            server_cores=None if server_cpu is None else server_cpu / seconds,
            client_cores=client_cpu / seconds,
            p50_us=percentile(latencies, 0.5) * 1e6,
            p99_us=percentile(latencies, 0.99) * 1e6,
            p999_us=percentile(latencies, 0.999) * 1e6,
        )

    def _send(self, connection: _Connection, count: int, now: float) -> None:
        if not connection.send(count, now):
            self._epoll.modify(connection.fileno, _READ_WRITE)

    def _turn(self, seconds: float, max_bytes: int, latencies: list[float]) -> int:
        """Keep every pipeline full until the time or the bytes are up; the number of replies."""
        poll = self._epoll.poll
        connections = self._connections
        clock = time.perf_counter
        most = max_bytes // self._bytes_a_request + 1
        requests = 0
        now = clock()
        deadline = now + seconds
        while now < deadline and requests < most:
            for fileno, event in poll(REPLY_TIMEOUT_S):
                connection = connections[fileno]
                if event & select.EPOLLOUT and connection.flush():
                    self._epoll.modify(fileno, _READ)
                if event & ~select.EPOLLOUT:
                    now = clock()
                    completed = connection.receive(now, latencies)
                    if completed:
                        requests += completed
                        if not connection.send(completed, now):
                            self._epoll.modify(fileno, _READ_WRITE)
            if clock() - now > REPLY_TIMEOUT_S:
                raise BadReply(f"no reply within {REPLY_TIMEOUT_S:g} s")
        return requests

    def _drain(self) -> None:
        while any(connection.in_flight for connection in self._connections.values()):
            ready = self._epoll.poll(REPLY_TIMEOUT_S)
            if not ready:
                raise BadReply(f"no reply within {REPLY_TIMEOUT_S:g} s")
            for fileno, event in ready:
                connection = self._connections[fileno]
                if event & select.EPOLLOUT and connection.flush():
                    self._epoll.modify(fileno, _READ)
                if event & ~select.EPOLLOUT:
                    connection.receive(time.perf_counter(), [])


def percentile(ordered: Sequence[float], fraction: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def main(arguments: dict[str, Any]) -> None:
    print(json.dumps(asdict(blast(BlastSettings(**arguments)))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
