"""Starting after a stop that was not clean."""

from __future__ import annotations

import logging
import random

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
    overwrite,
    reopen,
    topic,
)
from penstock.io.files import RealFileSystem
from penstock.log.log import Log
from penstock.records.builder import build_batch
from penstock.simulator.twins.disk import SimulatedDisk

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def filled(disk: SimulatedDisk, count: int, *, segment_bytes: int = 1 << 20, size: int = 10) -> Log:
    """One record a batch, of one idempotent producer, every five records another leader epoch."""
    log = open_log(disk, topic(segment_bytes=segment_bytes))
    for number in range(count):
        append(
            log,
            size=size,
            epoch=number // 5,
            timestamp=NOW + number,
            producer_id=4,
            producer_epoch=0,
            base_sequence=number,
        )
    return log


def check_whole(log: Log, end: int) -> None:
    assert log.log_end_offset == end
    assert offsets(log) == [*range(end)]
    assert [tuple(entry) for entry in log.epochs.entries] == [(n // 5, n) for n in range(0, end, 5)]
    entry = log.producers.get(4)
    assert (entry.last_sequence if entry else -1) == end - 1
    for offset in range(end):
        found = log.offset_for_timestamp(NOW + offset)
        assert found is not None
        assert found.offset == offset
        assert log.read(offset, 1, end).first_offset == offset
    append(log, epoch=100, base_sequence=end, producer_id=4, producer_epoch=0)
    assert log.log_end_offset == end + 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_tail_cut_at_every_byte(disk: SimulatedDisk, clean: bool) -> None:
    """`clean`: the stop was said to be clean, and the file shows that it was not."""
    log = filled(disk, 8)
    ends = [header.size for header in headers(log)]
    ends = [sum(ends[: number + 1]) for number in range(len(ends))]
    log.close()
    whole, index, times = content(disk, LOG), content(disk, INDEX), content(disk, TIME_INDEX)
    for size in range(len(whole)):
        for name in disk.list(DIRECTORY):
            if name.endswith((".snapshot", "checkpoint")):
                disk.remove(f"{DIRECTORY}/{name}")
        overwrite(disk, LOG, whole[:size])
        overwrite(disk, INDEX, index)
        overwrite(disk, TIME_INDEX, times)
        if clean and size in ends:
            continue  # nothing to be seen by that
        log = open_log(disk, topic(segment_bytes=1 << 20), clean=clean)
        check_whole(log, sum(end <= size for end in ends))
        log.close()


@pytest.mark.parametrize("tail", ["zeros", "noise", "old batches"])
def test_garbage_behind_the_last_good_batch(disk: SimulatedDisk, tail: str) -> None:
    log = filled(disk, 8)
    disk.crash()
    whole = content(disk, LOG)
    chance = random.Random(5)
    for size in (1, 8, 11, 12, 17, 60, 61, 62, 100, 1000):
        garbage = {"zeros": bytes(size), "noise": chance.randbytes(size), "old batches": whole[:size]}[tail]
        overwrite(disk, LOG, whole + garbage)
        log = open_log(disk, topic(segment_bytes=1 << 20))
        check_whole(log, 8)
        log.close(clean=False)


def test_every_flipped_bit_is_found(disk: SimulatedDisk) -> None:
    log = filled(disk, 4)
    sizes = [header.size for header in headers(log)]
    disk.crash()
    whole = content(disk, LOG)
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        overwrite(disk, LOG, bytes(broken))
        disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
        log = open_log(disk, topic(segment_bytes=1 << 20))
        batch = sum(sum(sizes[: number + 1]) <= position for number in range(4))
        within = position - sum(sizes[:batch])
        if 0 <= within < 8 or 12 <= within < 16:
            # Base offset and leader epoch are not under the CRC: what shows is whether they follow.
            assert log.log_end_offset >= batch
        else:
            assert log.log_end_offset == batch
        log.close(clean=False)


def test_only_what_is_after_the_recovery_point_is_read(disk: SimulatedDisk) -> None:
    log = filled(disk, 1000)
    log.flushed(log.flush())
    for _ in range(5):
        append(log, epoch=199)
    disk.crash()
    size = len(content(disk, LOG))
    log = open_log(disk, topic(segment_bytes=1 << 20), recovery_point=1000)
    assert log.log_end_offset == 1005
    assert log.recovery_point == 1000
    assert 0 < log.recovered_bytes < size * 2 // 3  # index entries that were still in memory were lost
    assert offsets(log) == [*range(1005)]
    entry = log.producers.get(4)
    assert entry is not None
    assert entry.last_sequence == 999
    assert log.epochs.latest == 199
    log.flushed(log.flush())
    assert log.recovery_point == 1005


@pytest.mark.parametrize("damage", ["missing", "short", "zeros", "shifted", "noise"])
def test_an_index_that_cannot_be_believed_is_made_again(disk: SimulatedDisk, damage: str) -> None:
    log = filled(disk, 1000)
    log.close()
    good_index, good_times = content(disk, INDEX), content(disk, TIME_INDEX)
    for name, good in ((INDEX, good_index), (TIME_INDEX, good_times)):
        if damage == "missing":
            disk.remove(f"{DIRECTORY}/{name}")
        else:
            bad = {
                "short": good[:-3],
                "zeros": good[:-80] + bytes(80),
                "shifted": good[4:] + good[:4],
                "noise": random.Random(1).randbytes(len(good)),
            }[damage]
            overwrite(disk, name, bad)
    log = open_log(disk, topic(segment_bytes=1 << 20), recovery_point=900)
    assert offsets(log) == [*range(1000)]
    assert log.read(555, 1, 1000).first_offset == 555
    log.close()
    assert content(disk, INDEX) == good_index
    assert content(disk, TIME_INDEX) == good_times


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_indexes_of_closed_segments_are_made_again(disk: SimulatedDisk, suffix: str, clean: bool) -> None:
    log = filled(disk, 100, segment_bytes=1000)
    assert len(log.segments) > 5
    log.close()
    closed = [name for name in disk.list(DIRECTORY) if name < f"{log.active_segment.base_offset:020d}"]
    before = {name: content(disk, name) for name in closed if name.endswith(("index", ".log"))}
    for segment in log.segments[:-1:2]:
        disk.remove(f"{DIRECTORY}/{segment.base_offset:020d}{suffix}")
    log = open_log(disk, topic(segment_bytes=1000), clean=clean, recovery_point=100)
    assert {name: content(disk, name) for name in before} == before
    check_whole(log, 100)


def test_a_recovery_point_beyond_the_end(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    """The log lost what was said to be synced: nothing is taken for granted then, and the last segment is all read."""
    log = filled(disk, 100)
    log.close()
    size = log.size
    log = open_log(disk, topic(segment_bytes=1 << 20), recovery_point=5000)
    assert log.recovered_bytes >= size
    assert "below its recovery point" in caplog.text
    check_whole(log, 100)
    assert log.recovery_point == 100


def test_no_recovery_point_means_everything_is_checked(disk: SimulatedDisk) -> None:
    log = filled(disk, 100, segment_bytes=1000)
    disk.crash()
    log = open_log(disk, topic(segment_bytes=1000))
    assert log.recovered_bytes == log.size
    check_whole(log, 100)


def test_good_batches_behind_a_bad_one_are_cut_and_that_is_an_error(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(disk, 20)
    size = log.size // 20
    disk.crash()
    disk.corrupt(f"{DIRECTORY}/{LOG}", sum(header.size for header in headers(open_log(disk))[:7]) + 70)
    caplog.clear()
    log = open_log(disk, topic(segment_bytes=1 << 20))
    check_whole(log, 7)
    (record,) = [record for record in caplog.records if "is cut at" in record.message]
    assert record.levelno == logging.ERROR
    assert LOG in record.message
    assert "next offset 7" in record.message
    assert int(record.message.split(" bytes dropped")[0].split()[-1]) > 12 * size


def test_a_torn_tail_is_no_error(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    filled(disk, 20)
    disk.crash()
    overwrite(disk, LOG, content(disk, LOG)[:-5])
    open_log(disk, topic(segment_bytes=1 << 20))
    (record,) = [record for record in caplog.records if "is cut at" in record.message]
    assert record.levelno == logging.WARNING


def test_segments_behind_a_bad_batch_go_too(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(disk, 100, segment_bytes=1000)
    third = log.segments[2]
    disk.crash()
    disk.corrupt(third.path, third.size - 1)
    log = open_log(disk, topic(segment_bytes=1000))
    end = log.log_end_offset
    assert third.base_offset <= end < log.log_end_offset + 1 <= third.base_offset + 20
    assert len(log.segments) == 3
    assert [name for name in disk.list(DIRECTORY) if name > f"{end:020d}" and name[0].isdigit()] == []
    assert any(record.levelno == logging.ERROR and "later segments" in record.message for record in caplog.records)
    check_whole(log, end)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_hole_between_segments_ends_the_log(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    settings = topic(segment_bytes=1000, cleanup_policy=frozenset({policy}))
    log = filled(disk, 100, segment_bytes=1000)
    second = log.segments[1]
    disk.crash()
    sizes = [header.size for header in headers(open_log(disk, settings), second.base_offset)]
    overwrite(disk, f"{second.base_offset:020d}.log", content(disk, f"{second.base_offset:020d}.log")[: sum(sizes[:3])])
    log = open_log(disk, settings)
    check_whole(log, second.base_offset + 3)
    assert "set aside" in caplog.text
    assert any(name.endswith(".log.stray") for name in disk.list(DIRECTORY))


@pytest.mark.parametrize("recovery_point", [None, 100])
def test_holes_are_normal_in_compacted_topics_from_elsewhere_and_in_what_was_synced(
    disk: SimulatedDisk, recovery_point: int | None
) -> None:
    log = filled(disk, 100, segment_bytes=1000)
    second, third = log.segments[1:3]
    disk.crash()
    disk.remove(second.path)
    compacted = topic(segment_bytes=1000, cleanup_policy=frozenset({"compact"}))
    log = open_log(disk, compacted, recovery_point=recovery_point)
    assert log.log_end_offset == 100
    assert offsets(log) == [*range(second.base_offset), *range(third.base_offset, 100)]


def test_the_start_offset_holds_whatever_was_lost(disk: SimulatedDisk) -> None:
    log = filled(disk, 20)
    disk.crash()
    overwrite(disk, LOG, content(disk, LOG)[:300])
    log = open_log(disk, log_start_offset=15)
    assert (log.log_start_offset, log.log_end_offset) == (15, 15)
    assert append(log).base_offset == 15
    assert log.producers.get(4) is None
    assert offsets(reopen(log, disk)) == [15]


def test_a_malformed_epoch_checkpoint_costs_a_scan(disk: SimulatedDisk) -> None:
    log = filled(disk, 20)
    log.close()
    overwrite(disk, "leader-epoch-checkpoint", b"0\n7\n")
    log = open_log(disk, topic(segment_bytes=1 << 20), clean=True, recovery_point=20)
    assert log.recovered_bytes > 0
    check_whole(log, 20)


@pytest.mark.parametrize(("cut", "epoch"), [(0, 0), (0, 3), (10, 1), (10, 2), (10, 7)])
def test_epochs_that_were_cut_do_not_come_back(disk: SimulatedDisk, cut: int, epoch: int) -> None:
    """The checkpoint still has them if the process ends before the next flush. What a leader that was elected uncleanly
    has in their place may be of an older epoch."""
    log = open_log(disk, topic(segment_bytes=1 << 20))
    for number in range(20):
        append(log, epoch=1 if number < 10 else 5)
    log.flushed(log.flush())
    log.truncate_to(cut)
    for offset in range(cut, cut + 5):
        log.append_preassigned(build_batch([(NOW, None, b"a", ())], base_offset=offset, leader_epoch=epoch))
    entries = list(log.epochs.entries)
    disk.crash()
    assert list(open_log(disk, topic(segment_bytes=1 << 20), recovery_point=cut).epochs.entries) == entries


def test_damaged_snapshots_cost_a_scan(disk: SimulatedDisk) -> None:
    log = filled(disk, 100, segment_bytes=1000)
    log.close()
    for name in disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.corrupt(f"{DIRECTORY}/{name}", 9)
    log = open_log(disk, topic(segment_bytes=1000), recovery_point=100)
    check_whole(log, 100)


def test_leftovers_are_removed(disk: SimulatedDisk) -> None:
    log = filled(disk, 20)
    log.close()
    for name in ("00000000000000000000.log.deleted", "00000000000000000099.index", "00000000000000000050.log.cleaned"):
        overwrite(disk, name, b"x")
    log = open_log(disk, topic(segment_bytes=1 << 20), clean=True, recovery_point=20)
    assert [name for name in disk.list(DIRECTORY) if name[:20] != f"{0:020d}" and name[0].isdigit()] == [
        f"{20:020d}.snapshot"
    ]
    check_whole(log, 20)


def test_a_clean_start_reads_almost_nothing(disk: SimulatedDisk) -> None:
    log = filled(disk, 1000)
    log.close()
    log = open_log(disk, topic(segment_bytes=1 << 20), clean=True, recovery_point=1000)
    assert (log.recovered_bytes, log.recovery_point, log.log_end_offset) == (0, 1000, 1000)
    check_whole(log, 1000)


def test_on_a_real_disk(tmp_path: object) -> None:
    files = RealFileSystem()

    def open_real(clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            files,
            f"{tmp_path}/events-0",
            PARTITION,
            topic(segment_bytes=10_000),
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=0,
            now_ms=NOW,
            topic_id=TOPIC_ID,
        )

    log = open_real(False)
    for number in range(300):
        append(log, size=number % 100)
        if number == 200:
            log.flushed(log.flush())
    assert log.read_cached(17, 1000, 300) is not None
    log.close(clean=False)
    log = open_real(False, 201)
    assert offsets(log) == [*range(300)]
    log.close()
    log = open_real(True, 300)
    assert offsets(log) == [*range(300)]
    for path in log.delete_old_segments(NOW + (1 << 40), 300):
        files.remove(path)
    assert (log.log_start_offset, log.size) == (300, 0)
    log.close()


@pytest.mark.parametrize("number", [2, 5])
def test_an_offset_that_has_rotted_is_found_by_what_follows(disk: SimulatedDisk, number: int) -> None:
    """No checksum covers it, and compaction may leave offsets out: it is the next batch that gives it away."""
    log = filled(disk, 8)
    position = sum(header.size for header in headers(log)[:number])
    disk.crash()
    disk.corrupt(f"{DIRECTORY}/{LOG}", position + 7, 0x40)
    check_whole(open_log(disk), number)
