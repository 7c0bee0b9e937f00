"""Snapshots: an image as a file of record batches.

A snapshot is a control batch with the header (and, from kraft.version 1 on, the version and the voters of the quorum),
data batches with the records, and a control batch with the footer. Offsets count from 0 and mean nothing outside the
file; the file name has the offset and epoch of the log that the snapshot represents. A file without its footer is not a
snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.metadata.serde import decode_record, encode_record
from penstock.protocol.declaration import Message
from penstock.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from penstock.raft.voters import VoterSet
from penstock.records.batch import Buffer, CorruptBatch, check_crc, iterate_headers
from penstock.records.builder import NewRecord, build_batch
from penstock.records.control import build_quorum_batch, parse_quorum_record
from penstock.records.record import iterate_records

# The approximate size of a batch: large enough for few batches, small enough to build without a pause.
BATCH_BYTES: Final = 256 * 1024
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The first offset that the snapshot does not contain, and the epoch of the last one that it does."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


# The snapshot that a node is formatted with: the first records of a new cluster, and its first voters.
BOOTSTRAP_SNAPSHOT: Final = SnapshotId(0, 0)


def snapshot_id(file_name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(file_name)
    return None if match is None else SnapshotId(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class QuorumConfiguration:
    """Version and voters of the quorum, as found in the log or a snapshot of it."""

    kraft_version: int = 0
    voters: VoterSet | None = None


def encode_snapshot(
    records: Iterable[Message],
    *,
    metadata_version: int,
    quorum: QuorumConfiguration,
    epoch: int,
    last_contained_timestamp_ms: int,
    now_ms: int,
) -> Iterator[bytearray]:
    """The batches of a snapshot, in order."""
    opening: list[SnapshotHeaderRecord | KRaftVersionRecord | VotersRecord] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)
    ]
    if quorum.kraft_version >= 1:
        opening.append(KRaftVersionRecord(kraft_version=quorum.kraft_version))
        if quorum.voters is not None:
            opening.append(quorum.voters.to_record())
    yield build_quorum_batch(opening, timestamp=now_ms, base_offset=0, leader_epoch=epoch)
    offset = len(opening)
    values: list[NewRecord] = []
    size = 0
    for record in records:
        value = encode_record(record, metadata_version)
        values.append((now_ms, None, value, ()))
        size += len(value)
        if size >= BATCH_BYTES:
            yield build_batch(values, base_offset=offset, leader_epoch=epoch)
            offset += len(values)
            values, size = [], 0
    if values:
        yield build_batch(values, base_offset=offset, leader_epoch=epoch)
        offset += len(values)
    yield build_quorum_batch([SnapshotFooterRecord()], timestamp=now_ms, base_offset=offset, leader_epoch=epoch)


@dataclass(frozen=True, slots=True)
class DecodedSnapshot:
    records: list[Message]
    quorum: QuorumConfiguration
    last_contained_timestamp_ms: int


def decode_snapshot(data: Buffer) -> DecodedSnapshot:
    """Decode a snapshot; CorruptBatch if it is not complete."""
    records: list[Message] = []
    quorum = QuorumConfiguration()
    timestamp_ms: int | None = None
    complete = False
    end = 0
    for position, header in iterate_headers(data):
        check_crc(data, position, header)
        if complete:
            raise CorruptBatch("a snapshot with batches after its footer")
        for record in iterate_records(data, position, header, max_size=MAX_BATCH_BYTES):
            if not header.is_control:
                records.append(decode_record(record.value))
                continue
            message = parse_quorum_record(record)
            if isinstance(message, SnapshotHeaderRecord):
                timestamp_ms = message.last_contained_log_timestamp
            elif isinstance(message, KRaftVersionRecord):
                quorum = QuorumConfiguration(message.kraft_version, quorum.voters)
            elif isinstance(message, VotersRecord):
                quorum = QuorumConfiguration(quorum.kraft_version, VoterSet.from_record(message))
            elif isinstance(message, SnapshotFooterRecord):
                complete = True
        end = position + header.size
    if timestamp_ms is None or not complete or end != len(data):
        raise CorruptBatch("a snapshot that does not begin with a header and end with a footer")
    return DecodedSnapshot(records, quorum, timestamp_ms)
