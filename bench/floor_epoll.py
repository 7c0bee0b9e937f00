"""The floor under the floor: `bench.floor`'s work in a hand-written epoll loop.

It exists to be compared with `bench.floor` in the same run. Where the two are alike, uvloop costs nothing and the floor
is the kernel's.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import Any

from bench.floor import (
    LENGTH,
    READ_BUFFER_SIZE,
    REPLY_PREFIX,
    REQUEST_PREFIX,
    FloorData,
    FloorSettings,
    open_append_file,
)

_READ = select.EPOLLIN
_READ_WRITE = select.EPOLLIN | select.EPOLLOUT
_BUFFERS_A_WRITE = 64


class _Connection:
    __slots__ = ("buffer", "file", "fileno", "filled", "position", "socket", "unsent", "view")

    def __init__(self, accepted: socket.socket, file: int) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self.fileno = accepted.fileno()
        self.file = file
        self.position = 0
        self.buffer = bytearray(READ_BUFFER_SIZE)
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.unsent: list[bytes | memoryview] = []

    def grow(self, size: int) -> memoryview:
        larger = bytearray(size)
        larger[: len(self.buffer)] = self.buffer
        self.buffer = larger
        self.view = memoryview(larger)
        return self.view

    def flush(self) -> bool:
        """Send what is waiting; true if all of it went."""
        while self.unsent:
            try:
                sent = self.socket.sendmsg(self.unsent[:_BUFFERS_A_WRITE])
            except BlockingIOError:
                return False
            while self.unsent and sent >= len(self.unsent[0]):
                sent -= len(self.unsent.pop(0))
            if sent:
                self.unsent[0] = memoryview(self.unsent[0])[sent:]
        return True


class EpollFloor:
    def __init__(self, settings: FloorSettings) -> None:
        self._settings = settings
        self._append = settings.mode == "append"
        self._data = None if self._append else FloorData(settings)
        self._reply_length = settings.reply_size + (0 if self._append else settings.slice_size) - 4
        self._reply_rest = bytes(settings.reply_size - REPLY_PREFIX.size)
        self._connections: dict[int, _Connection] = {}
        self._accepted = 0
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", settings.port), backlog=100)
        self._listener.setblocking(False)

    def serve(self) -> None:
        listener = self._listener.fileno()
        self._epoll.register(listener, _READ)
        poll = self._epoll.poll
        connections = self._connections
        while True:
            for fileno, event in poll():
                if fileno == listener:
                    self._accept()
                    continue
                connection = connections[fileno]
                if event & select.EPOLLOUT and connection.flush():
                    self._epoll.modify(fileno, _READ)
                if event & ~select.EPOLLOUT:
                    self._read(connection)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        self._accepted += 1
        file = open_append_file(self._settings, self._accepted) if self._append else -1
        connection = _Connection(accepted, file)
        self._connections[connection.fileno] = connection
        self._epoll.register(connection.fileno, _READ)

    def _close(self, connection: _Connection) -> None:
        self._epoll.unregister(connection.fileno)
        del self._connections[connection.fileno]
        connection.socket.close()
        if connection.file >= 0:
            os.close(connection.file)

    def _read(self, connection: _Connection) -> None:
        filled = connection.filled
        view = connection.view
        try:
            size = connection.socket.recv_into(view[filled:] if filled else view)
        except BlockingIOError:
            return
        except ConnectionError:
            size = 0
        if not size:
            self._close(connection)
            return
        filled += size
        buffer = connection.buffer
        start = 0
        replies: list[bytes | memoryview] = []
        while filled - start >= 4:
            end = start + 4 + LENGTH.unpack_from(buffer, start)[0]
            if end > filled:
                if end - start > len(buffer):
                    view = connection.grow(end - start)
                break
            correlation_id = REQUEST_PREFIX.unpack_from(buffer, start)[3]
            if self._data is None:
                connection.position += os.pwrite(
                    connection.file, view[start + self._settings.skip : end], connection.position
                )
                replies.append(REPLY_PREFIX.pack(self._reply_length, correlation_id) + self._reply_rest)
            else:
                replies.append(REPLY_PREFIX.pack(self._reply_length, correlation_id) + self._reply_rest)
                replies.append(self._data.take())
            start = end
        if start and filled > start:
            view[: filled - start] = view[start:filled]
        connection.filled = filled - start
        if replies:
            self._send(connection, replies)

    def _send(self, connection: _Connection, replies: list[bytes | memoryview]) -> None:
        if connection.unsent:
            connection.unsent += replies
            return
        if self._append:
            reply = replies[0] if len(replies) == 1 else b"".join(replies)
            try:
                sent = connection.socket.send(reply)
            except BlockingIOError:
                sent = 0
            if sent == len(reply):
                return
            connection.unsent = [memoryview(reply)[sent:]]
        else:
            connection.unsent = replies
            if connection.flush():
                return
        self._epoll.modify(connection.fileno, _READ_WRITE)


def main(arguments: dict[str, Any]) -> None:
    EpollFloor(FloorSettings(**arguments)).serve()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
