"""Implements asyncio's transports and servers over the simulated network.

The behaviour is that of asyncio's socket transports, call for call (`connection_made` before anything else, reading in
separate loop iterations, `eof_received` deciding whether to close, `connection_lost` exactly once and last), with one
property of uvloop: data given to `write` is not copied until it is sent, at the earliest when the current callback has
returned. So a program that reuses a buffer too early fails here.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
from asyncio import transports
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.simulator.twins.network import Address, Endpoint

if TYPE_CHECKING:
    from penstock.simulator.twins.loop import SimulatedLoop

_Buffer = bytes | bytearray | memoryview


class SimulatedSocket:
    """What `get_extra_info("socket")` and `server.sockets` return: addresses, and options that change nothing."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = 0

    def __init__(self, address: Address, peer_address: Address | None = None) -> None:
        self._address = address
        self._peer_address = peer_address

    def getsockname(self) -> Address:
        return self._address

    def getpeername(self) -> Address:
        if self._peer_address is None:
            raise OSError("not connected")
        return self._peer_address

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Accepted and ignored."""

    def fileno(self) -> int:
        return -1


class SimulatedTransport(transports._FlowControlMixin, asyncio.Transport):
    if TYPE_CHECKING:  # of the mixin, which calls the protocol's pause_writing and resume_writing

        def _maybe_pause_protocol(self) -> None: ...

        def _maybe_resume_protocol(self) -> None: ...

    def __init__(
        self,
        loop: SimulatedLoop,
        endpoint: Endpoint,
        protocol: asyncio.BaseProtocol,
        *,
        server: SimulatedServer | None = None,
        waiter: asyncio.Future[None] | None = None,
    ) -> None:
        extra = {
            "socket": SimulatedSocket(endpoint.address, endpoint.peer_address),
            "sockname": endpoint.address,
            "peername": endpoint.peer_address,
        }
        super().__init__(extra, loop)
        self._simulation = loop
        self._context = contextvars.copy_context()
        self._endpoint = endpoint
        self._server = server
        self._buffer: deque[memoryview] = deque()
        self._buffer_size = 0
        self._flush_scheduled = False
        self._read_scheduled = False
        self._paused = False
        self._closing = False
        self._lost = 0
        self._eof_written = False
        self._eof_seen = False
        self.set_protocol(protocol)
        if server is not None:
            server.attach(self)
        self._soon(self._protocol.connection_made, self)
        self._soon(self._start, waiter)

    def _start(self, waiter: asyncio.Future[None] | None) -> None:
        self._endpoint.on_readable = self._read_later
        self._endpoint.on_writable = self._flush_later
        self._read_later()
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self._simulation.call_soon(callback, *arguments, context=self._context)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # Reading.

    def is_reading(self) -> bool:
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        self._paused = self._paused or not self._closing

    def resume_reading(self) -> None:
        if not self._closing and self._paused:
            self._paused = False
            self._read_later()

    def _read_later(self) -> None:
        if not self._read_scheduled and self.is_reading():
            self._read_scheduled = True
            self._soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if self._lost or not self.is_reading():
            return
        endpoint = self._endpoint
        try:
            if endpoint.received:
                self._receive(endpoint.read_size())
            elif endpoint.error is not None:
                self._force_close(endpoint.error)
                return
            elif endpoint.ended and not self._eof_seen:
                self._eof_seen = True
                if not self._protocol.eof_received():
                    self.close()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio does: the connection dies, the loop lives
            self._fatal_error(error, "Fatal error: the protocol failed on what was received.")
            return
        if endpoint.received or endpoint.error is not None or (endpoint.ended and not self._eof_seen):
            self._read_later()

    def _receive(self, size: int) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(self._endpoint.read(size))
            return
        buffer = memoryview(self._protocol.get_buffer(-1)).cast("B")
        if not len(buffer):
            raise RuntimeError("get_buffer() returned an empty buffer")
        data = self._endpoint.read(min(size, len(buffer)))
        buffer[: len(data)] = data
        buffer.release()
        self._protocol.buffer_updated(len(data))

    # Writing.

    def write(self, data: _Buffer) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._lost:
            self._lost += 1
            return
        self._buffer.append(memoryview(data).cast("B"))
        self._buffer_size += len(self._buffer[-1])
        self._flush_later()
        self._maybe_pause_protocol()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._flush_later()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._buffer_size

    def _flush_later(self) -> None:
        if not self._flush_scheduled and not self._lost:
            self._flush_scheduled = True
            self._soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._lost:
            return
        endpoint = self._endpoint
        if endpoint.error is not None:
            if self._buffer:  # without anything to send, the reading side notices
                self._force_close(endpoint.error)
            return
        while self._buffer:
            view = self._buffer[0]
            sent = endpoint.send(view)
            self._buffer_size -= sent
            if sent < len(view):
                self._buffer[0] = view[sent:]
                break
            self._buffer.popleft()
        self._maybe_resume_protocol()  # may write more
        if not self._buffer:
            if self._closing:
                self._lost += 1
                self._connection_lost(None)
            elif self._eof_written:
                endpoint.shut_down()

    # Closing.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lost += 1
            self._soon(self._connection_lost, None)

    def abort(self) -> None:
        self._force_close(None)

    def _fatal_error(self, error: BaseException, message: str) -> None:
        if not isinstance(error, OSError):
            self._simulation.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._buffer.clear()
        self._buffer_size = 0
        self._closing = True
        self._lost += 1
        self._soon(self._connection_lost, error)

    def _connection_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._endpoint.close()
            if self._server is not None:
                self._server.detach(self)
                self._server = None


class SimulatedServer(asyncio.AbstractServer):
    """What `create_server` returns."""

    def __init__(
        self,
        loop: SimulatedLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        *,
        loopback_only: bool,
    ) -> None:
        self._loop = loop
        self._protocol_factory = protocol_factory
        self._host = host
        self._loopback_only = loopback_only
        self._context = contextvars.copy_context()
        self._addresses: list[Address] = []
        self._serving = False
        self._waiters: list[asyncio.Future[None]] | None = []
        self._forever: asyncio.Future[None] | None = None
        self._transports: dict[SimulatedTransport, None] = {}

    def bind(self, port: int) -> None:
        self._addresses.append(self._loop.network.listen(self._host, port, self, loopback_only=self._loopback_only))

    def accept(self, endpoint: Endpoint) -> None:
        """A connection has arrived; the rest happens in the context in which the server was made."""
        self._loop.call_soon(self._accept, endpoint, context=self._context.copy())

    def _accept(self, endpoint: Endpoint) -> None:
        if self._serving:
            SimulatedTransport(self._loop, endpoint, self._protocol_factory(), server=self)
        else:
            endpoint.abort()

    def attach(self, transport: SimulatedTransport) -> None:
        self._transports[transport] = None

    def detach(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)
        self._wake_up()

    def _wake_up(self) -> None:
        if not self._addresses and not self._transports and self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        return tuple(SimulatedSocket(address) for address in self._addresses)

    def close(self) -> None:
        for address in self._addresses:
            self._loop.network.unlisten(address)
        self._addresses.clear()
        self._serving = False
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        self._wake_up()

    async def start_serving(self) -> None:
        self._serving = True

    async def serve_forever(self) -> None:
        if self._forever is not None:
            raise RuntimeError("server is already being awaited on serve_forever()")
        await self.start_serving()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    async def wait_closed(self) -> None:
        if not self._addresses or self._waiters is None:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter
