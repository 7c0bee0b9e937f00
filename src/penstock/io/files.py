"""Files behind a seam.

The log, the checkpoints and the metadata quorum touch the disk only through `FileSystem` and `File`. `RealFileSystem`
is a thin coat over `os`; its simulated twin in `penstock.testing` forgets, tears or refuses what a real disk may.

Positions are explicit (no shared cursor), so a reader never disturbs a writer. A write is complete or raises `OSError`;
one that raised may have written some of its bytes. Nothing is durable before `File.sync` returned, and no name (a new
file or directory, a rename, a removal) before `FileSystem.sync_directory` of the directory it stands in did. A `sync`
that failed is final: the kernel forgets which pages it could not write, so trying again succeeds and proves nothing.
What was written since the last good `sync` has to be written again, or the file given up.

Buffers are byte views: a `memoryview` of wider items would be measured wrongly.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

_BUFFERS_PER_CALL = os.sysconf("SC_IOV_MAX")
"""More buffers than this in one pwritev(2) are refused with EINVAL."""


class File(Protocol):
    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """As `pread`, but None instead of waiting for the disk."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Past the end of the file the gap reads as zeros."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the contents (and the size) durable: fdatasync."""
        ...

    def close(self) -> None:
        """A second time is not an error."""
        ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """FileNotFoundError if the file is missing and `create` is false."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names (not paths) in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directories(self, path: str) -> None:
        """With the parents; a directory that is there is not an error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file that is there."""
        ...

    def remove(self, path: str) -> None:
        """A missing file is not an error."""
        ...

    def remove_tree(self, path: str) -> None:
        """A missing directory is not an error."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


def read_file(files: FileSystem, path: str) -> bytes:
    file = files.open(path, read_only=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_file_atomically(files: FileSystem, path: str, data: bytes) -> None:
    """Old content or new, never a mixture, whatever happens; durable on return."""
    temporary = path + ".tmp"
    files.remove(temporary)
    file = files.open(temporary, create=True)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(os.path.dirname(path) or ".")


class ReadBuffers:
    """Large buffers that are used again when nobody looks at them any more: to make one anew costs about as much as to
    read into it. A view holds on to its buffer, so the count of references says whether one is free. For one thread.
    """

    FREE = 3  # references: the list, the variable, the argument

    def __init__(self, *, smallest: int, size: int, count_max: int) -> None:
        self._smallest = smallest
        self._size = size
        self._count_max = count_max
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Room for `size` bytes, with anything in it."""
        if not self._smallest <= size <= self._size:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if sys.getrefcount(buffer) == self.FREE:
                return memoryview(buffer)[:size]
        buffer = bytearray(self._size)
        if len(self._buffers) < self._count_max:
            self._buffers.append(buffer)
        return memoryview(buffer)[:size]


# What a consumer asks of one partition is at most 1 MiB, unless it is told otherwise.
_read_buffers = ReadBuffers(smallest=64 * 1024, size=1024 * 1024, count_max=16)


class RealFile:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        read = len(data)
        while read < size:
            data = os.pread(self._fd, size - read, position + read)
            if not data:
                break
            parts.append(data)
            read += len(data)
        return b"".join(parts)

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        buffer = _read_buffers.take(size)
        try:
            read = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without it: read as usual
                return self.pread(size, position)
            raise
        if read == size:
            return buffer
        if position + read >= self.size():
            return buffer[:read]
        return None

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            # A short write: a nearly full disk, a file size limit, or more than 2 GiB. Going on either finishes it or
            # brings the error out.
            view = memoryview(data)
            while written < len(view):
                more = os.pwrite(self._fd, view[written:], position + written)
                if not more:
                    raise OSError(errno.EIO, "the disk takes no more bytes and gives no reason", self.path)
                written += more

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(buffers), _BUFFERS_PER_CALL):
            some = buffers[first : first + _BUFFERS_PER_CALL] if len(buffers) > _BUFFERS_PER_CALL else buffers
            written = os.pwritev(self._fd, some, position)
            size = sum(map(len, some))
            if written != size:
                self.pwrite(memoryview(b"".join(some))[written:], position + written)
            position += size

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        if self._fd < 0:  # fdatasync would say ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._fd)

    def close(self) -> None:
        # The number is forgotten first: after a close(2) that failed it is free all the same, and soon another file's.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFileSystem:
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if read_only:
            return RealFile(path, os.O_RDONLY)
        return RealFile(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        # rmtree gives up when a file vanishes under it (a worker thread may be removing the same tree): begin again.
        while os.path.lexists(path):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize
