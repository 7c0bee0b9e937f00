"""ListOffsets with every special timestamp in every version, and DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.records.builder import build_batch
from wire import (
    TOPIC_RESOURCE,
    Wire,
    alter_configs,
    batch,
    create_topic,
    end_offset,
    fetch,
    list_offset,
    now_ms,
    produce,
    read_all,
)

Names = Callable[[str], str]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING_UPLOAD: 11}


@pytest.fixture
def topic(wire: Wire, unique_topic: Names) -> str:
    name = unique_topic("offsets")
    create_topic(wire, name)
    return name


def delete_to(wire: Wire, topic: str, offset: int) -> tuple[ErrorCode, int]:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])],
        timeout_ms=5000,
    )
    (result,) = wire.ask(request).topics[0].partitions
    return ErrorCode(result.error_code), result.low_watermark


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps(wire: Wire, topic: str, version: int) -> None:
    base = now_ms() - 100_000
    produce(wire, topic, build_batch([(base + delta, None, b"x", ()) for delta in (10, 50, 20)]))
    produce(wire, topic, build_batch([(base + delta, None, b"x", ()) for delta in (30, 50)]))
    assert delete_to(wire, topic, 1) == (ErrorCode.NONE, 1)
    expected = {
        LATEST: (5, -1),
        EARLIEST: (1, -1),
        MAX_TIMESTAMP: (1, base + 50),  # the first of those that have it
        EARLIEST_LOCAL: (1, -1),
        LATEST_TIERED: (-1, -1),
        PENDING_UPLOAD: (-1, -1),
    }
    for timestamp, (offset, stamp) in expected.items():
        answer = list_offset(wire, topic, timestamp, version=version)
        if version < SINCE[timestamp]:
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION, timestamp
            assert (answer.offset, answer.timestamp) == (-1, -1)
        else:
            assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, offset, stamp), timestamp
            if version < 4:
                assert answer.leader_epoch == -1
            elif offset >= 0:
                assert answer.leader_epoch >= 0
    assert list_offset(wire, topic, -7, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_first_record_at_or_after_a_time(wire: Wire, topic: str) -> None:
    base = now_ms() - 100_000
    for deltas in ((10, 50, 20), (30, 60)):
        produce(wire, topic, build_batch([(base + delta, None, b"x", ()) for delta in deltas]))

    def at(delta: int) -> tuple[int, int]:
        answer = list_offset(wire, topic, base + delta)
        assert answer.error_code == ErrorCode.NONE
        return answer.offset, answer.timestamp - base if answer.timestamp >= 0 else -1

    assert at(0) == (0, 10)
    assert at(10) == (0, 10)
    assert at(11) == (1, 50)
    assert at(50) == (1, 50)
    assert at(51) == (4, 60)
    assert at(61) == (-1, -1)
    assert list_offset(wire, topic, 0).offset == 0


def test_an_empty_partition(wire: Wire, topic: str) -> None:
    assert list_offset(wire, topic, LATEST).offset == 0
    assert list_offset(wire, topic, EARLIEST).offset == 0
    for timestamp in (MAX_TIMESTAMP, 0, now_ms()):
        answer = list_offset(wire, topic, timestamp)
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, -1, -1)


def test_under_read_committed_the_end_is_the_last_stable_offset(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a"))
    assert list_offset(wire, topic, LATEST, isolation_level=1).offset == 1
    assert list_offset(wire, topic, LATEST, isolation_level=0).offset == 1


def test_fencing_and_unknown_partitions(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a"))
    current = list_offset(wire, topic, LATEST).leader_epoch
    assert list_offset(wire, topic, LATEST, current_leader_epoch=current).error_code == ErrorCode.NONE
    newer = list_offset(wire, topic, LATEST, current_leader_epoch=current + 1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert list_offset(wire, "absent", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_named_twice_is_refused(wire: Wire, topic: str) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * 2
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=twice)])
    answers = wire.ask(request).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * len(answers)


# -- DeleteRecords


def test_records_can_be_deleted_up_to_the_high_watermark(wire: Wire, topic: str) -> None:
    for letter in "abcd":
        produce(wire, topic, batch(letter))
    assert delete_to(wire, topic, 2) == (ErrorCode.NONE, 2)
    assert delete_to(wire, topic, 1) == (ErrorCode.NONE, 2)  # it never goes back
    assert delete_to(wire, topic, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_to(wire, topic, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert [record.value for record in read_all(wire, topic, offset=2)] == [b"c", b"d"]
    assert delete_to(wire, topic, -1) == (ErrorCode.NONE, 4)
    assert list_offset(wire, topic, EARLIEST).offset == 4
    assert (fetch(wire, topic, 4).error_code, fetch(wire, topic, 3).error_code) == (
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    )
    assert produce(wire, topic, batch("e")).base_offset == 4
    assert end_offset(wire, topic) == 5


def test_a_compacted_topic_refuses(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch("a", key=b"k"))
    assert alter_configs(wire, TOPIC_RESOURCE, topic, {"cleanup.policy": "compact"}) is ErrorCode.NONE
    assert delete_to(wire, topic, 1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert alter_configs(wire, TOPIC_RESOURCE, topic, {"cleanup.policy": "compact,delete"}) is ErrorCode.NONE
    assert delete_to(wire, topic, 1) == (ErrorCode.NONE, 1)


def test_deleting_from_nowhere(wire: Wire) -> None:
    assert delete_to(wire, "absent", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
