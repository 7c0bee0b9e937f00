"""A log: what is deleted and cut, what is durable, and what a failing disk leaves."""

from __future__ import annotations

import errno

import pytest

from log_harness import (
    DIRECTORY,
    NOW,
    append,
    content,
    offsets,
    open_log,
    refusal,
    reopen,
    topic,
)
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.simulator.twins.disk import SimulatedDisk


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk)


# -- removing


def test_log_start_offset(log: Log, disk: SimulatedDisk) -> None:
    for _ in range(30):
        append(log, size=50, epoch=1)
    log.advance_log_start(15)
    log.advance_log_start(10)
    assert log.log_start_offset == 15
    assert list(log.epochs.entries) == [(1, 15)]
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, log.advance_log_start, 31)
    before = log.size
    removed = log.delete_old_segments(NOW, 30)
    assert removed
    assert all(disk.exists(path) and path.endswith(".deleted") for path in removed)
    assert log.size < before
    assert log.segments[0].base_offset <= 15 < log.segments[1].base_offset
    assert offsets(log)[0] == 15
    log = reopen(log, disk)
    assert not any(name.endswith(".deleted") for name in disk.list(DIRECTORY))
    assert (log.log_start_offset, log.log_end_offset) == (15, 30)


def test_the_end_offset_survives_the_deletion_of_everything(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(retention_ms=1000))
    for _ in range(30):
        append(log, size=50)
    assert log.delete_old_segments(NOW + 1000, 30) == []
    assert log.delete_old_segments(NOW + 1001, 29)  # the active one has something above the high watermark
    assert log.log_end_offset == 30
    assert len(log.segments) == 1
    assert log.delete_old_segments(NOW + 1001, 30)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (30, 30, 0)
    assert log.delete_old_segments(NOW + 5000, 30) == []
    for clean in (False, True):
        disk.crash()
        log = open_log(disk, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (30, 30)
    assert append(log).base_offset == 30


def test_retention_by_size_keeps_at_least_that_much(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(retention_bytes=2500))
    for _ in range(60):
        append(log, size=50)
    log.delete_old_segments(NOW, 60)
    assert 2500 <= log.size < 3500
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_compacted_topics_are_not_deleted_from(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(retention_bytes=0, retention_ms=0, cleanup_policy=frozenset({"compact"})))
    for _ in range(60):
        append(log, size=50)
    assert log.delete_old_segments(NOW + 10_000, 60) == []


def test_truncation(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    for number in range(30):
        append(
            log,
            1,
            size=50,
            epoch=number // 10,
            timestamp=NOW + number,
            producer_id=5,
            producer_epoch=0,
            base_sequence=number,
        )
    log.flushed(log.flush())
    log.truncate_to(40)
    assert log.log_end_offset == 30
    for end in (29, 15, 12, 1):
        log.truncate_to(end)
        assert (log.log_end_offset, log.recovery_point) == (end, end)
        assert offsets(log) == [*range(end)]
        entry = log.producers.get(5)
        assert entry is not None
        assert entry.last_sequence == end - 1
        assert log.epochs.latest == (end - 1) // 10
        assert log.active_segment.max_timestamp == NOW + end - 1
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        assert newest.offset == end - 1
    append(log, epoch=7)
    assert list(log.epochs.entries) == [(0, 0), (7, 1)]
    log = reopen(log, disk)
    assert offsets(log) == [0, 1]


def test_starting_anew(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    for _ in range(30):
        append(log, size=50)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, log.size) == (100, 100, 100, 0)
    assert append(log).base_offset == 100
    log = reopen(log, disk)
    assert offsets(log) == [100]
    log.advance_log_start(101)
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


# -- durability


def test_flush_syncs_everything_and_the_names(log: Log, disk: SimulatedDisk) -> None:
    for _ in range(30):
        append(log, size=50)
    assert log.needs_flush
    assert log.recovery_point == 0
    offset = log.flush()
    append(log)
    log.flushed(offset)
    assert (offset, log.recovery_point) == (30, 30)
    append(log)
    log.flushed(log.flush())
    active = log.active_segment
    assert [path for path in disk.unsynced() if path not in (active.index.path, active.time_index.path)] == []
    assert not log.needs_flush


def test_rolling_does_not_sync(log: Log, disk: SimulatedDisk) -> None:
    disk.fail("sync")
    disk.fail("sync_directory")
    for _ in range(30):
        append(log, size=50)
    assert len(log.segments) > 2
    refusal(ErrorCode.KAFKA_STORAGE_ERROR, log.flush)
    disk.heal()
    log.flushed(log.flush())
    assert log.recovery_point == 30


def test_a_clean_stop_of_an_idle_log_writes_nothing(log: Log, disk: SimulatedDisk) -> None:
    append(log)
    log = reopen(log, disk)
    disk.trace = []
    log = reopen(log, disk)
    assert disk.trace == []
    assert disk.open_paths() == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_failing_disk_leaves_the_log_as_it_was(log: Log, disk: SimulatedDisk, operation: str, error: int) -> None:
    for _ in range(5):
        append(log, size=50)
    disk.fail(operation, error=error)
    failures = 0
    for _ in range(20):
        try:
            append(log, size=50)
        except KafkaError as refused:
            assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
            failures += 1
    assert failures
    end = log.log_end_offset
    assert offsets(log) == [*range(end)]
    disk.heal()
    for _ in range(5):
        append(log, size=50)
    assert offsets(log) == [*range(end + 5)]
    log = reopen(log, disk)
    assert offsets(log) == [*range(end + 5)]


@pytest.mark.parametrize("can_cut", [True, False])
def test_a_half_written_batch_is_never_visible(log: Log, disk: SimulatedDisk, can_cut: bool) -> None:
    append(log, size=50)
    size = log.size
    disk.fill(leave=70)
    if not can_cut:
        disk.fail("truncate")
    refusal(ErrorCode.KAFKA_STORAGE_ERROR, append, log, size=50)
    refusal(ErrorCode.KAFKA_STORAGE_ERROR, append, log, size=50)
    assert (log.size, log.log_end_offset, offsets(log)) == (size, 1, [0])
    assert len(content(disk, "00000000000000000000.log")) == (size if can_cut else size + 70)
    disk.heal()
    append(log, size=1)  # shorter than what was left behind
    log = reopen(log, disk)
    assert offsets(log) == [0, 1]
    assert len(content(disk, "00000000000000000000.log")) == log.size


def test_index_trouble_does_not_stop_the_log(log: Log, disk: SimulatedDisk) -> None:
    disk.fail("write", "*index")
    disk.fail("create", "*index")
    disk.fail("create", "*.snapshot")
    for _ in range(30):
        append(log, size=50)
    assert len(log.segments) > 2
    assert offsets(log) == [*range(30)]
    disk.heal()
    log = reopen(log, disk)
    assert offsets(log) == [*range(30)]
    assert log.read(17, 1, 30).first_offset == 17
