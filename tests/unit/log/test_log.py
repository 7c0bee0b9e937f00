"""A log: appending, rolling, and the topic that its directory belongs to."""

from __future__ import annotations

import pytest

from log_harness import (
    DIRECTORY,
    NOW,
    PARTITION,
    TOPIC_ID,
    append,
    content,
    headers,
    offsets,
    open_log,
    refusal,
    reopen,
    topic,
)
from penstock.log.log import Log
from penstock.model.errors import ErrorCode
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.simulator.twins.disk import SimulatedDisk


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk)


# -- appending


def test_offsets_and_epoch_are_patched_in(log: Log) -> None:
    assert append(log, 3, epoch=5) == (0, 2, -1, 0, False)
    assert append(log, 2, epoch=5) == (3, 4, -1, 0, False)
    assert log.log_end_offset == 5
    assert [(header.base_offset, header.leader_epoch) for header in headers(log)] == [(0, 5), (3, 5)]
    assert list(log.epochs.entries) == [(5, 0)]


def test_the_time_of_appending_is_answered_if_the_batch_was_stamped(log: Log) -> None:
    data = build_batch([(NOW, None, b"v", ())], log_append_time=NOW + 5)
    assert log.append_as_leader(data, read_header(data), 0, NOW + 5).log_append_time_ms == NOW + 5


def test_files_and_names(log: Log, disk: SimulatedDisk) -> None:
    append(log, 3, size=200)
    append(log, 1, size=200)
    assert disk.list(DIRECTORY) == ["00000000000000000000.log", "partition.metadata"]
    append(log, 1, size=200)  # does not fit any more
    log.close()
    assert disk.list(DIRECTORY) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000004.index",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "00000000000000000004.timeindex",
        "00000000000000000005.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert content(disk, "leader-epoch-checkpoint") == b"0\n1\n0 0\n"


def test_index_entries_are_those_of_kafka(disk: SimulatedDisk) -> None:
    """One entry each time more than the interval has accumulated: last offset of the batch, position of the batch."""
    log = open_log(disk, topic(segment_bytes=10_000, index_interval_bytes=200))
    sizes: list[int] = []
    for number in range(6):
        append(log, 2, timestamp=NOW + 10 * (3 - abs(3 - number)))  # rises, then falls
        sizes.append(log.size - sum(sizes))
    log.close()
    size = sizes[0]
    assert set(sizes) == {size}
    assert 100 < size < 200
    relative = [5, 9]  # before the third batch 2 x size > 200 have accumulated, before the fifth again
    positions = [2 * size, 4 * size]
    expected = b"".join(n.to_bytes(4, "big") for pair in zip(relative, positions, strict=True) for n in pair)
    assert content(disk, "00000000000000000000.index") == expected
    # The largest timestamp so far and the last offset of its batch, with the first entry and at the end.
    times = [(NOW + 20, 5), (NOW + 30, 7)]
    expected = b"".join(timestamp.to_bytes(8, "big") + offset.to_bytes(4, "big") for timestamp, offset in times)
    assert content(disk, "00000000000000000000.timeindex") == expected


def test_a_batch_larger_than_a_segment(log: Log) -> None:
    refusal(ErrorCode.RECORD_LIST_TOO_LARGE, append, log, 1, size=2000)
    assert log.log_end_offset == 0


def test_duplicates_get_the_first_offset(log: Log, disk: SimulatedDisk) -> None:
    identity = {"producer_id": 9, "producer_epoch": 0}
    append(log, 2, base_sequence=0, **identity)
    append(log, 1)
    append(log, 2, base_sequence=2, **identity)
    size = log.size
    assert append(log, 2, base_sequence=2, **identity) == (3, 4, -1, 0, True)
    assert append(log, 2, base_sequence=0, **identity) == (0, 1, -1, 0, True)
    assert (log.size, log.log_end_offset) == (size, 5)
    log = reopen(log, disk)  # a snapshot has the last batch only
    assert append(log, 2, base_sequence=2, **identity) == (3, 4, -1, 0, True)
    refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append, log, 2, base_sequence=0, **identity)
    assert append(log, 2, base_sequence=4, **identity).base_offset == 5


