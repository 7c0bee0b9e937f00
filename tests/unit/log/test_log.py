from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from log_harness import DIRECTORY, NOW, PARTITION, TOPIC_ID, append, content, headers, offsets, open_log, reopen, topic
from penstock.log.log import Log, Slice
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import CorruptBatch, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.simulator.twins.disk import SimulatedDisk


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk)


def refusal(code: ErrorCode, call: Callable[..., object], *arguments: object, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code
    return caught.value


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
