"""Simulates TCP between named hosts, in memory, on virtual time.

This is the kernel's half: connections, windows, packets in flight and their faults. The asyncio half (`transport`) uses
`Endpoint` as a real transport uses a socket.

The model follows what TCP shows to a program. Bytes of one direction of one connection arrive in order or not at all,
on some connections cut into pieces at random places; between connections there is no order. A cut link loses nothing at
first: packets are sent again when it heals, and only after `retransmission_timeout_s` does the sender give up. A single
direction may be cut; then acknowledgements are lost too, so the other direction stalls when its window is full. Closing
with unread bytes, or sending to a socket that is gone, causes a reset. The kernel closes the sockets of a killed
process. A machine that lost power sends nothing, and answers with resets once it is back.

All randomness comes from one seeded generator; nothing iterates over a set.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.simulator.twins.loop import SimulatedLoop

Address = tuple[str, int]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FIRST_EPHEMERAL_PORT = 32_768
_CONNECT_TIMEOUT_S = 127.0
"""Linux sends a SYN seven times, at doubling intervals from one second."""


class Accepts(Protocol):
    """A listener on a port."""

    def accept(self, endpoint: Endpoint) -> None: ...


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))  # OSError picks the subclass: ConnectionResetError, TimeoutError, ...


def _refuse(answer: asyncio.Future[Endpoint], number: int) -> None:
    if not answer.done():
        answer.set_exception(_error(number))


class _Pipe:
    """One direction of a connection: packets that were sent and have not arrived."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._packets: deque[Callable[[], None]] = deque()
        self._under_way = 0
        self._last_arrival = 0.0
        self._stalled = False
        self._stalls = 0
        self.gave_up: Callable[[], None] = lambda: None

    def send(self, packet: Callable[[], None]) -> None:
        """`packet` is called when it arrives."""
        self._packets.append(packet)
        self.send_again()

    def send_again(self) -> None:
        """Give every packet without a timer one, unless the link is cut."""
        if self._network.is_cut(self._source, self._target):
            self._stall()
            return
        self._stalled = False
        while self._under_way < len(self._packets):
            loop = self._network.loop
            latency = self._network.latency(self._source, self._target)
            self._last_arrival = max(self._last_arrival, loop.time() + latency)
            self._under_way += 1
            loop.call_at(self._last_arrival, self._arrive, context=self._network.context)

    def _arrive(self) -> None:
        self._under_way -= 1
        if self._network.is_cut(self._source, self._target):
            self._stall()
        elif self._packets:
            self._packets.popleft()()

    def _stall(self) -> None:
        """Nothing gets through. The sender gives up if that lasts, counted from the first lost packet."""
        if self._stalled:
            return
        self._stalled = True
        self._stalls += 1
        this = self._stalls

        def give_up() -> None:
            if self._stalled and self._stalls == this:
                self._packets.clear()
                self.gave_up()

        self._network.loop.call_later(self._network.retransmission_timeout_s, give_up, context=self._network.context)


