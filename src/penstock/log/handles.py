"""How the log reads its files: whose file handles, and whether it may wait for the disk.

The event loop reads through `LoopAccess`: handles that stay open in a capped, least-recently-used set, and reads that
give up (`NotCached`) instead of waiting for the disk. A worker thread that repeats such a read uses `OwnAccess`: it
opens files of its own, waits as long as it takes and closes them at the end. No handle is ever shared between threads,
so no thread can meet a descriptor that another one has just closed and the kernel has given to a different file.
"""

from __future__ import annotations

from collections import OrderedDict
from types import TracebackType
from typing import Protocol

from penstock.io.files import Buffer, File, FileSystem
from penstock.model.ownership import owned_by_loop

DEFAULT_CAPACITY = 512


class NotCached(Exception):
    """The bytes are not in the page cache, and the reader did not want to wait for them."""


class Access(Protocol):
    def read(self, path: str, size: int, position: int) -> Buffer: ...


@owned_by_loop()
class Handles:
    """Read-only files that the event loop keeps open: closed segments and indexes of all logs of a directory."""

    def __init__(self, files: FileSystem, capacity: int = DEFAULT_CAPACITY) -> None:
        self._files = files
        self._capacity = capacity
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._files.open(path, read_only=True)
            if len(self._open) > self._capacity:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return file

    def forget(self, path: str) -> None:
        """The file was renamed, removed or replaced."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


@owned_by_loop()
class LoopAccess:
    """For the event loop only."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def read(self, path: str, size: int, position: int) -> Buffer:
        data = self._handles.get(path).pread_cached(size, position)
        if data is None:
            raise NotCached(path)
        return data


class OwnAccess:
    """For one operation, on any thread; may wait for the disk."""

    __slots__ = ("_files", "_open")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._open: dict[str, File] = {}

    def read(self, path: str, size: int, position: int) -> Buffer:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._files.open(path, read_only=True)
        return file.pread(size, position)

    def __enter__(self) -> OwnAccess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()
