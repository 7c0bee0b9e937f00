"""A log: reading by offset, searching by time, and the transactions that readers see."""

from __future__ import annotations

from collections.abc import Callable

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
from penstock.log.log import Log, Slice
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import CorruptBatch, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.simulator.twins.disk import SimulatedDisk, SimulatedFile


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk)


# -- reading


@pytest.mark.parametrize("read", [Log.read_cached, Log.read])
def test_reading_returns_whole_batches(disk: SimulatedDisk, read: Callable[..., Slice | None]) -> None:
    log = open_log(disk, topic(segment_bytes=1 << 20))
    for number in range(50):
        append(log, 1 + number % 3, size=10 * (number % 7))
    bases = offsets(log)
    for number, base in enumerate(bases):
        for max_bytes in (1, 100, 300, 1000):
            piece = read(log, base, max_bytes, log.log_end_offset)
            assert piece is not None
            found = [header.base_offset for _, header in iterate_headers(piece.data)]
            assert found == bases[number : number + len(found)]
            assert piece.first_offset == base
            assert len(piece.data) <= max_bytes or len(found) == 1
            if len(piece.data) < max_bytes and number + len(found) < len(bases):
                (_, following), *_ = iterate_headers(log.read(bases[number + len(found)], 1, 1 << 40).data)
                assert len(piece.data) + following.size > max_bytes  # as much as fits


def test_reading_within_a_batch_returns_all_of_it(log: Log) -> None:
    append(log, 5)
    append(log, 5)
    assert log.read(7, 1 << 20, 10).first_offset == 5


def test_nothing_at_or_above_the_limit_is_read(log: Log) -> None:
    for _ in range(30):
        append(log, 2, size=50)
    for limit in range(0, 60, 2):
        found = []
        offset = 0
        while offset < limit:
            piece = log.read_cached(offset, 400, limit)
            assert piece is not None
            found += [header.base_offset for _, header in iterate_headers(piece.data)]
            offset = found[-1] + 2
        assert found == [*range(0, limit, 2)]
        assert log.read(limit, 400, limit).data == b""


def test_a_limit_within_a_batch_excludes_it(log: Log) -> None:
    append(log, 4)
    append(log, 4)
    piece = log.read(0, 1 << 20, 6)
    assert [header.base_offset for _, header in iterate_headers(piece.data)] == [0]
    assert log.read(4, 1 << 20, 6).data == b""


def test_a_batch_larger_than_the_limit_comes_only_if_asked_for(log: Log) -> None:
    append(log, 1, size=500)
    assert log.read(0, 100, 1, at_least_one=False).data == b""
    assert len(log.read(0, 100, 1, at_least_one=True).data) > 500
    assert log.read(0, 0, 1, at_least_one=False).data == b""


def test_out_of_range(log: Log) -> None:
    append(log, 5)
    log.advance_log_start(2)
    assert log.read(5, 100, 5).data == b""
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, log.read, 6, 100, 5)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, log.read, 1, 100, 5)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, log.read, -1, 100, 5)
    assert log.read(2, 100, 5).first_offset == 0


