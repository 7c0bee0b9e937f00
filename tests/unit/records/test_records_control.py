"""Control batches: markers and the quorum's own records, as Kafka writes them."""

from __future__ import annotations

import struct
import warnings

import pytest

from penstock.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from penstock.records.batch import CorruptBatch, check_crc, read_header
from penstock.records.builder import build_batch
from penstock.records.control import (
    ControlType,
    QuorumRecord,
    TransactionMarker,
    build_quorum_batch,
    build_transaction_marker,
    control_key,
    parse_quorum_record,
    parse_transaction_marker,
    read_transaction_marker,
)
from penstock.records.record import Record, iterate_records

with warnings.catch_warnings():  # it loads its schemas through a deprecated door
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

NOW = 1_700_000_000_000


def marker(*, committed: bool) -> bytearray:
    return build_transaction_marker(
        producer_id=7, producer_epoch=3, committed=committed, coordinator_epoch=12, timestamp=NOW, base_offset=99
    )


@pytest.mark.parametrize("committed", [True, False])
def test_markers(committed: bool) -> None:
    batch = marker(committed=committed)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (7, 3, -1, 1)
    assert read_transaction_marker(batch, 0, header) == TransactionMarker(committed, 12)
    (record,) = iterate_records(batch, 0, header, max_size=1000)
    assert record.key == struct.pack(">hh", 0, 1 if committed else 0)
    assert record.value == struct.pack(">hi", 0, 12)


def test_kafka_python_knows_our_markers() -> None:
    (commit,) = KafkaPythonBatch(bytes(marker(committed=True)))
    (abort,) = KafkaPythonBatch(bytes(marker(committed=False)))
    assert (commit.commit, commit.abort, abort.commit, abort.abort) == (True, False, False, True)


def test_an_emptied_control_batch_has_no_marker() -> None:
    batch = build_batch([], control=True, transactional=True, producer_id=7, producer_epoch=0)
    assert read_transaction_marker(batch, 0, read_header(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\x00", b""), (control_key(0), None), (control_key(1), b"\x00\x00"), (b"\xff\xff\x00\x00", b"")],
)
def test_markers_that_make_no_sense(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        parse_transaction_marker(Record(0, NOW, key, value, ()))


QUORUM: list[QuorumRecord] = [
    LeaderChangeMessage(version=0, leader_id=3),
    SnapshotHeaderRecord(version=0, last_contained_log_timestamp=NOW),
    KRaftVersionRecord(version=0, kraft_version=1),
    VotersRecord(version=0),
    SnapshotFooterRecord(version=0),
]


def test_quorum_records_round_trip() -> None:
    batch = build_quorum_batch(QUORUM, timestamp=NOW, base_offset=5, leader_epoch=2)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.is_control, header.is_transactional, header.leader_epoch, header.base_offset) == (True, False, 2, 5)
    records = list(iterate_records(batch, 0, header, max_size=10_000))
    assert [parse_quorum_record(record) for record in records] == QUORUM
    types = [ControlType(struct.unpack(">hh", record.key or b"")[1]) for record in records]
    assert types == [
        ControlType.LEADER_CHANGE,
        ControlType.SNAPSHOT_HEADER,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
        ControlType.SNAPSHOT_FOOTER,
    ]


def test_types_of_the_future_are_passed_over() -> None:
    record = Record(0, NOW, control_key(99), b"\x00\x00", ())
    assert parse_quorum_record(record) is None
    assert parse_transaction_marker(record) is None


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00", b"\x00\x63" + bytes(20)])
def test_quorum_records_that_make_no_sense(value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        parse_quorum_record(Record(0, NOW, control_key(ControlType.LEADER_CHANGE), value, ()))
