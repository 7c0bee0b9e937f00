"""A disk in memory that gives exactly the guarantees of a real one.

It has two levels. What a process writes goes to the page cache, which all reads see; it survives `crash` (the process
is killed, the machine continues). Synced data is on the platter, and only that surely survives `power_loss`: contents
by `File.sync`, names (new files and directories, renames, removals) by `sync_directory` of their directory. Everything
else is kept, lost or torn as a seeded random decides (`torn_writes` for contents). A rename is atomic. Two changes of
one name or of one file reach the platter in their order; apart from that names keep no order.

Faults on demand: `fail` (EIO and the like, by operation and path); `fill` (ENOSPC, with the partial write that a real
disk leaves; by bytes, or by blocks: what fits into the last block of a file is still written, the first byte of another
file is not); `corrupt` and `rot` (bits that were not written); `cold` (reads that would have to wait); `before_sync`
(what happens during a sync; the loop's `executor_delay` says how long it takes). After a failed sync, the pages it
should have written count as clean, as on Linux: they can still be read, the next sync succeeds, and they never reach
the platter.

The disk itself is a `FileSystem`. A process whose clean-up code may outlive it gets a `Mount` of it (`mount`).
"""

from __future__ import annotations

import errno
import fnmatch
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.io.clock import Clock
from penstock.io.files import Buffer
from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.name_changes import NameChange, NameChanges
from penstock.simulator.twins.torn_writes import Change, after_power_loss, apply

if TYPE_CHECKING:
    from penstock.simulator.twins.mount import Mount

Event = tuple[str | int, ...]
"""One successful operation: ("write", path, position, size), ("sync", path), ("rename", source, target), ..."""

_DEFAULT_CAPACITY = 1 << 40


