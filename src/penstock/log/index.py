"""The `.index` and `.timeindex` files: sparse, sorted maps from offsets to positions and from timestamps to offsets.

Entries have a fixed size and ascend, so a lookup is a binary search. It searches the file in place, with small reads
that the page cache serves, or the tail: the entries not written yet. The tail is written to the file when it has a few
hundred entries, when the segment is closed and on a clean stop. Nothing is loaded, so an index needs memory only for
its tail, however large the segment is. Recovery rebuilds entries that a crash took from the tail.

The state (number of entries in the file, tail) is one tuple that is replaced and never modified, except by appending to
the tail: a worker thread that reads while the event loop appends sees a consistent state.

Readers follow the log, so the event loop keeps the last windows of offset indexes that it has searched, unpacked: most
look-ups are then a bisection in memory. Whatever shortens an index makes its windows invalid.

A disk failure on an index must not stop the log: a tail that cannot be written stays in memory and is written with the
next one.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from penstock.io.files import Buffer, FileSystem
from penstock.log.handles import Access, LoopAccess

logger = logging.getLogger("penstock.log")

TAIL_ENTRIES = 256
# A search in the file narrows down to this many entries, then reads them at once.
_WINDOW_ENTRIES = 256
# A window that is kept continues after that, because readers go forward.
_KEPT_ENTRIES = 1024
_KEPT_WINDOWS = 4


class SortedEntries:
    """The base of both indexes: packed entries with two ascending fields, in a file and a tail."""

    __slots__ = ("_files", "_generation", "_state", "base_offset", "path")

    entry = struct.Struct("")

    def __init__(self, files: FileSystem, path: str, base_offset: int, file_size: int) -> None:
        """`file_size` is the size on disk; 0 if there is no file."""
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._state: tuple[int, bytearray] = (file_size // self.entry.size, bytearray())
        self._generation = 0  # counts how often the file became shorter

    def __len__(self) -> int:
        in_file, tail = self._state
        return in_file + len(tail) // self.entry.size

    @property
    def tail_is_full(self) -> bool:
        return len(self._state[1]) >= TAIL_ENTRIES * self.entry.size

    def write(self) -> bool:
        """Move the tail to the file (and create the file, even if it is empty); false if the write failed."""
        in_file, tail = self._state
        try:
            file = self._files.open(self.path, create=True)
            try:
                end = in_file * self.entry.size
                if file.size() != end:  # a write failed half-way, and its entries may be obsolete
                    file.truncate(end)
                if tail:
                    file.pwrite(bytes(tail), end)
            finally:
                file.close()
        except OSError as error:
            logger.warning("%s: %d bytes of index entries stay in memory: %s", self.path, len(tail), error)
            return False
        self._state = (in_file + len(tail) // self.entry.size, bytearray())
        return True

    def reset(self) -> None:
        """Start over with an empty file."""
        self._truncate_file(0)

    def _truncate_file(self, count: int) -> None:
        file = self._files.open(self.path, create=True)
        try:
            file.truncate(count * self.entry.size)
        finally:
            file.close()
            self._generation += 1
        self._state = (count, bytearray())

    def truncate_entries(self, count: int) -> None:
        in_file, tail = self._state
        if count >= in_file:
            self._state = (in_file, tail[: (count - in_file) * self.entry.size])
        else:
            self._truncate_file(count)

    def read_all(self) -> bytes:
        """Every entry, packed; fewer than the recorded number if the file is short."""
        in_file, tail = self._state
        if not in_file:
            return bytes(tail)
        file = self._files.open(self.path, read_only=True)
        try:
            return file.pread(in_file * self.entry.size, 0) + bytes(tail)
        finally:
            file.close()

    def _get(self, number: int, access: Access) -> tuple[int, int]:
        in_file, tail = self._state
        size = self.entry.size
        if number >= in_file:
            first, second = self.entry.unpack_from(tail, (number - in_file) * size)
        else:
            first, second = self._unpack(access.read(self.path, size, number * size), 0)
        return first, second

    def _floor(self, field: int, key: int, access: Access) -> tuple[int, tuple[int, int]] | None:
        """The last entry whose `field` is not above `key`, with its number."""
        in_file, tail = self._state
        size = self.entry.size
        in_tail = len(tail) // size
        if in_tail and self.entry.unpack_from(tail, 0)[field] <= key:
            slot = self._search(tail, in_tail, field, key)
            first, second = self.entry.unpack_from(tail, slot * size)
            return in_file + slot, (first, second)
        return self._floor_in_file(field, key, in_file, access)

    def _floor_in_file(self, field: int, key: int, in_file: int, access: Access) -> tuple[int, tuple[int, int]] | None:
        size = self.entry.size
        low, high = self._narrow(field, key, in_file, access)
        if low == high:
            return None
        window = access.read(self.path, (high - low) * size, low * size)
        slot = self._search(window, len(window) // size, field, key)
        return None if slot < 0 else (low + slot, self._unpack(window, slot * size))

    def _narrow(self, field: int, key: int, in_file: int, access: Access) -> tuple[int, int]:
        """The answer, if there is one, is among these few entries of the file."""
        size = self.entry.size
        low, high = 0, in_file
        while high - low > _WINDOW_ENTRIES:
            middle = (low + high) // 2
            if self._unpack(access.read(self.path, size, middle * size), 0)[field] <= key:
                low = middle
            else:
                high = middle
        return low, high

    def _search(self, entries: Buffer, count: int, field: int, key: int) -> int:
        unpack, size = self.entry.unpack_from, self.entry.size
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[field] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _unpack(self, data: Buffer, position: int) -> tuple[int, int]:
        try:
            first, second = self.entry.unpack_from(data, position)
        except struct.error:
            raise CorruptIndex(f"{self.path} is shorter than its {len(self)} entries") from None
        return first, second


class CorruptIndex(ValueError):
    """An index contradicts itself or its segment; it can be rebuilt from the segment."""


class _Window(NamedTuple):
    """Successive entries of an offset index file."""

    generation: int
    low: int
    high: int
    fields: tuple[array[int], array[int]]


class OffsetIndex(SortedEntries):
    """Offset of a batch's last record -> position of the batch."""

    __slots__ = ("_windows",)

    entry = struct.Struct(">ii")

    def __init__(self, files: FileSystem, path: str, base_offset: int, file_size: int) -> None:
        super().__init__(files, path, base_offset, file_size)
        self._windows: list[_Window] = []  # for the event loop, the last one used first

    def _floor_in_file(self, field: int, key: int, in_file: int, access: Access) -> tuple[int, tuple[int, int]] | None:
        if type(access) is not LoopAccess:
            return super()._floor_in_file(field, key, in_file, access)
        for place, window in enumerate(self._windows):
            keys = window.fields[field]
            if keys[0] <= key and (key < keys[-1] or window.high == in_file) and window.generation == self._generation:
                if place:
                    self._windows.insert(0, self._windows.pop(place))
                break
        else:
            found = self._load_window(field, key, in_file, access)
            if found is None:
                return None
            window = found
        slot = bisect_right(window.fields[field], key) - 1
        return None if slot < 0 else (window.low + slot, (window.fields[0][slot], window.fields[1][slot]))

    def _load_window(self, field: int, key: int, in_file: int, access: Access) -> _Window | None:
        generation = self._generation
        low, high = self._narrow(field, key, in_file, access)
        if low == high:
            return None
        high = min(max(high, low + _KEPT_ENTRIES), in_file)
        size = self.entry.size
        data = access.read(self.path, (high - low) * size, low * size)
        is_whole = len(data) == (high - low) * size
        entries = array("i", bytes(data[: len(data) - len(data) % size]))
        if sys.byteorder == "little":
            entries.byteswap()
        window = _Window(generation, low, high, (entries[::2], entries[1::2]))
        if is_whole:  # otherwise it is being shortened, or damaged
            self._windows = [window, *self._windows[: _KEPT_WINDOWS - 1]]
        return window

    def append(self, last_offset: int, position: int) -> None:
        self._state[1].extend(self.entry.pack(last_offset - self.base_offset, position))

    def floor(self, offset: int, access: Access) -> int:
        """A position from which a forward scan finds the batch with `offset`."""
        found = self._floor(0, offset - self.base_offset, access)
        return 0 if found is None else found[1][1]

    def floor_of_position(self, position: int, access: Access) -> int:
        """The last indexed batch that does not start after `position`."""
        found = self._floor(1, position, access)
        return 0 if found is None else found[1][1]

    def last_position(self, access: Access) -> int:
        return self._get(len(self) - 1, access)[1] if len(self) else 0

    def truncate_to(self, offset: int, access: Access) -> None:
        """Remove entries of batches that end at or after `offset`."""
        found = self._floor(0, offset - self.base_offset - 1, access)
        self.truncate_entries(0 if found is None else found[0] + 1)

    def entries(self) -> Iterator[tuple[int, int]]:
        """Every (offset, position)."""
        data = self.read_all()
        for relative, position in self.entry.iter_unpack(data[: len(data) - len(data) % self.entry.size]):
            yield self.base_offset + relative, position


