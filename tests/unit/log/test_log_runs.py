"""Batches appended together leave the log as if they had been appended one by one."""

from __future__ import annotations

import pytest

from log_harness import DIRECTORY, NOW, append, content, headers, offsets, open_log, topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import BatchHeader, read_header
from penstock.records.builder import build_batch
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.disk import SimulatedDisk

Batches = list[tuple[memoryview, BatchHeader]]


def disk_with_log() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def wide() -> TopicSettings:
    return topic(segment_bytes=1 << 20, index_interval_bytes=100)


def batches(*counts: int, timestamp: int = NOW) -> Batches:
    made = []
    for index, count in enumerate(counts):
        # Timestamps go up and down: the time index keeps the largest so far.
        data = build_batch([(timestamp + index % 3, b"key", b"v" * (10 + index), ())] * count)
        made.append((memoryview(data), read_header(data)))
    return made


def test_a_run_leaves_the_files_that_single_appends_leave() -> None:
    one_by_one, together = disk_with_log(), disk_with_log()
    single, run = open_log(one_by_one, wide()), open_log(together, wide())
    for log in (single, run):
        append(log)
    for _ in range(5):
        for batch, header in batches(1, 3, 1, 7, 2):
            single.append_as_leader(batch, header, 0, NOW)
        assert run.append_run(batches(1, 3, 1, 7, 2), 0, NOW) == single.log_end_offset - 14
    assert run.log_end_offset == single.log_end_offset == 71
    assert offsets(run) == offsets(single)
    for log in (single, run):
        log.close()
    assert one_by_one.list(DIRECTORY) == together.list(DIRECTORY)
    for name in one_by_one.list(DIRECTORY):
        assert content(one_by_one, name) == content(together, name), name


@pytest.mark.parametrize(
    ("first", "epoch", "made"),
    [
        pytest.param(False, 0, batches(1, 1), id="the segment is empty"),
        pytest.param(True, 1, batches(1, 1), id="another leader epoch"),
        pytest.param(True, 0, batches(1, 20, 20), id="the segment has to roll"),
        pytest.param(True, 0, batches(1, 1, timestamp=NOW * 10_000), id="the segment is too old"),
    ],
)
def test_what_may_change_something_between_batches_is_left_to_single_appends(
    first: bool, epoch: int, made: Batches
) -> None:
    log = open_log(disk_with_log(), topic(segment_bytes=1000))
    if first:
        append(log)
    end = log.log_end_offset
    assert log.append_run(made, epoch, NOW) is None
    assert log.log_end_offset == end
    append(log, epoch=epoch)
    assert len(headers(log)) == 1 + first


def test_a_run_that_cannot_be_written_leaves_nothing() -> None:
    disk = disk_with_log()
    log = open_log(disk, wide())
    append(log)
    disk.fill(leave=100)
    with pytest.raises(KafkaError) as refused:
        log.append_run(batches(1, 3, 5), 0, NOW)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    disk.heal()
    assert log.append_run(batches(1, 3, 5), 0, NOW) == 1
    assert offsets(log) == [0, 1, 2, 5]
    log.close(clean=False)
    assert offsets(open_log(disk, wide())) == [0, 1, 2, 5]