class _Inode:
    """A file: what reads see, what the platter holds, and the changes since the last successful sync."""

    __slots__ = ("allocated", "changes", "content", "durable", "handles", "linked", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.changes: list[Change] = []
        self.allocated = 0  # bytes up to the last one written, not those that only truncate added
        self.modified_ms = modified_ms
        self.handles = 0
        self.linked = True


@dataclass(slots=True, eq=False)
class _Directory:
    modified_ms: int
    entries: dict[str, _Node] = field(default_factory=dict, init=False)
    durable: dict[str, _Node] = field(default_factory=dict, init=False)


_Node = _Inode | _Directory


@dataclass(slots=True, eq=False)
class _Fault:
    operation: str
    pattern: str
    error: int
    times: int | None


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    __slots__ = ("_disk", "_generation", "_inode", "_mount", "_read_only", "path")

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode, read_only: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode: _Inode | None = inode
        self._read_only = read_only
        self._generation = disk.generation
        self._mount: Mount | None = None
        inode.handles += 1

    def belongs_to(self, mount: Mount) -> None:
        self._mount = mount
        mount.opened.add(self)

    def pread(self, size: int, position: int) -> bytes:
        inode = self._check("read")
        if size < 0 or position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        return bytes(inode.content[position : position + size])

    def pread_cached(self, size: int, position: int) -> Buffer | None:
        cold = self._disk.cold
        if cold is not None and cold(self.path, position, size):
            self._check("read")
            return None
        return self.pread(size, position)

    def cached_descriptor(self, size: int, position: int) -> int | None:
        return None  # there is no descriptor: simulated brokers read what they send

    def read_ahead(self, size: int, position: int) -> None:
        self._check(None)  # what is in memory is decided by `SimulatedDisk.cold` alone

    def pwrite(self, data: Buffer, position: int) -> None:
        inode = self._check("write", writing=True)
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        written = bytes(data)
        if not written:
            return
        room = self._disk.room_for(inode, position + len(written), position)
        if room < len(written):
            if room > 0:
                self._write(inode, written[:room], position)
            self._disk.failed("full disk")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._write(inode, written, position)

    def _write(self, inode: _Inode, data: bytes, position: int) -> None:
        end = position + len(data)
        change = (position, data)
        apply(inode.content, change)
        inode.changes.append(change)
        disk = self._disk
        if end > inode.allocated:
            disk.used += disk.in_blocks(end) - disk.in_blocks(inode.allocated)
            inode.allocated = end
        inode.modified_ms = disk.clock.now_ms()
        if disk.trace is not None:
            disk.trace.append(("write", self.path, position, len(data)))

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self.pwrite(b"".join(buffers), position)

    def size(self) -> int:
        return len(self._check(None).content)

    def truncate(self, size: int) -> None:
        inode = self._check("truncate", writing=True)
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        change = (size, None)
        apply(inode.content, change)
        inode.changes.append(change)
        disk = self._disk
        if size < inode.allocated:
            disk.used -= disk.in_blocks(inode.allocated) - disk.in_blocks(size)
            inode.allocated = size
        inode.modified_ms = disk.clock.now_ms()
        disk.record("truncate", self.path, size)

    def sync(self) -> None:
        disk = self._disk
        if disk.before_sync is not None:
            disk.before_sync(self.path)
        inode = self._check(None, changing=True)
        changes, inode.changes = inode.changes, []
        disk.check_faults("sync", self.path)  # if it fails, the changes are on no list any more
        for change in changes:
            apply(inode.durable, change)
        disk.record("sync", self.path)

    def close(self) -> None:
        inode, self._inode = self._inode, None
        if inode is not None and self._generation == self._disk.generation:
            inode.handles -= 1
            self._disk.release(inode)
        if self._mount is not None:
            self._mount.opened.discard(self)

    def _check(self, operation: str | None, *, writing: bool = False, changing: bool = False) -> _Inode:
        if self._mount is not None:
            self._mount.check(changing=changing or writing)
        inode = self._inode
        if inode is None or self._generation != self._disk.generation or (writing and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        disk = self._disk
        if disk.faults and operation is not None:
            disk.check_faults(operation, self.path)
        return inode


class SimulatedDisk:
    """The disk of one machine, and a `FileSystem`."""

    def __init__(self, *, clock: Clock | None = None, trace: list[Event] | None = None) -> None:
        self.clock: Clock = clock if clock is not None else SimulatedClock()
        self.trace = trace
        """Every successful change is appended here, if given: a test adds its own events (a reply) to the same list and
        asserts on the order."""
        self.capacity = _DEFAULT_CAPACITY
        self.used = 0
        self._block_size = 1
        self.cold: Callable[[str, int, int], bool] | None = None
        """Called with (path, position, size) by `pread_cached`; true makes it answer None."""
        self.before_sync: Callable[[str], None] | None = None
        self.faults: list[_Fault] = []
        self.on_failure: Callable[[str], None] | None = None
        """Called with the name of the fault when an operation fails because of it."""
        self.generation = 0
        """Counts crashes; what was opened before the last one is dead."""
        self._root = _Directory(self.clock.now_ms())
        self._name_changes: NameChanges[_Node] = NameChanges()

    # Faults.

    def fail(self, operation: str, path: str = "*", *, error: int = errno.EIO, times: int | None = None) -> None:
        """Let `operation` fail on paths that match, `times` times or until `heal`.

        `operation` is one of read, write, truncate, sync, open, create, rename, remove, sync_directory.
        """
        self.faults.append(_Fault(operation, path, error, times))

    def heal(self) -> None:
        """No more faults, and enough space."""
        self.faults.clear()
        self.capacity = _DEFAULT_CAPACITY
        self.cold = None
        self.before_sync = None

    def fill(self, *, leave: int = 0, block_size: int = 1) -> None:
        """From now on there is space for `leave` bytes, allocated in blocks; removing files makes more."""
        if block_size != self._block_size:
            linked = self._used_by_names()
            self._block_size = block_size
            self.used += self._used_by_names() - linked
        self.capacity = self.used + leave

    def corrupt(self, path: str, position: int, mask: int = 0x01) -> None:
        """Flip bits on the platter and in the page cache, as if the sector had rotted and was read again."""
        inode = self._file(path)
        inode.content[position] ^= mask
        if position < len(inode.durable):
            inode.durable[position] ^= mask

    def rot(self, chance: random.Random, pattern: str) -> tuple[str, int] | None:
        """Flip one bit somewhere in one of the matching files; returns where, if there are any."""
        paths = [
            (path, len(node.content))
            for path, node in self._walk(self._root, "")
            if isinstance(node, _Inode) and node.content and fnmatch.fnmatchcase(path, pattern)
        ]
        if not paths:
            return None
        path, size = chance.choice(paths)
        position = chance.randrange(size)
        self.corrupt(path, position, 1 << chance.randrange(8))
        return path, position

    def crash(self) -> None:
        """The process dies, for example by kill -9. What it wrote survives; its open files do not."""
        self.generation += 1
        for _, node in self._walk(self._root, ""):
            if isinstance(node, _Inode):
                node.handles = 0
        self._count_used()

    def power_loss(self, chance: random.Random) -> None:
        """The machine dies. Synced data survives; `chance` decides about the rest."""
        for change in self._surviving_names(chance):
            change.persist()
        self._name_changes.clear()
        self._restore(self._root)
        for _, node in self._walk(self._root, ""):
            if isinstance(node, _Inode):
                node.durable = after_power_loss(node.durable, node.changes, chance)
                node.content = bytearray(node.durable)
                node.changes = []
                node.allocated = len(node.content)
                node.linked = True
        self.crash()

    def unsynced(self) -> list[str]:
        """Paths whose contents or names a power loss may remove or change."""
        names = {id(node) for change in self._name_changes for _, _, node in change.entries if node is not None}
        return [
            path
            for path, node in self._walk(self._root, "")
            if id(node) in names or (isinstance(node, _Inode) and node.changes)
        ]

    def durable(self, path: str) -> bytes | None:
        """The part of a file that surely survives a power loss; None if not even its name does."""
        node: _Node = self._root
        for name in _parts(path):
            child = node.durable.get(name) if isinstance(node, _Directory) else None
            if child is None:
                return None
            node = child
        return bytes(node.durable) if isinstance(node, _Inode) else None

    def peek(self, path: str, size: int, position: int) -> bytes:
        """The content of a file, for observers: no fault affects them."""
        return bytes(self._file(path).content[position : position + size])

    def open_paths(self) -> list[str]:
        """Open files, for tests that look for leaks."""
        return [path for path, node in self._walk(self._root, "") if isinstance(node, _Inode) and node.handles]

    def _surviving_names(self, chance: random.Random) -> list[NameChange[_Node]]:
        changes = list(self._name_changes)
        fate = chance.random()
        if fate < 0.2:
            return []
        if fate < 0.4:
            return changes
        if fate < 0.6:  # a journal: everything up to a moment
            return changes[: chance.randint(0, len(changes))]
        return self._name_changes.with_what_they_build_on([chance.random() < 0.5 for _ in changes])

    def _restore(self, directory: _Directory) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, _Directory):
                self._restore(node)

    def _walk(self, directory: _Directory, path: str) -> Iterator[tuple[str, _Node]]:
        for name, node in sorted(directory.entries.items()):
            here = f"{path}/{name}"
            yield here, node
            if isinstance(node, _Directory):
                yield from self._walk(node, here)

    # Space and faults, for SimulatedFile.

    def room_for(self, inode: _Inode, end: int, position: int) -> int:
        """How many of the bytes from `position` to `end` the disk accepts."""
        if end <= inode.allocated:
            return end - position
        free = max(0, self.capacity - self.used)
        return max(0, min(end, self.in_blocks(inode.allocated) + free - free % self._block_size) - position)

    def in_blocks(self, size: int) -> int:
        """The space that a file of `size` bytes takes."""
        return -(-size // self._block_size) * self._block_size

    def release(self, inode: _Inode) -> None:
        """Space is freed when the last name and the last open file are gone."""
        if not inode.linked and not inode.handles:
            self.used -= self.in_blocks(inode.allocated)
            inode.allocated = 0

    def _count_used(self) -> None:
        self.used = self._used_by_names()

    def _used_by_names(self) -> int:
        return sum(self.in_blocks(node.allocated) for _, node in self._walk(self._root, "") if isinstance(node, _Inode))

    def check_faults(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation == operation and fnmatch.fnmatchcase(path, fault.pattern):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self.faults.remove(fault)
                self.failed("full disk" if fault.error == errno.ENOSPC else "broken disk")
                raise OSError(fault.error, os.strerror(fault.error), path)

    def failed(self, fault: str) -> None:
        if self.on_failure is not None:
            self.on_failure(fault)

    def record(self, *event: str | int) -> None:
        if self.trace is not None:
            self.trace.append(event)

    # FileSystem.

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        self.check_faults("open", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name) if name else self._root
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create or read_only:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.check_faults("create", path)
            node = _Inode(self.clock.now_ms())
            self._link(((parent, name, node),), node)
            self.record("create", path)
        return SimulatedFile(self, path, node, read_only)

    def exists(self, path: str) -> bool:
        return self._lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._lookup(path), _Directory)

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def make_directories(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if node is None:
                self.check_faults("create", path)
                node = _Directory(self.clock.now_ms())
                self._link(((directory, name, node),), node)
                self.record("make_directory", path)
            elif isinstance(node, _Inode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.check_faults("rename", source)
        node = self._node(source)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        replaced = to_directory.entries.get(to_name)
        if replaced is node:
            return
        if isinstance(node, _Directory):
            if isinstance(replaced, _Inode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
            if replaced is not None and replaced.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            if _parts(target)[: len(_parts(source))] == _parts(source):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), target)
        elif isinstance(replaced, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        self._link(((from_directory, from_name, None), (to_directory, to_name, node)), node)
        self._unlinked(replaced)
        self.record("rename", source, target)

    def remove(self, path: str) -> None:
        self.check_faults("remove", path)
        node = self._lookup(path)
        if node is None:
            return
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        parent, name = self._parent(path)
        self._link(((parent, name, None),), node)
        self._unlinked(node)
        self.record("remove", path)

    def remove_tree(self, path: str) -> None:
        node = self._lookup(path)
        if node is None:
            return
        if isinstance(node, _Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        for name, child in sorted(node.entries.items()):
            if isinstance(child, _Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.check_faults("remove", path)
        parent, name = self._parent(path)
        self._link(((parent, name, None),), node)
        self.record("remove", path)

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.check_faults("sync_directory", path)
        for change in self._name_changes.take(directory):
            change.persist()
        self.record("sync_directory", path)

    def free_bytes(self, path: str) -> int:
        self._node(path)
        return max(0, self.capacity - self.used)

    def total_bytes(self, path: str) -> int:
        self._node(path)
        return self.capacity

    # Names.

    def _link(self, entries: tuple[tuple[_Directory, str, _Node | None], ...], node: _Node) -> None:
        for directory, name, entry in entries:
            if entry is None:
                del directory.entries[name]
            else:
                directory.entries[name] = entry
            directory.modified_ms = self.clock.now_ms()
        self._name_changes.add(NameChange(entries, node))

    def _unlinked(self, node: _Node | None) -> None:
        if isinstance(node, _Inode):
            node.linked = False
            self.release(node)

    def _lookup(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _parts(path):
            child = node.entries.get(name) if isinstance(node, _Directory) else None
            if child is None:
                return None
            node = child
        return node

    def _node(self, path: str) -> _Node:
        parent, name = self._parent(path)
        node = parent.entries.get(name) if name else self._root
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _file(self, path: str) -> _Inode:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if isinstance(node, _Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        """The directory that contains `path`, and its name there ("" for the root)."""
        parts = _parts(path)
        if not parts:
            return self._root, ""
        node: _Node | None = self._root
        for name in parts[:-1]:
            node = node.entries.get(name) if isinstance(node, _Directory) else None
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        assert node is not None
        return node, parts[-1]


def _parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name != "."]
