"""Detection of processes on the same machine: the only certain way to know that a process is dead.

A process announces a unique name, which disappears at once when the process ends, for whatever reason. No network or
proxy is involved. Networks reset and refuse connections of live nodes, so neither proves a death; the rules for fencing
and elections are in `controller/heartbeats.py`. On Linux the name is that of an abstract Unix socket (without a file).
On other systems no process is ever detected. A container with its own network counts as a machine of its own.
"""

from __future__ import annotations

import socket
import sys
from typing import Protocol


class Neighbours(Protocol):
    def announce(self, name: str) -> None:
        """Announce this process under the name, until it ends or withdraws."""
        ...

    def is_here(self, name: str) -> bool:
        """Whether a process of this name runs on this machine."""
        ...

    def withdraw(self) -> None:
        """Withdraw all announced names."""
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
                probe.connect(_address(name))  # datagram socket: connecting sends nothing and needs no accept
            except ConnectionRefusedError:
                return False
        return True

    def withdraw(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


class NoNeighbours:
    """An implementation for nodes that are detected only through the network."""

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
