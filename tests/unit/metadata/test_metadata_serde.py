from __future__ import annotations

import pytest

from penstock.metadata.image import EMPTY_IMAGE
from penstock.metadata.serde import decode_record, encode_record
from penstock.metadata.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    QuorumConfiguration,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    snapshot_id,
)
from penstock.metadata.unserved import UnservedRecord, kind_of
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.records.batch import CorruptBatch, iterate_headers


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        # Frame 1, type, version; then the body: compact strings, big-endian numbers, no tags.
        (
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00",
        ),
        (TopicRecord(name="foo", topic_id=b"i" * 16), b"\x01\x02\x00\x04foo" + b"i" * 16 + b"\x00"),
        (NoOpRecord(), b"\x01\x14\x00\x00"),
        (
            ConfigRecord(resource_type=2, resource_name="foo", name="k", value=None),
            b"\x01\x04\x00\x02\x04foo\x02k\x00\x00",
        ),
    ],
)
def test_records_as_kafka_writes_them(record: Message, encoded: bytes) -> None:
    assert encode_record(record, 30) == encoded
    assert decode_record(encoded) == record


def test_versions_follow_the_metadata_version() -> None:
    assert encode_record(RegisterBrokerRecord(), 29)[2] == 3
    assert encode_record(RegisterBrokerRecord(), 30)[2] == 4
    assert encode_record(BrokerRegistrationChangeRecord(), 29)[2] == 2
    assert encode_record(BrokerRegistrationChangeRecord(), 30)[2] == 3
    assert encode_record(PartitionRecord(), 25)[2] == 2


@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x01\x0c", b"\x01\x0c\x00\x11meta", b"\x01\x14\x00\x00\x00"])
def test_broken_records(value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\x02\x0c\x00", "frame version 2"),
        (b"\x01\x7f\x00", "type 127, version 0"),
        (b"\x01\x0c\x09body", "type 12, version 9"),
    ],
)
def test_records_of_another_time(value: bytes, kind: str) -> None:
    record = decode_record(value)
    assert isinstance(record, UnservedRecord) and kind_of(record) == kind
    assert encode_record(record, 25) == value


def test_snapshot_names() -> None:
    assert SnapshotId(1234, 5).file_name == "00000000000000001234-0000000005.checkpoint"
    assert snapshot_id("00000000000000001234-0000000005.checkpoint") == SnapshotId(1234, 5)
    assert snapshot_id("00000000000000000000-0000000000.checkpoint") == BOOTSTRAP_SNAPSHOT
    assert snapshot_id("00000000000000001234-0000000005.checkpoint.part") is None
    assert snapshot_id("00000000000000001234.log") is None


def snapshot(records: list[Message], quorum: QuorumConfiguration) -> bytes:
    batches = encode_snapshot(
        records, metadata_version=30, quorum=quorum, epoch=3, last_contained_timestamp_ms=77, now_ms=99
    )
    return b"".join(batches)


VOTERS = VoterSet.of([Voter(ReplicaKey(1, b"d" * 16), (VoterEndpoint("CONTROLLER", "host", 9093),))])


def test_a_snapshot_is_header_records_and_footer_with_offsets_of_its_own() -> None:
    records: list[Message] = [TopicRecord(name="t" * 200, topic_id=bytes([n % 256]) * 16) for n in range(5000)]
    data = snapshot(records, QuorumConfiguration(1, VOTERS))
    headers = [header for _, header in iterate_headers(data)]
    assert [header.is_control for header in headers] == [True, *[False] * (len(headers) - 2), True]
    assert len(headers) > 4
    assert [header.base_offset for header in headers[1:]] == [header.next_offset for header in headers[:-1]]
    assert {header.leader_epoch for header in headers} == {3}
    decoded = decode_snapshot(data)
    assert decoded.records == records
    assert decoded.quorum == QuorumConfiguration(1, VOTERS)
    assert decoded.last_contained_timestamp_ms == 77


def test_a_snapshot_of_nothing_in_a_quorum_with_fixed_voters() -> None:
    decoded = decode_snapshot(snapshot(list(EMPTY_IMAGE.to_records()), QuorumConfiguration()))
    assert (decoded.records, decoded.quorum) == ([], QuorumConfiguration())


def test_what_is_not_whole_is_not_a_snapshot() -> None:
    data = snapshot([FeatureLevelRecord(name="metadata.version", feature_level=30)], QuorumConfiguration(1, VOTERS))
    for end in range(len(data)):
        with pytest.raises(CorruptBatch):
            decode_snapshot(data[:end])
    with pytest.raises(CorruptBatch):
        decode_snapshot(data + data)
    with pytest.raises(CorruptBatch):
        decode_snapshot(data[:-10] + b"x" + data[-9:])
