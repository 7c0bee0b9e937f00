"""File access for the log: which file handles a read uses, and whether it may wait for the disk.

The event loop reads through `LoopAccess`: its handles stay open in a capped, least-recently-used set, and its reads
raise `NotCached` instead of waiting for the disk. A worker thread that repeats such a read uses `OwnAccess`: it opens
its own files, waits as long as necessary and closes them at the end. Threads never share a handle, so a thread cannot
use a descriptor that another thread has closed and the kernel has reassigned to another file.
"""

from __future__ import annotations

from collections import OrderedDict
from types import TracebackType
from typing import Protocol

from penstock.io.files import Buffer, File, FileSystem
from penstock.model.ownership import owned_by_loop

DEFAULT_CAPACITY = 512


class NotCached(Exception):
    """The bytes are not in the page cache, and the caller does not wait for the disk."""


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
        """Close the file, because it was renamed, removed or replaced."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


@owned_by_loop()
class LoopAccess:
    """File access for the event loop only."""

    __slots__ = ("_handles",)

    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def read(self, path: str, size: int, position: int) -> Buffer:
        data = self._handles.get(path).pread_cached(size, position)
        if data is None:
            raise NotCached(path)
        return data

    def descriptor(self, path: str, size: int, position: int) -> int | None:
        """See `File.cached_descriptor`."""
        return self._handles.get(path).cached_descriptor(size, position)


class OwnAccess:
    """File access for one operation on any thread; may wait for the disk."""

    __slots__ = ("_files", "_open")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._open: dict[str, File] = {}

    def read(self, path: str, size: int, position: int) -> Buffer:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = self._files.open(path, read_only=True)
        return file.pread(size, position)

    def read_ahead(self, path: str, size: int, position: int) -> None:
        """See `File.read_ahead`. The file was read before."""
        self._open[path].read_ahead(size, position)

    def __enter__(self) -> OwnAccess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()
