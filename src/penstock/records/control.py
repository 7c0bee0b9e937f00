"""Control batches: records that the log itself needs, between the records of clients.

A control record's key is a version and a type; its value depends on the type. Transaction markers end a producer's
transaction in one partition. The other types belong to the metadata quorum: the leader, the begin and end of a
snapshot, and the voters in it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.model.errors import KafkaError
from penstock.protocol.codec import MalformedMessage, decode, encode
from penstock.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from penstock.records.batch import NO_LEADER_EPOCH, BatchHeader, Buffer, CorruptBatch
from penstock.records.builder import NewRecord, build_batch
from penstock.records.record import Record, iterate_records

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")

# Control records are small; anything that claims to be larger is not a control record.
_MAX_CONTROL_BODY = 1024 * 1024

QuorumRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_QUORUM_TYPES: dict[ControlType, type[QuorumRecord]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPE_OF = {message: control_type for control_type, message in _QUORUM_TYPES.items()}


class TransactionMarker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def control_key(control_type: int) -> bytes:
    return _KEY.pack(0, control_type)


def control_type(key: bytes | None) -> int:
    """The type in a control record's key. Types of a later Kafka are unknown numbers, not errors."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"control record with key {key!r}")
    version, number = _KEY.unpack_from(key, 0)
    if version < 0:
        raise CorruptBatch(f"control record key of version {version}")
    return int(number)


def build_transaction_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    key = control_key(ControlType.COMMIT if committed else ControlType.ABORT)
    return build_batch(
        [(timestamp, key, _MARKER.pack(0, coordinator_epoch), ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def parse_transaction_marker(record: Record) -> TransactionMarker | None:
    """Parse a marker; None for a control record that is not a transaction marker."""
    number = control_type(record.key)
    if number not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise CorruptBatch(f"transaction marker at offset {record.offset} with value {record.value!r}")
    version, coordinator_epoch = _MARKER.unpack_from(record.value, 0)
    if version < 0:
        raise CorruptBatch(f"transaction marker of version {version}")
    return TransactionMarker(number == ControlType.COMMIT, coordinator_epoch)


def read_transaction_marker(buffer: Buffer, position: int, header: BatchHeader) -> TransactionMarker | None:
    """The marker in a control batch, which has exactly one; None if compaction emptied it or it is not a marker."""
    record = first_record(buffer, position, header)
    return None if record is None else parse_transaction_marker(record)


def first_record(buffer: Buffer, position: int, header: BatchHeader) -> Record | None:
    for record in iterate_records(buffer, position, header, max_size=_MAX_CONTROL_BODY):
        return record
    return None


def build_quorum_batch(
    messages: Sequence[QuorumRecord], *, timestamp: int, base_offset: int, leader_epoch: int
) -> bytearray:
    """A control batch of the metadata log or of a snapshot."""
    records: list[NewRecord] = [
        (timestamp, control_key(_TYPE_OF[type(message)]), encode(message, message.version), ()) for message in messages
    ]
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def parse_quorum_record(record: Record) -> QuorumRecord | None:
    """Parse a quorum record; None for a control type that is not (or not yet known to be) the quorum's."""
    number = control_type(record.key)
    if number not in _QUORUM_TYPES:
        return None
    message = _QUORUM_TYPES[ControlType(number)]
    value = record.value
    if value is None or len(value) < 2:
        raise CorruptBatch(f"control record of type {number} with value {value!r}")
    # Every quorum record starts with its own version.
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        return decode(message, value, version)
    except (MalformedMessage, KafkaError) as error:
        raise CorruptBatch(f"control record of type {number}, version {version}: {error}") from error