def test_batches_of_a_leader_are_appended_as_they_are(log: Log, disk: SimulatedDisk) -> None:
    first = build_batch(
        [(NOW, None, b"a", ())] * 3, base_offset=10, leader_epoch=2, producer_id=1, producer_epoch=0, base_sequence=0
    )
    second = build_batch([(NOW, None, b"b", ())], base_offset=20, leader_epoch=4)
    log.append_preassigned(first + second)
    assert (log.log_end_offset, offsets(log)) == (21, [10, 20])
    assert list(log.epochs.entries) == [(2, 10), (4, 20)]
    assert log.producers.get(1) is not None
    refusal(ErrorCode.CORRUPT_MESSAGE, log.append_preassigned, second)
    third = build_batch([(NOW, None, b"b", ())], base_offset=21, leader_epoch=4)
    third[-1] ^= 1
    refusal(ErrorCode.CORRUPT_MESSAGE, log.append_preassigned, third)
    third[-1] ^= 1
    refusal(ErrorCode.CORRUPT_MESSAGE, log.append_preassigned, third[:-1])
    refusal(ErrorCode.CORRUPT_MESSAGE, log.append_preassigned, third[:20])
    assert log.log_end_offset == 21
    # Far away: offsets are stored relative to the base of their segment.
    log.append_preassigned(build_batch([(NOW, None, b"c", ())], base_offset=21 + (1 << 31), leader_epoch=4))
    assert offsets(log) == [10, 20, 21 + (1 << 31)]
    assert len(log.segments) == 2
    log = reopen(log, disk)
    assert offsets(log) == [10, 20, 21 + (1 << 31)]


# -- rolling


def test_rolling_by_size(log: Log) -> None:
    for _ in range(20):
        append(log, size=100)
    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert offsets(log) == [*range(20)]


def test_rolling_by_time_goes_by_timestamps(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_ms=1000))
    append(log, timestamp=5000)
    append(log, timestamp=6000)
    append(log, timestamp=100)  # older than the first: no reason to roll
    assert len(log.segments) == 1
    append(log, timestamp=6001)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    log = reopen(log, disk)
    append(log, timestamp=7001)
    assert len(log.segments) == 2
    append(log, timestamp=7002)
    assert len(log.segments) == 3


def test_rolling_by_time_without_timestamps_goes_by_the_clock(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_ms=1000))
    append(log, timestamp=-1, now_ms=NOW)
    append(log, timestamp=-1, now_ms=NOW + 1000)
    assert len(log.segments) == 1
    append(log, timestamp=-1, now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier_and_always_alike(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_bytes=1 << 20, segment_ms=1000, segment_jitter_ms=900))
    append(log, timestamp=0)
    rolled_at = next(age for age in range(1, 1002) if append(log, timestamp=age) and len(log.segments) > 1)
    assert 100 < rolled_at < 1001


def test_rolling_when_the_index_is_full(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=60))
    for number in range(12):
        append(log, timestamp=NOW + number)
    assert len(log.segments) == 3  # the time index has room for five, one of them for the end
    assert offsets(log) == [*range(12)]


def test_settings_can_change(log: Log) -> None:
    log.update_settings(topic(segment_bytes=150))
    append(log)
    append(log)
    append(log)
    assert len(log.segments) == 3


# -- identity


def test_a_directory_of_another_topic_is_refused(log: Log, disk: SimulatedDisk) -> None:
    log.close()
    refusal(
        ErrorCode.INCONSISTENT_TOPIC_ID,
        Log.open,
        disk,
        DIRECTORY,
        PARTITION,
        topic(),
        clean_shutdown=True,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
        topic_id=bytes(16),
    )
    assert content(disk, "partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    log = Log.open(
        disk, DIRECTORY, PARTITION, topic(), clean_shutdown=True, recovery_point=0, log_start_offset=0, now_ms=NOW
    )
    assert log.topic_id == TOPIC_ID