def test_cold_data_is_not_waited_for_on_the_loop(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    for _ in range(30):
        append(log, size=50)
    log = reopen(log, disk)
    disk.cold = lambda path, position, size: True
    assert log.read_cached(0, 500, log.log_end_offset) is None
    assert log.read(0, 500, log.log_end_offset).first_offset == 0
    append(log)
    end = log.log_end_offset
    assert log.read_cached(end - 1, 500, end) is None  # where in the file? the index is cold, too
    disk.cold = None
    assert log.read_cached(end - 1, 500, end) is not None
    disk.cold = lambda path, position, size: True
    append(log)
    piece = log.read_cached(end, 500, end + 1)  # just written, and its position is known
    assert piece is not None
    assert piece.first_offset == end


def test_old_data_is_checked_once_and_never_served_if_corrupt(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(disk, topic(segment_bytes=1 << 20))
    for _ in range(10):
        append(log, size=100)
    size = log.size // 10
    log = reopen(log, disk)
    append(log, size=100)
    disk.corrupt(f"{DIRECTORY}/00000000000000000000.log", 5 * size + 80)
    for read in (log.read_cached, log.read):
        found = read(0, 1 << 20, 11)
        assert found is not None and len(found.data) == 5 * size  # up to it
        with pytest.raises(CorruptBatch):
            read(5, 1 << 20, 11)
    assert f"position {5 * size}" in caplog.text
    assert "00000000000000000000.log" in caplog.text
    assert len(log.read(0, 5 * size, 11).data) == 5 * size
    assert log.read(6, 1 << 20, 11).first_offset == 6
    refusal(ErrorCode.CORRUPT_MESSAGE, log.read, 5, 1, 11)
    # What has been checked, and is in the page cache, is not checked again, unless somebody doubts it.
    disk.corrupt(f"{DIRECTORY}/00000000000000000000.log", 80)
    assert log.read_cached(0, 1, 11) is not None
    refusal(ErrorCode.CORRUPT_MESSAGE, lambda: log.read_cached(0, 1, 11, doubted=True))
    refusal(ErrorCode.CORRUPT_MESSAGE, log.read, 0, 1, 11)


def test_a_large_read_that_waits_for_the_disk_reads_ahead(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        SimulatedFile, "read_ahead", lambda self, size, position: ahead.append((self.path, size, position))
    )
    log = open_log(disk, topic(segment_bytes=1 << 20))
    for _ in range(20):
        append(log, 1, size=20_000)
    end = log.log_end_offset
    small = log.read(0, 30_000, end)
    assert small.next_offset == 1 and ahead == []
    large = log.read(0, 100_000, end)
    assert ahead == [(f"{DIRECTORY}/{0:020}.log", len(large.data), len(large.data))]
    assert log.read_cached(0, 100_000, end) is not None and len(ahead) == 1


def test_a_shortened_file_is_noticed(log: Log, disk: SimulatedDisk) -> None:
    for _ in range(5):
        append(log, size=100)
    file = disk.open(f"{DIRECTORY}/00000000000000000000.log")
    file.truncate(300)
    refusal(ErrorCode.KAFKA_STORAGE_ERROR, log.read_cached, 0, 1 << 20, 5)
    refusal(ErrorCode.CORRUPT_MESSAGE, log.read, 0, 1 << 20, 5)


def test_a_bad_index_of_a_closed_segment_is_made_again(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(disk)
    for _ in range(30):
        append(log, size=50)
    assert len(log.segments) > 2
    log.close()
    path = f"{DIRECTORY}/00000000000000000000.index"
    good = content(disk, "00000000000000000000.index")
    for position in range(0, len(good), 8):
        disk.corrupt(path, position + 7, 0x15)  # positions that are no batch's
    log = open_log(disk, clean=True, recovery_point=30)
    assert log.read_cached(6, 100, 30) is None
    assert log.read(6, 100, 30).first_offset == 6
    assert content(disk, "00000000000000000000.index") == good
    assert "made again" in caplog.text
    assert offsets(log) == [*range(30)]


def test_corruption_in_a_closed_segment_hides_nothing_else(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    for _ in range(30):
        append(log, size=50)
    first = log.segments[0]
    count = log.segments[1].base_offset
    log = reopen(log, disk)
    index = content(disk, "00000000000000000000.index")
    bad = 4
    disk.corrupt(first.path, bad * (first.size // count) + 16, 0xFF)  # the magic
    readable = []
    for offset in range(30):
        for _ in range(2):
            try:
                assert log.read(offset, 1, 30).first_offset == offset
                readable.append(offset)
            except KafkaError as error:
                assert error.code == ErrorCode.CORRUPT_MESSAGE
    assert bad not in readable
    assert {0, 1, 2, 3, count - 1, *range(count, 30)} <= set(readable)
    assert content(disk, "00000000000000000000.index") == index


# -- timestamps


def test_finding_offsets_by_time(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    stamps = [10, 20, 15, 40, 30, 50, 45, 60] * 4
    for number, stamp in enumerate(stamps):
        append(log, 1, timestamp=1000 * (number // 8) + stamp, size=60)
    assert len(log.segments) > 2
    for _ in range(2):
        for wanted in (0, 10, 11, 21, 41, 61, 1010, 1059, 3060):
            expected = next(number for number, stamp in enumerate(stamps) if 1000 * (number // 8) + stamp >= wanted)
            found = log.offset_for_timestamp(wanted)
            assert found is not None
            assert (found.offset, found.leader_epoch) == (expected, 0)
        assert log.offset_for_timestamp(3061) is None
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        assert (newest.offset, newest.timestamp) == (31, 3060)
        log = reopen(log, disk)
    log.advance_log_start(5)
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 5


def test_finding_a_record_within_a_batch(log: Log) -> None:
    data = build_batch([(10, None, b"a", ()), (30, None, b"b", ()), (20, None, b"c", ())], codec=1)
    log.append_as_leader(data, read_header(data), 0, NOW)
    found = log.offset_for_timestamp(15)
    assert found is not None
    assert (found.offset, found.timestamp) == (1, 30)
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset == 1


def test_an_empty_log_has_no_times(log: Log) -> None:
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


# -- transactions


def end_transaction(log: Log, *, committed: bool, producer_id: int = 1) -> None:
    marker = build_transaction_marker(
        producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp=NOW
    )
    log.append_as_leader(marker, read_header(marker), 0, NOW)


def test_aborted_transactions(log: Log, disk: SimulatedDisk) -> None:
    def write(producer_id: int, sequence: int) -> None:
        append(log, 2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)

    write(1, 0)  # 0-1
    write(2, 0)  # 2-3
    write(1, 2)  # 4-5
    assert log.last_stable_offset(6) == 0
    end_transaction(log, committed=False)  # 6
    assert log.last_stable_offset(7) == 2
    end_transaction(log, committed=True, producer_id=2)  # 7
    assert log.last_stable_offset(8) == 8
    for _ in range(20):
        append(log, size=50)
    assert len(log.segments) > 1
    write(1, 4)  # 28-29
    end_transaction(log, committed=False)  # 30
    expected = [(1, 0, 6, 2), (1, 28, 30, 31)]
    for way in ("running", "clean", "killed"):
        assert log.aborted_transactions(0, 31) == expected, way
        assert log.aborted_transactions(0, 2) == expected[:1]
        assert log.aborted_transactions(7, 31) == expected[1:]
        assert log.aborted_transactions(7, 28) == []
        assert log.last_stable_offset(31) == 31
        if way == "running":
            log = reopen(log, disk)
        else:
            disk.crash()
            log = open_log(disk)
    write(3, 0)
    log = reopen(log, disk)
    assert log.last_stable_offset(33) == 31


def test_a_transaction_begins_only_with_a_verification(log: Log) -> None:
    def first_batch() -> bytearray:
        records = [(NOW, None, b"v", ())]
        return build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)

    data = first_batch()
    refusal(ErrorCode.INVALID_TXN_STATE, log.append_as_leader, data, read_header(data), 0, NOW)
    void = log.producers.begin_verification(read_header(data), NOW)
    end_transaction(log, committed=False)
    refusal(ErrorCode.INVALID_TXN_STATE, log.append_as_leader, data, read_header(data), 0, NOW, verification=void)
    valid = log.producers.begin_verification(read_header(data), NOW)
    assert log.append_as_leader(data, read_header(data), 0, NOW, verification=valid).base_offset == 1
    assert log.last_stable_offset(2) == 1


def test_a_control_batch_with_a_producer_that_is_no_marker(log: Log) -> None:
    data = build_batch([(NOW, b"\0\0\0\x05", b"", ())], producer_id=1, producer_epoch=0, control=True)
    refusal(ErrorCode.INVALID_RECORD, log.append_as_leader, data, read_header(data), 0, NOW)
    assert log.log_end_offset == 0
