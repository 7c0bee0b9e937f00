"""A range of a file as a part of a response: the kernel sends it from the page cache, and the broker does not read it.

Only the interface; `penstock.io.file_ranges` has the ranges of real files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

RANGE_BYTES_MIN: Final = 64 * 1024
"""Shorter reads are cheaper to copy, and are never ranges."""


class RangeIsGone(Exception):
    """The file no longer has the bytes of a range that was not yet sent whole."""


class FileRange(ABC):
    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many bytes are left to send."""

    @abstractmethod
    def send_to(self, receiver: int) -> None:
        """Send the rest to a socket that does not block; BlockingIOError while it takes no more."""

    @abstractmethod
    def read(self) -> bytes:
        """The rest as bytes."""
