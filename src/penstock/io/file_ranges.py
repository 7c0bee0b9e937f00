"""Ranges of open files, sent with `sendfile`.

A range owns a descriptor, so it outlives the handle that it was made from, the file's name and its last other reader. A
log that is truncated while a range waits to be sent may then have other bytes there: `is_current` tells, and such a
range is sent no further.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.model.file_range import FileRange, RangeIsGone


class OpenFileRange(FileRange):
    __slots__ = ("_descriptor", "_is_current", "_position", "_size")

    def __init__(self, descriptor: int, position: int, size: int, is_current: Callable[[], bool]) -> None:
        self._descriptor = os.dup(descriptor)
        self._position = position
        self._size = size
        self._is_current = is_current

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        return self._size

    def send_to(self, receiver: int) -> None:
        while self._size:
            self._check()
            sent = os.sendfile(receiver, self._descriptor, self._position, self._size)
            if not sent:
                raise RangeIsGone
            self._position += sent
            self._size -= sent

    def read(self) -> bytes:
        self._check()
        data = os.pread(self._descriptor, self._size, self._position)
        if len(data) != self._size:
            raise RangeIsGone
        return data

    def _check(self) -> None:
        if not self._is_current():
            raise RangeIsGone
