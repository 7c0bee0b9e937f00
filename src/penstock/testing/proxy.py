"""Loopback TCP proxies that can be cut, for networks that fail between real processes.

A `Link` leads from a port of its own to a node. A link that is `cut` carries nothing and says nothing: bytes and new
connections wait, as they would in a network that has lost its cable, and arrive when it is joined again. A cut may be
for everybody or for the connections of one process alone, which is how one node is parted from the others while they
still reach each other: whose a connection is can be read from /proc, on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")

_CHUNK_BYTES = 256 * 1024
EVERYBODY = -1


class Link:
    """One proxied address. Made by `Network.link`."""

    def __init__(self, host: str, target: int) -> None:
        self.host = host
        self.port = 0
        self._target = target
        self._cut_for: set[int] = set()
        self._changed: asyncio.Event = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def set_cut(self, pid: int, cut: bool) -> None:
        (self._cut_for.add if cut else self._cut_for.discard)(pid)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # an end of a connection, or ours
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner = owner_of_connection(writer.get_extra_info("peername")[1], self.port)
        if owner is None:
            return  # whoever it was has given up, or tries again
        await self._joined(owner)
        to_reader, to_writer = await asyncio.open_connection(self.host, self._target)
        pumps = [
            asyncio.ensure_future(self._pump(owner, reader, to_writer)),
            asyncio.ensure_future(self._pump(owner, to_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_writer.transport.abort()

    async def _pump(self, owner: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._joined(owner)
            writer.write(data)
            await writer.drain()
        await self._joined(owner)  # the end of a connection does not pass a cut either

    async def _joined(self, owner: int) -> None:
        while EVERYBODY in self._cut_for or owner in self._cut_for:
            await self._changed.wait()


class Network:
    """Links, and the thread that works them."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []

    def link(self, target: int) -> Link:
        """A new address that leads to a port."""

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
    """The process at the end of a local TCP connection that has the first of these ports; None if that is gone."""
    inode = _inode_of(port, peer_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            directory = f"/proc/{entry}/fd"
            with contextlib.suppress(OSError):  # a process that ends meanwhile, or is not ours
                for descriptor in os.listdir(directory):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"{directory}/{descriptor}") == wanted:
                            return int(entry)
    return None


def _inode_of(port: int, peer_port: int) -> str | None:
    """A port alone would not do: connections to different ports may share one."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if len(fields) > 9 and fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{peer_port:04X}"):
                return fields[9]
    return None
