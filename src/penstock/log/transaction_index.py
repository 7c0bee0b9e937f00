"""The `.txnindex` file: the aborted transactions whose markers are in one segment.

An entry has 34 bytes: version (i16 = 0), producer id, first and last offset of the transaction, and the last stable
offset after its end. A read_committed reader collects the entries that overlap its fetch. It continues through later
segments until an entry has a last stable offset at or above the upper end of the fetch: every later transaction also
began later. The file exists only if a transaction was aborted.

An entry is written before its marker. A marker in the log without its entry would show aborted records to readers; an
entry without its marker is only bytes after the valid entries, and is cut off or overwritten.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.io.files import FileSystem, read_file

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class CorruptTransactionIndex(ValueError):
    pass


class TransactionIndex:
    __slots__ = ("_files", "_is_prepared", "_size", "path")

    def __init__(self, files: FileSystem, path: str, size: int | None = None) -> None:
        """`size` is the file size, 0 if there is none; if it is not given, it is read from the disk."""
        self._files = files
        self.path = path
        if size is None:
            size = files.size(path) if files.exists(path) else 0
        self._size = size - size % ENTRY_SIZE
        self._is_prepared = False

    def __len__(self) -> int:
        return self._size // ENTRY_SIZE

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry. An entry that exists is not rewritten: recovery visits markers that were synced with their
        entries, and must not put those at risk."""
        file = self._files.open(self.path, create=True)
        try:
            if self._size:
                last = AbortedTransaction(*_ENTRY.unpack(file.pread(ENTRY_SIZE, self._size - ENTRY_SIZE))[1:])
                if transaction.last_offset <= last.last_offset:
                    return
            file.pwrite(_ENTRY.pack(VERSION, *transaction), self._size)
        finally:
            file.close()
        self._size += ENTRY_SIZE

    def prepare(self, transaction: AbortedTransaction) -> None:
        """Write the entry of a marker that is about to be written; it counts after `keep_prepared`."""
        file = self._files.open(self.path, create=True)
        try:
            self._is_prepared = True
            file.pwrite(_ENTRY.pack(VERSION, *transaction), self._size)
        finally:
            file.close()

    def keep_prepared(self) -> None:
        """The marker is in the log."""
        if self._is_prepared:
            self._is_prepared = False
            self._size += ENTRY_SIZE

    def drop_prepared(self) -> None:
        """The marker is not in the log. After an OSError the next call tries again."""
        if self._is_prepared:
            self._truncate(self._size)

    def entries(self) -> list[AbortedTransaction]:
        if not self._size:
            return []
        data = read_file(self._files, self.path)[: self._size]
        if len(data) < self._size:
            raise CorruptTransactionIndex(f"{self.path} has {len(data)} bytes, not {self._size}")
        entries = []
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != VERSION:
                raise CorruptTransactionIndex(f"{self.path}: version {version} of an entry is not known")
            entries.append(AbortedTransaction(*fields))
        return entries

    def collect(self, start: int, end: int, into: list[AbortedTransaction]) -> bool:
        """Add entries that overlap [start, end) to `into`; true if no later segment can have more."""
        for transaction in self.entries():
            if transaction.last_offset >= start and transaction.first_offset < end:
                into.append(transaction)
            if transaction.last_stable_offset >= end:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Remove transactions whose marker is at or after `offset`, and everything from the first implausible entry on:
        entries have no CRC, and after a power loss the last ones may be torn."""
        self.drop_prepared()
        if not self._size:
            return
        data = read_file(self._files, self.path)[: self._size]
        kept, before = 0, -1
        for version, _, first, last, _ in _ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
            if version != VERSION or not 0 <= first < last or not before < last < offset:
                break
            kept, before = kept + ENTRY_SIZE, last
        if kept < self._size:
            self._truncate(kept)

    def _truncate(self, size: int) -> None:
        file = self._files.open(self.path, create=True)
        try:
            file.truncate(size)
        finally:
            file.close()
        self._size = size
        self._is_prepared = False
