"""Connections that end together: those of one user, when the user signs out.

    connections = Bundle()
    connections.run(read, "orders")     # every connection that is opened meanwhile, in this thread, belongs to it
    connections.cut()                   # in any thread: they are shut down, and no other one can be opened

A thread that waits for an answer is woken by the end of its connection. The clients in between (`Admin`, `Leaders`)
need not know: each of their connections is opened by `Connection`, which asks here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from penstock.client.errors import Closed

Given = ParamSpec("Given")
Result = TypeVar("Result")

_CURRENT: ContextVar[Bundle | None] = ContextVar("bundle", default=None)


class Bundle:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_cut = False

    def run(self, function: Callable[Given, Result], *arguments: Given.args, **named: Given.kwargs) -> Result:
        token = _CURRENT.set(self)
        try:
            return function(*arguments, **named)
        finally:
            _CURRENT.reset(token)

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            found = list(self._sockets)
        for each in found:
            with contextlib.suppress(OSError):  # it is closed already
                # Not SSLSocket.shutdown, which takes the TLS away from a thread that uses it.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def add(self, connected: socket.socket) -> None:
        with self._lock:
            if not self._is_cut:
                self._sockets.add(connected)
                return
        connected.close()
        raise Closed("the connections of this user are closed")


def join_bundle(connected: socket.socket) -> None:
    """Add it to the bundle that this thread works for, if any. Closed if that has been cut."""
    bundle = _CURRENT.get()
    if bundle is not None:
        bundle.add(connected)
