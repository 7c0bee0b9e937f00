"""Which processes live on this machine, behind a seam: the only place from which a death can be seen for certain.

A process announces a name, which nobody else can have, and which is gone when the process is, at once and however it
ended. Neither a network nor a proxy is in between. On Linux the name is that of a socket without a file (an abstract
Unix socket); elsewhere nobody is ever seen here. Containers with a network of their own are machines of their own.
"""

from __future__ import annotations

import socket
import sys
from typing import Protocol


class Neighbours(Protocol):
    def announce(self, name: str) -> None:
        """This process is to be found by the name, until it ends or withdraws."""
        ...

    def is_here(self, name: str) -> bool:
        """Whether a process of this name lives on this machine."""
        ...

    def withdraw(self) -> None:
        """All that was announced."""
        ...


class RealNeighbours:
    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def announce(self, name: str) -> None:
        if sys.platform == "linux":
            bound = _socket()
            bound.bind(_address(name))
            self._sockets.append(bound)

    def is_here(self, name: str) -> bool:
        if sys.platform != "linux":
            return False
        with _socket() as probe:
            try:
                probe.connect(_address(name))  # of datagrams: nothing is sent, and nobody has to accept it
            except ConnectionRefusedError:
                return False
        return True

    def withdraw(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


class NoNeighbours:
    """For nodes that are to be found by the network alone."""

    def announce(self, name: str) -> None:
        pass

    def is_here(self, name: str) -> bool:
        return False

    def withdraw(self) -> None:
        pass


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _address(name: str) -> str:
    return f"\0penstock/{name}"
