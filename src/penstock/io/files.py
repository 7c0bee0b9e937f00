"""The file system interface, and its implementation on the operating system.

The log, the checkpoints and the metadata quorum access the disk only through `FileSystem` and `File`. `RealFileSystem`
is a thin layer over `os`; its simulated implementation in `penstock.simulator.twins` loses, tears or refuses writes as
a real disk may.

Positions are explicit (no shared cursor), so a reader never disturbs a writer. A write is complete or raises `OSError`;
a write that raised may have written some of its bytes. Contents are durable only after `File.sync` returned; names (a
new file or directory, a rename, a removal) only after `FileSystem.sync_directory` of the directory that contains them.
A `sync` that failed is final: the kernel forgets which pages it could not write, so trying again succeeds and proves
nothing. Everything written since the last successful `sync` must be written again, or the file abandoned.

Buffers are byte views: the size of a `memoryview` of wider items would be computed wrongly.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Protocol

from penstock.io.page_cache import is_cached

Buffer = bytes | bytearray | memoryview

_BUFFERS_PER_CALL = os.sysconf("SC_IOV_MAX")
"""pwritev(2) refuses more buffers than this with EINVAL."""


class File(Protocol):
    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        """Like `pread`, but return None instead of waiting for the disk."""
        ...

    def cached_descriptor(self, size: int, position: int) -> int | None:
        """The descriptor from which `sendfile` sends these bytes without waiting for the disk; None if it may wait."""
        ...

    def read_ahead(self, size: int, position: int) -> None:
        """Let the kernel bring these bytes into the page cache, without waiting for them."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write at `position`. A gap after the end of the file reads as zeros."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the contents (and the size) durable: fdatasync."""
        ...

    def close(self) -> None:
        """Close the file. Closing it twice is not an error."""
        ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file; FileNotFoundError if it does not exist and `create` is false."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Return the names (not paths) in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is not an error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing an existing file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is not an error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents; a missing directory is not an error."""
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
    """Replace the content of a file: after any failure it is the old or the new one, never a mixture.

    Durable on return.
    """
    replace_file(files, path, data)
    files.sync_directory(os.path.dirname(path) or ".")


def replace_file(files: FileSystem, path: str, data: bytes) -> None:
    """As `write_file_atomically`, but durable only when the caller has synced the directory."""
    temporary = path + ".tmp"
    files.remove(temporary)
    file = files.open(temporary, create=True)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)


class ReadBuffers:
    """A pool of large buffers that are reused when nothing refers to them: allocating one costs about as much as
    reading into it. A view references its buffer, so the reference count says whether a buffer is free. For one thread.
    """

    FREE = 3  # references: the list, the variable, the argument

    def __init__(self, *, smallest: int, size: int, count_max: int) -> None:
        self._smallest = smallest
        self._size = size
        self._count_max = count_max
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes with undefined content."""
        if not self._smallest <= size <= self._size:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if sys.getrefcount(buffer) == self.FREE:
                return memoryview(buffer)[:size]
        buffer = bytearray(self._size)
        if len(self._buffers) < self._count_max:
            self._buffers.append(buffer)
        return memoryview(buffer)[:size]


# A consumer requests at most 1 MiB of one partition by default.
_read_buffers = ReadBuffers(smallest=64 * 1024, size=1024 * 1024, count_max=16)


class RealFile:
    __slots__ = ("_fd", "path")

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o640)

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
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):  # the file system does not support it: read as usual
                return self.pread(size, position)
            raise
        if read == size:
            return buffer
        if position + read >= self.size():
            return buffer[:read]
        return None

    def cached_descriptor(self, size: int, position: int) -> int | None:
        return self._fd if is_cached(self._fd, size, position) else None

    def read_ahead(self, size: int, position: int) -> None:
        os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def pwrite(self, data: Buffer, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written != len(data):
            # A short write: a nearly full disk, a file size limit, or more than 2 GiB. Continuing either finishes the
            # write or raises the error.
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
        if self._fd < 0:  # fdatasync would raise ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._fd)

    def close(self) -> None:
        # Clear the descriptor first: close(2) frees it even if it fails, and another file may soon have it.
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
        os.makedirs(path, mode=0o750, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        # rmtree fails when a file vanishes meanwhile (a worker thread may be removing the same tree): start again.
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