class TimeIndex(SortedEntries):
    """Largest timestamp so far -> offset of the last record of the batch that has it."""

    __slots__ = ("_last_timestamp",)

    entry = struct.Struct(">qi")

    def __init__(self, files: FileSystem, path: str, base_offset: int, file_size: int) -> None:
        super().__init__(files, path, base_offset, file_size)
        self._last_timestamp: int | None = None if file_size else -1

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry. Entries ascend: a timestamp that is not above the last one adds nothing.

        Before the first append to an index that was found on disk, `last` must have been called once.
        """
        if self._last_timestamp is None:
            raise RuntimeError(f"{self.path}: its last entry is not known")
        if timestamp > self._last_timestamp:
            self._state[1].extend(self.entry.pack(timestamp, offset - self.base_offset))
            self._last_timestamp = timestamp

    def last(self, access: Access) -> tuple[int, int]:
        """The last entry; (-1, base offset) if there is none."""
        timestamp, offset = self.peek(access)
        self._last_timestamp = timestamp
        return timestamp, offset

    def peek(self, access: Access) -> tuple[int, int]:
        """Same as `last`, for any thread."""
        if not len(self):
            return -1, self.base_offset
        timestamp, relative = self._get(len(self) - 1, access)
        return timestamp, self.base_offset + relative

    def floor(self, timestamp: int, access: Access) -> int:
        """An offset below which every record is older than `timestamp`."""
        found = self._floor(0, timestamp - 1, access)
        return self.base_offset if found is None else self.base_offset + found[1][1]

    def truncate_to(self, offset: int, access: Access) -> None:
        found = self._floor(1, offset - self.base_offset - 1, access)
        self.truncate_entries(0 if found is None else found[0] + 1)

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = -1

    def truncate_entries(self, count: int) -> None:
        super().truncate_entries(count)
        self._last_timestamp = None if count else -1

    def entries(self) -> Iterator[tuple[int, int]]:
        """Every (timestamp, offset)."""
        data = self.read_all()
        for timestamp, relative in self.entry.iter_unpack(data[: len(data) - len(data) % self.entry.size]):
            yield timestamp, self.base_offset + relative
