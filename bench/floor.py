"""The floor: the bytes of a load over the same sockets and files, with no Kafka in between.

A request is a length, a correlation id at a fixed place, and a payload. In `append` mode the payload goes to the end of
a file, one `pwrite` a request and one file a connection, and a reply of the broker's size comes back. In `memory` and
`file` mode the request is answered with a slice of data that is kept in memory or in a mapped file.

There are two of them: this one is made as the broker is (uvloop, a `BufferedProtocol`, the replies of one read leave
together); `bench.floor_epoll` is a bare epoll loop, which says how much of the floor is uvloop's own. Both stay as they
are: a floor that moves makes last month's ratios meaningless.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import struct
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import uvloop

FloorMode = Literal["append", "memory", "file"]

# length, api key, api version, correlation id: how every Kafka request begins.
REQUEST_PREFIX = struct.Struct(">ihhi")
REPLY_PREFIX = struct.Struct(">ii")
LENGTH = struct.Struct(">i")
READ_BUFFER_SIZE = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class FloorSettings:
    """What a floor needs to know of a load, passed to its process as JSON."""

    port: int
    directory: str
    mode: FloorMode
    skip: int = 0
    """append: bytes of the frame (its length included) before the payload that is written."""
    reply_size: int = 0
    """Bytes of a reply (its length included) without the data of a fetch."""
    slice_size: int = 0
    """memory and file: bytes of data in one reply."""
    slices: int = 1
    """memory and file: how many different slices are served in turn."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class FloorData:
    """What fetches are answered from: `slices` views over one buffer or one mapped file, served in turn."""

    def __init__(self, settings: FloorSettings) -> None:
        size = settings.slice_size * settings.slices
        block = os.urandom(64 * 1024)
        contents = (block * (size // len(block) + 1))[:size]
        if settings.mode == "file":
            path = os.path.join(settings.directory, f"floor-{settings.port}.data")
            with open(path, "wb") as file:
                file.write(contents)
            descriptor = os.open(path, os.O_RDONLY)
            view = memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
        else:
            view = memoryview(contents)
        step = settings.slice_size
        self._views = [view[index * step : (index + 1) * step] for index in range(settings.slices)]
        self._next = 0

    def take(self) -> memoryview:
        index = self._next
        self._next = index + 1 if index + 1 < len(self._views) else 0
        return self._views[index]


def open_append_file(settings: FloorSettings, number: int) -> int:
    """A file without a name, so that its pages are free again when the connection ends, as a deleted topic's are."""
    path = os.path.join(settings.directory, f"floor-{settings.port}-{number}.log")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.unlink(path)
    return descriptor


class _Connection(asyncio.BufferedProtocol):
    """Finds whole frames in one reused buffer; the start of an incomplete one moves to the front of it."""

    def __init__(self, settings: FloorSettings, number: int, data: FloorData | None) -> None:
        self._skip = settings.skip
        self._reply_length = settings.reply_size + (0 if data is None else settings.slice_size) - 4
        self._reply_rest = bytes(settings.reply_size - REPLY_PREFIX.size)
        self._data = data
        self._file = open_append_file(settings, number) if data is None else -1
        self._position = 0
        self._buffer = bytearray(READ_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._file >= 0:
            os.close(self._file)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :] if self._filled else self._view

    def buffer_updated(self, size: int) -> None:
        filled = self._filled + size
        buffer = self._buffer
        view = self._view
        start = 0
        replies: list[bytes | memoryview] = []
        while filled - start >= 4:
            end = start + 4 + LENGTH.unpack_from(buffer, start)[0]
            if end > filled:
                if end - start > len(buffer):
                    view = self._grow(end - start)
                break
            correlation_id = REQUEST_PREFIX.unpack_from(buffer, start)[3]
            if self._data is None:
                self._position += os.pwrite(self._file, view[start + self._skip : end], self._position)
                replies.append(REPLY_PREFIX.pack(self._reply_length, correlation_id) + self._reply_rest)
            else:
                replies.append(REPLY_PREFIX.pack(self._reply_length, correlation_id) + self._reply_rest)
                replies.append(self._data.take())
            start = end
        if start and filled > start:
            view[: filled - start] = view[start:filled]
        self._filled = filled - start
        if replies:
            if self._data is None:
                self._transport.write(replies[0] if len(replies) == 1 else b"".join(replies))
            else:
                self._transport.writelines(replies)

    def _grow(self, size: int) -> memoryview:
        larger = bytearray(size)
        larger[: len(self._buffer)] = self._buffer
        self._buffer = larger
        self._view = memoryview(larger)
        return self._view


async def _serve(settings: FloorSettings) -> None:
    accepted = 0
    data = FloorData(settings) if settings.mode != "append" else None

    def connect() -> _Connection:
        nonlocal accepted
        accepted += 1
        return _Connection(settings, accepted, data)

    # uvloop turns Nagle's algorithm off for TCP, as the broker's sockets have it; nothing else is set on either side.
    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", settings.port)
    await server.serve_forever()


def main(arguments: dict[str, Any]) -> None:
    uvloop.run(_serve(FloorSettings(**arguments)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
