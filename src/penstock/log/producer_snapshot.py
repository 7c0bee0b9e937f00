"""The `.snapshot` file: the producers of a partition as they were at the offset in its name.

A version (i16 = 1), a CRC-32C of what follows it, the number of entries and the entries. Only the last batch of each
producer is kept, as in Kafka. A snapshot is an aid: one that is missing or damaged costs a longer scan at recovery,
never data, so it is written without a sync on roll and synced with the segment it belongs to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from penstock.records.batch import MAX_SEQUENCE, NO_SEQUENCE
from penstock.replication.producers import ProducedBatch, ProducerEntry

VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


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
