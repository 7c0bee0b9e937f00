"""Loopback TCP proxies that can be cut, to simulate network faults between real processes.

A `Link` leads from its own port to a node. A link that is `cut` carries nothing and reports nothing: bytes and new
connections wait, as in a network that has lost its cable, and arrive when it is joined again. A cut may apply to all
connections or to those of one process alone, which separates one node from the others while they still reach each
other: on loopback, /proc shows which process owns a connection.

A link may also be slow (`delay`), and treat connections like a firewall that is reloaded: `reset` breaks existing ones,
and a link with `refuse` accepts no new ones either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

_CHUNK_BYTES = 256 * 1024
EVERYBODY = -1
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Link:
    """One proxied address, created by `Network.link`."""

    def __init__(self, host: str, target: int) -> None:
        self.host = host
        self.port = 0
        self._target = target
        self._cut_for: set[int] = set()
        self._changed: asyncio.Event = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening: socket.socket | None = None
        self.delay_s = 0.0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        self._listening = listening = socket.create_server((self.host, self.port))
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def refuse(self) -> None:
        """Refuse connections until the link is opened again."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        await self.reset()

    async def reset(self) -> None:
        """Break every connection at both ends."""
        for writer in self._writers:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def close(self) -> None:
        await self.refuse()

    def set_cut(self, pid: int, cut: bool) -> None:
        (self._cut_for.add if cut else self._cut_for.discard)(pid)
        self._changed.set()
        self._changed = asyncio.Event()

    def _accept(self, listening: socket.socket) -> None:
        """Accept at once, and not in a task that could be cancelled while it holds a connection."""
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # the peer has given up
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: connection.close())  # in case the task was cancelled before it began

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError):  # one end of the connection is closed
                await self._carry(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner = owner_of_connection(writer.get_extra_info("peername")[1], self.port)
        if owner is None:
            return  # the peer has given up, or tries again
        await self._joined(owner)
        to_reader, to_writer = await asyncio.open_connection(self.host, self._target)
        self._writers.add(to_writer)
        pumps = [
            asyncio.ensure_future(self._pump(owner, reader, to_writer)),
            asyncio.ensure_future(self._pump(owner, to_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # First of all: a reset may cancel this task again while it waits for the pumps.
            self._writers.discard(to_writer)
            to_writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, owner: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        under_way: deque[tuple[float, bytes]] = deque()  # with the time at which each arrives
        reading = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
        try:
            while not (reading.done() and not reading.result() and not under_way):
                if reading.done() and (data := reading.result()):
                    under_way.append((loop.time() + self.delay_s, data))
                    reading = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
                if under_way and under_way[0][0] <= loop.time():
                    await self._joined(owner)
                    writer.write(under_way.popleft()[1])
                    await writer.drain()
                    continue
                wait_s = under_way[0][0] - loop.time() if under_way else None
                if reading.done():
                    await asyncio.sleep(wait_s or 0.0)
                else:
                    await asyncio.wait([reading], timeout=wait_s)
        finally:
            reading.cancel()
        await self._joined(owner)  # the end of a connection does not pass a cut either

    async def _joined(self, owner: int) -> None:
        while EVERYBODY in self._cut_for or owner in self._cut_for:
            await self._changed.wait()


class Network:
    """Links, and the thread that runs them."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []

    def link(self, target: int) -> Link:
        """Return a new address that leads to a port."""

        async def make() -> Link:
            made = Link(self._host, target)
            await made.open()
            return made

        made = self._run(make())
        self._links.append(made)
        return made

    def cut(self, link: Link, pid: int = EVERYBODY) -> None:
        self._loop.call_soon_threadsafe(link.set_cut, pid, True)

    def join(self, link: Link, pid: int = EVERYBODY) -> None:
        self._loop.call_soon_threadsafe(link.set_cut, pid, False)

    def delay(self, link: Link, seconds: float) -> None:
        """Delay everything, in each direction."""
        self._loop.call_soon_threadsafe(setattr, link, "delay_s", seconds)

    def reset(self, link: Link) -> None:
        self._run(link.reset())

    def refuse(self, link: Link) -> None:
        self._run(link.refuse())

    def accept(self, link: Link) -> None:
        """Accept connections again after `refuse`."""
        self._run(link.open())

    def _run(self, step: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(30)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        for link in self._links:
            self._run(link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def start_network(host: str = "127.0.0.1") -> Iterator[Network]:
    network = Network(host)
    network.start()
    try:
        yield network
    finally:
        network.close()


def owner_of_connection(port: int, peer_port: int) -> int | None:
    """Return the process at the end of a local TCP connection with the first port; None if it is gone."""
    inode = _inode_of(port, peer_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            directory = f"/proc/{entry}/fd"
            with contextlib.suppress(OSError):  # a process that ends meanwhile, or that we may not inspect
                for descriptor in os.listdir(directory):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"{directory}/{descriptor}") == wanted:
                            return int(entry)
    return None


def _inode_of(port: int, peer_port: int) -> str | None:
    """Return the inode of a connection. One port is not enough: connections to different ports may share it."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if len(fields) > 9 and fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{peer_port:04X}"):
                return fields[9]
    return None
