"""Sends replies that contain ranges of files, past the transport of their connection.

uvloop's transports send buffers only. So a connection whose transport has nothing left to send writes to a duplicate of
its socket: buffers with `send`, ranges with `sendfile`. What the socket does not take at once follows when it is
writable; the connection meanwhile gives nothing to its transport, which keeps the order.

The socket's queue refers to pages of the file. Appends do not change them, nor does the removal of the file. A log that
is cut below what consumers may read, or repaired in place, may change them: `has_unread` says whose connections have to
be closed then.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable, Iterable

from penstock.model.file_range import FileRange, RangeIsGone
from penstock.model.ownership import owned_by_loop
from penstock.protocol.primitives import Part


@owned_by_loop()
class FileSender:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        *,
        on_sent: Callable[[], None],
        on_failed: Callable[[], None],
    ) -> None:
        """`descriptor`: the connection's. `on_sent`: called when all is sent that could not be sent at once."""
        self._loop = loop
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._unsent: deque[Part] = deque()

    def send(self, parts: Iterable[Part]) -> bool:
        """Whether all parts were sent at once; call it again only after `on_sent`."""
        self._unsent.extend(parts)
        return self._proceed()

    def _continue(self) -> None:
        if self._proceed():
            self._loop.remove_writer(self._socket)
            self._on_sent()

    def _proceed(self) -> bool:
        try:
            self._send()
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._continue)
            return False
        except (OSError, RangeIsGone):
            self.close()
            self._on_failed()
            return False
        return True

    def _send(self) -> None:
        unsent = self._unsent
        while unsent:
            part = unsent[0]
            if isinstance(part, FileRange):
                part.send_to(self._socket.fileno())
            else:
                sent = self._socket.send(part, socket.MSG_MORE if len(unsent) > 1 else 0)
                if sent < len(part):
                    unsent[0] = memoryview(part)[sent:]
                    continue
            unsent.popleft()

    @property
    def has_unread(self) -> bool:
        """Whether the peer has not acknowledged all bytes."""
        if self._socket.fileno() < 0:
            return False
        queued = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4))
        return bool(self._unsent) or struct.unpack("i", queued) != (0,)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self._unsent.clear()
