"""The `.snapshot` file: the producers of a partition as of the offset in the file name.

It holds a version (i16 = 1), a CRC-32C of everything after the CRC, the number of entries and the entries. Only the
last batch of each producer is kept, as in Kafka.

A snapshot is taken when a segment rolls, now and then within a large segment, and on a clean stop. It is only an aid: a
missing or damaged snapshot costs a longer scan at recovery, never data. So it is written without a sync, and synced
together with its segment. Recovery begins at the recovery point, so it uses the newest snapshot at or below that point;
the one before is kept in case the newest is damaged.
"""

from __future__ import annotations

import logging
import os
import struct
from bisect import bisect_right, insort
from collections.abc import Iterable

from crc32c import crc32c

from penstock.io.files import FileSystem, read_file
from penstock.log.segment import SNAPSHOT_SUFFIX, file_name
from penstock.records.batch import MAX_SEQUENCE, NO_SEQUENCE
from penstock.replication.producers import ProducedBatch, ProducerEntry

VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


logger = logging.getLogger("penstock.log")


class CorruptSnapshot(ValueError):
    pass


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    packed = []
    for entry in entries:
        if entry.batches:
            _, last_sequence, first_offset, last_offset, _ = entry.batches[-1]
        else:
            last_sequence, first_offset, last_offset = NO_SEQUENCE, -1, -1
        packed.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last_sequence,
                last_offset,
                last_offset - first_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} of a producer snapshot is not known")
    body = memoryview(data)[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshot(f"a producer snapshot has CRC {crc32c(body):#010x}, its header says {crc:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise CorruptSnapshot(f"{count} entries announced in a producer snapshot of {len(data)} bytes")
    entries = []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = fields
        entry = ProducerEntry(producer_id, epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = transaction if transaction >= 0 else -1
        if last_offset >= 0:
            first_sequence = NO_SEQUENCE if last_sequence < 0 else (last_sequence - delta) & MAX_SEQUENCE
            entry.batches.append(
                ProducedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            )
        entries.append(entry)
    return entries


class ProducerSnapshots:
    """The snapshot files in a partition's directory."""

    __slots__ = ("_directory", "_files", "_offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        return self._offsets.copy()

    def relocate(self, directory: str) -> None:
        """Update the path: the directory of the log was renamed."""
        self._directory = directory

    @property
    def latest(self) -> int:
        """The offset of the newest snapshot; -1 if there is none."""
        return self._offsets[-1] if self._offsets else -1

    def path(self, offset: int) -> str:
        return os.path.join(self._directory, file_name(offset, SNAPSHOT_SUFFIX))

    def write(self, offset: int, entries: Iterable[ProducerEntry]) -> bool:
        """Write a snapshot without a sync; false if the disk refused."""
        path = self.path(offset)
        try:
            file = self._files.open(path, create=True)
            try:
                file.truncate(0)
                file.pwrite(encode_snapshot(entries), 0)
            finally:
                file.close()
        except OSError as error:
            logger.warning("%s cannot be written: %s", path, error)
            return False
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return True

    def newest_until(self, offset: int) -> tuple[int, list[ProducerEntry]] | None:
        """The newest usable snapshot at or below `offset`. Removes damaged ones."""
        for candidate in reversed(self._offsets[: bisect_right(self._offsets, offset)]):
            path = self.path(candidate)
            try:
                return candidate, decode_snapshot(read_file(self._files, path))
            except CorruptSnapshot as error:
                logger.warning("%s is of no use: %s", path, error)
                self._remove(candidate)
        return None

    def prune(self, recovery_point: int) -> None:
        """Keep the two newest at or below the recovery point, and all above."""
        for offset in self._offsets[: max(bisect_right(self._offsets, recovery_point) - 2, 0)]:
            try:
                self._remove(offset)
            except OSError as error:  # the next call tries again
                logger.warning("%s cannot be removed: %s", self.path(offset), error)

    def remove_above(self, offset: int) -> None:
        for each in self._offsets[bisect_right(self._offsets, offset) :]:
            self._remove(each)

    def _remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self._offsets.remove(offset)
