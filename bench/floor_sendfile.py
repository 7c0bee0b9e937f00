"""A bare `sendfile`: an epoll loop that answers every request with a slice of a file, which it never reads.

What the kernel needs to move the bytes of a fetch from the page cache into a socket. A reply is a header and a slice,
the slices in turn; nothing is parsed but the length and the correlation id of a request.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections import deque
from typing import Any

from bench.floor import LENGTH, READ_BUFFER_SIZE, REPLY_PREFIX, REQUEST_PREFIX, FloorSettings

_READ = select.EPOLLIN
_READ_WRITE = select.EPOLLIN | select.EPOLLOUT


class _Connection:
    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self.buffer = bytearray(READ_BUFFER_SIZE)
        self.filled = 0
        self.unsent: deque[bytes | tuple[int, int]] = deque()  # headers, and (position, size) of slices

    def flush(self, file: int) -> bool:
        """Send what is waiting; true if all of it went."""
        unsent = self.unsent
        try:
            while unsent:
                part = unsent[0]
                if isinstance(part, bytes):
                    sent = self.socket.send(part, socket.MSG_MORE)
                    rest: bytes | tuple[int, int] = part[sent:]
                    is_sent = sent == len(part)
                else:
                    position, size = part
                    sent = os.sendfile(self.socket.fileno(), file, position, size)
                    rest, is_sent = (position + sent, size - sent), sent == size
                if is_sent:
                    unsent.popleft()
                else:
                    unsent[0] = rest
        except BlockingIOError:
            return False
        return True


class SendfileFloor:
    def __init__(self, settings: FloorSettings) -> None:
        self._size = settings.slice_size
        self._slices = settings.slices
        self._next = 0
        path = os.path.join(settings.directory, f"sendfile-{settings.port}.data")
        with open(path, "wb") as file:
            for _ in range(settings.slices):
                file.write(os.urandom(settings.slice_size))
        self._file = os.open(path, os.O_RDONLY)
        self._reply_length = settings.reply_size + settings.slice_size - 4
        self._reply_rest = bytes(settings.reply_size - REPLY_PREFIX.size)
        self._connections: dict[int, _Connection] = {}
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", settings.port), backlog=100)
        self._listener.setblocking(False)

    def serve(self) -> None:
        listener = self._listener.fileno()
        self._epoll.register(listener, _READ)
        while True:
            for fileno, event in self._epoll.poll():
                if fileno == listener:
                    connection = _Connection(self._listener.accept()[0])
                    self._connections[connection.socket.fileno()] = connection
                    self._epoll.register(connection.socket.fileno(), _READ)
                    continue
                connection = self._connections[fileno]
                if event & select.EPOLLOUT and connection.flush(self._file):
                    self._epoll.modify(fileno, _READ)
                if event & ~select.EPOLLOUT and not self._read(connection):
                    self._epoll.unregister(fileno)
                    self._connections.pop(fileno).socket.close()

    def _read(self, connection: _Connection) -> bool:
        buffer = connection.buffer
        try:
            size = connection.socket.recv_into(memoryview(buffer)[connection.filled :])
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not size:
            return False
        filled = connection.filled + size
        start = 0
        was_waiting = bool(connection.unsent)
        while filled - start >= 4:
            end = start + 4 + LENGTH.unpack_from(buffer, start)[0]
            if end > filled:
                break
            correlation_id = REQUEST_PREFIX.unpack_from(buffer, start)[3]
            connection.unsent.append(REPLY_PREFIX.pack(self._reply_length, correlation_id) + self._reply_rest)
            connection.unsent.append((self._next * self._size, self._size))
            self._next = (self._next + 1) % self._slices
            start = end
        buffer[: filled - start] = buffer[start:filled]
        connection.filled = filled - start
        if not was_waiting and not connection.flush(self._file):
            self._epoll.modify(connection.socket.fileno(), _READ_WRITE)
        return True


def main(arguments: dict[str, Any]) -> None:
    SendfileFloor(FloorSettings(**arguments)).serve()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