class Endpoint:
    """One end of a connection, as the kernel keeps it behind a socket.

    The owner sets `on_readable` and `on_writable`; they only say that it is worth trying again.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        address: Address,
        peer_address: Address,
        window: int,
        *,
        is_fragmented: bool,
    ) -> None:
        self.is_fragmented = is_fragmented
        self.address = address
        self.peer_address = peer_address
        self.received = bytearray()
        self.ended = False
        """The peer will send no more; what it had sent is in `received`."""
        self.error: OSError | None = None
        self.on_readable: Callable[[], None] = lambda: None
        self.on_writable: Callable[[], None] = lambda: None
        self.host = ""
        self._network = network
        self._number = number
        self._peer: Endpoint | None = None
        self._pipe: _Pipe | None = None
        self._window = window
        self._unacknowledged = 0
        self._to_acknowledge = 0
        self._is_closed = False
        self._shut = False

    def join(self, peer: Endpoint, pipe: _Pipe) -> None:
        self._peer = peer
        self._pipe = pipe
        pipe.gave_up = lambda: self.fail(errno.ETIMEDOUT)

    def send(self, data: memoryview) -> int:
        """How many bytes were accepted: what fits into the window."""
        assert self._peer is not None
        size = min(len(data), self._window - self._unacknowledged)
        self._unacknowledged += size
        peer = self._peer
        position = 0
        while position < size:
            end = self._network.cut_point(position, size) if self.is_fragmented else size
            piece = bytes(data[position:end])
            self.send_packet(lambda piece=piece: peer.receive(piece))  # type: ignore[misc]
            position = end
        return size

    def read_size(self) -> int:
        """How many of the bytes that have arrived one read sees."""
        available = len(self.received)
        return self._network.cut_point(0, available) if self.is_fragmented else available

    def read(self, size: int) -> bytes:
        data = bytes(self.received[:size])
        del self.received[:size]
        self._to_acknowledge += len(data)
        if self._to_acknowledge >= self._window // 4 and self._peer is not None:
            peer, acknowledged, self._to_acknowledge = self._peer, self._to_acknowledge, 0
            self.send_packet(lambda: peer.acknowledge(acknowledged))
        return data

    def shut_down(self) -> None:
        """Send no more bytes; the peer sees the end after the last of them."""
        if not self._shut and not self._is_closed and self._peer is not None:
            self._shut = True
            self.send_packet(self._peer.end)

    def close(self) -> None:
        if self._is_closed:
            return
        if self.received and self.error is None:
            self._send_reset()
        else:
            self.shut_down()
        self.vanish()

    def abort(self) -> None:
        if not self._is_closed:
            self._send_reset()
            self.vanish()

    def vanish(self) -> None:
        """Close without notifying the peer."""
        if self._is_closed:
            return
        self._is_closed = True
        self.received.clear()
        self._network.forget(self._number, self)

    def fail(self, number: int) -> None:
        if self.error is None and not self._is_closed:
            self.error = _error(number)
            self._network.loop.trace.add("fail", self._number, self.host, number)
            self.on_readable()
            self.on_writable()

    # What arrives.

    def receive(self, data: bytes) -> None:
        if self._is_closed or self.error is not None:
            self._send_reset()
            return
        if self._network.resets(self.host):
            self._send_reset()
            self.fail(errno.ECONNRESET)
            return
        self._network.loop.trace.add("receive", self._number, self.host, len(data), zlib.crc32(data))
        self.received += data
        self.on_readable()

    def acknowledge(self, size: int) -> None:
        self._unacknowledged -= size
        self.on_writable()

    def end(self) -> None:
        self.ended = True
        self.on_readable()

    def _send_reset(self) -> None:
        if self._peer is not None:
            peer = self._peer
            self.send_packet(lambda: peer.fail(errno.ECONNRESET))

    def send_packet(self, packet: Callable[[], None]) -> None:
        assert self._pipe is not None
        self._pipe.send(packet)


@dataclass(slots=True, eq=False)
class _Connection:
    ends: tuple[Endpoint, Endpoint]
    pipes: tuple[_Pipe, _Pipe]
    open: int = field(default=2, init=False)


class Network:
    """All hosts, all links between them, and their faults."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random) -> None:
        self.loop = loop
        self.context = contextvars.Context()
        """Packets belong to no host: they are still under way when their sender is dead."""
        self.latency: Callable[[str, str], float] = self._ordinary_latency
        """Seconds from one host to another, called for every packet; replace it for slow links."""
        self.reset_rate = 0.0
        """The chance that a packet with data meets a connection that a device in between has closed."""
        self.fragmented_rate = 0.3
        """The chance that data sent on a connection arrives in pieces."""
        self.window_sizes: tuple[int, ...] = (2_048, 16_384, 65_536, 1 << 20)
        self.retransmission_timeout_s = 900.0
        self._chance = chance
        self._hosts: dict[str, int] = {}  # with the next ephemeral port of each
        self._listeners: dict[Address, Accepts] = {}
        self._loopback_only: set[Address] = set()
        self._cut: set[tuple[str, str]] = set()
        self._off: set[str] = set()
        self._refusing: set[str] = set()
        self._connections: dict[int, _Connection] = {}
        self._attempts: dict[asyncio.Future[Endpoint], str] = {}
        self._count = 0

    # Faults.

    def cut(self, source: str, target: str) -> None:
        """One way: what `source` sends does not reach `target`."""
        self._cut.add((source, target))

    def partition(self, left: Iterable[str], right: Iterable[str]) -> None:
        """Both ways, between every host of one side and every host of the other."""
        others = list(right)
        for one in left:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def isolate(self, host: str) -> None:
        self.partition([host], [other for other in self._hosts if other != host])

    def mend(self, source: str, target: str) -> None:
        """What `source` sends reaches `target` again."""
        self._cut.discard((source, target))
        self._send_again()

    def heal(self) -> None:
        """No link is cut any more; packets that waited are sent again."""
        self._cut.clear()
        self._send_again()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two hosts, as a firewall or a proxy that restarts would."""
        for connection in list(self._connections.values()):
            if {end.host for end in connection.ends} == {one, other}:
                for end in connection.ends:
                    end.fail(errno.ECONNRESET)

    def refuse(self, host: str) -> None:
        """Its connections with others break, and no new ones can be made, as while a firewall is reloaded; the process
        lives on and does not notice."""
        self._refusing.add(host)
        for other in list(self._hosts):
            if other != host:
                self.reset(host, other)

    def accept(self, host: str) -> None:
        """Ends `refuse`."""
        self._refusing.discard(host)

    def kill(self, host: str) -> None:
        """The process is gone: the kernel closes its sockets, and peers notice when the packets arrive."""
        for endpoint in self._leave(host):
            endpoint.close()

    def power_off(self, host: str) -> None:
        """The machine is gone, and sends nothing."""
        self._off.add(host)
        for endpoint in self._leave(host):
            endpoint.vanish()

    def power_on(self, host: str) -> None:
        self._off.discard(host)
        self._send_again()

    def _leave(self, host: str) -> list[Endpoint]:
        for address in [address for address in self._listeners if address[0] == host]:
            self.unlisten(address)
        for attempt in [attempt for attempt, source in self._attempts.items() if source == host]:
            attempt.cancel()
        connections = list(self._connections.values())
        return [end for connection in connections for end in connection.ends if end.host == host]

    def _send_again(self) -> None:
        for connection in list(self._connections.values()):
            for pipe in connection.pipes:
                pipe.send_again()

    # For pipes and endpoints.

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or source in self._off or target in self._off

    def cut_point(self, start: int, end: int) -> int:
        """Where the next packet of the bytes from `start` to `end` ends."""
        if self._chance.random() < 0.6:
            return end
        if self._chance.random() < 0.5:  # few bytes, so that lengths and headers are cut too
            end = min(end, start + 64)
        return self._chance.randint(start + 1, end)

    def resets(self, host: str) -> bool:
        return self.reset_rate > 0 and self._chance.random() < self.reset_rate

    def _ordinary_latency(self, source: str, target: str) -> float:
        if source == target:
            return self._chance.uniform(0.000_01, 0.000_05)
        latency = self._chance.uniform(0.000_1, 0.001)
        if self._chance.random() < 0.01:  # a lost packet, sent again after the minimum time-out
            latency += 0.2
        return latency

    def forget(self, number: int, endpoint: Endpoint) -> None:
        """Both ends have closed: packets in flight need no pipe to be sent again."""
        connection = self._connections.get(number)
        if connection is not None:
            connection.open -= 1
            if not connection.open:
                del self._connections[number]

    # Ports.

    def add_host(self, name: str) -> None:
        self._hosts.setdefault(name, _FIRST_EPHEMERAL_PORT)

    def listen(self, host: str, port: int, listener: Accepts, *, loopback_only: bool = False) -> Address:
        self.add_host(host)
        if not port:
            port = self._ephemeral_port(host)
        address = (host, port)
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{os.strerror(errno.EADDRINUSE)}: {host}:{port}")
        self._listeners[address] = listener
        if loopback_only:
            self._loopback_only.add(address)
        return address

    def unlisten(self, address: Address) -> None:
        self._listeners.pop(address, None)
        self._loopback_only.discard(address)

    def _ephemeral_port(self, host: str) -> int:
        port = self._hosts[host]
        self._hosts[host] = port + 1 if port < 65_535 else _FIRST_EPHEMERAL_PORT
        return port

    async def connect(self, source: str, host: str, port: int) -> Endpoint:
        """The near end of a new connection. Raises what `socket.connect` would."""
        self.add_host(source)
        if host in LOOPBACK:
            target, near, far = source, "127.0.0.1", "127.0.0.1"
        elif host in self._hosts:
            target, near, far = host, source, host
        else:
            raise socket.gaierror(socket.EAI_NONAME, f"no such host in the simulation: {host}")
        answer: asyncio.Future[Endpoint] = self.loop.create_future()
        self._attempts[answer] = source
        self._send_syn(answer, source, target, ((near, self._ephemeral_port(source)), (far, port)), 1.0)
        self._call_later(_CONNECT_TIMEOUT_S, _refuse, answer, errno.ETIMEDOUT)
        try:
            return await answer
        finally:
            self._attempts.pop(answer, None)

    def _send_syn(
        self,
        answer: asyncio.Future[Endpoint],
        source: str,
        target: str,
        addresses: tuple[Address, Address],
        wait: float,
    ) -> None:
        if answer.done():
            return
        if self.is_cut(source, target):
            self._call_later(wait, self._send_syn, answer, source, target, addresses, 2 * wait)
            return

        def arrive() -> None:
            listener = self._listener(source, target, addresses[1][1])
            if listener is None:
                if not self.is_cut(target, source):
                    self._call_later(self.latency(target, source), _refuse, answer, errno.ECONNREFUSED)
                return
            near, far = self._pair(source, target, addresses)
            self.loop.trace.add("connect", source, target, addresses[1][1])
            far.send_packet(lambda: near.abort() if answer.done() else answer.set_result(near))
            listener.accept(far)

        self._call_later(self.latency(source, target), arrive)

    def _call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> None:
        self.loop.call_later(delay_s, callback, *arguments, context=self.context)

    def _listener(self, source: str, target: str, port: int) -> Accepts | None:
        address = (target, port)
        if address in self._loopback_only and source != target:
            return None
        if target in self._refusing and source != target:
            return None
        return self._listeners.get(address)

    def _pair(self, source: str, target: str, addresses: tuple[Address, Address]) -> tuple[Endpoint, Endpoint]:
        near, far = addresses
        self._count += 1
        window = self._chance.choice(self.window_sizes)
        is_fragmented = self._chance.random() < self.fragmented_rate
        ends = (
            Endpoint(self, self._count, near, far, window, is_fragmented=is_fragmented),
            Endpoint(self, self._count, far, near, window, is_fragmented=is_fragmented),
        )
        pipes = (_Pipe(self, source, target), _Pipe(self, target, source))
        for end, peer, pipe, host in ((ends[0], ends[1], pipes[0], source), (ends[1], ends[0], pipes[1], target)):
            end.host = host
            end.join(peer, pipe)
        self._connections[self._count] = _Connection(ends, pipes)
        return ends
