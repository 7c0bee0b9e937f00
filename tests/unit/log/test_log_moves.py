"""A log that goes on in another directory, edge by edge."""

from __future__ import annotations

import threading

import pytest

from log_harness import NOW, TOPIC_ID, append, headers, offsets, topic
from penstock.log.directory import LogDirectory, future_directory
from penstock.log.future import FutureLog
from penstock.log.log import Log
from penstock.model.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.simulator.twins.disk import SimulatedDisk

PARTITION = TopicPartition("events", 0)


class Moving:
    def __init__(self, **settings: int) -> None:
        self.disk = SimulatedDisk()
        self.source, self.target = LogDirectory(self.disk, "/a"), LogDirectory(self.disk, "/b")
        self.settings = topic(**settings)
        self.log = self.source.open(PARTITION, self.settings, now_ms=NOW, topic_id=TOPIC_ID)

    def begin(self) -> FutureLog:
        name = future_directory(PARTITION, "0" * 32)
        copy = self.target.open_future(PARTITION, name, self.settings, now_ms=NOW, topic_id=TOPIC_ID)
        return FutureLog(self.log, copy, self.source, self.target)

    def copy(self, future: FutureLog) -> None:
        while (offset := future.next_copy(NOW, list.clear)) is not None:
            future.append(future.read(offset)(), NOW)

    def swap(self, future: FutureLog) -> None:
        self.copy(future)
        future.log.flushed(future.log.flush())
        future.prepare(self.disk, self.target.checkpoint({}))
        assert future.complete(NOW, 1 << 20, list.clear)
        assert future.swap(self.disk, "1" * 32) == f"/a/events-0.{'1' * 32}-delete"


def test_the_log_goes_on_with_other_files() -> None:
    moving = Moving()
    for _ in range(30):
        append(moving.log)
    before = headers(moving.log)
    moving.swap(moving.begin())
    assert moving.log.directory == "/b/events-0"
    assert headers(moving.log) == before
    append(moving.log)
    assert offsets(moving.log) == list(range(31))
    assert PARTITION not in moving.source.logs
    assert moving.target.logs[PARTITION] is moving.log


def test_a_flush_that_was_under_way_proves_nothing_about_the_new_files() -> None:
    moving = Moving()
    append(moving.log, 5)
    future = moving.begin()
    moving.copy(future)
    future.log.flushed(future.log.flush())
    append(moving.log, 3)
    moved = False

    def move_meanwhile(path: str) -> None:
        nonlocal moved
        if not moved and path.startswith("/a/events-0/"):
            moved = True
            future.prepare(moving.disk, moving.target.checkpoint({}))
            assert future.complete(NOW, 1 << 20, list.clear)
            future.swap(moving.disk, "1" * 32)

    moving.disk.before_sync = move_meanwhile
    moving.log.flushed(moving.log.flush())
    moving.disk.before_sync = None
    assert moved
    assert (moving.log.recovery_point, moving.log.log_end_offset) == (5, 8)
    assert moving.log.needs_flush
    moving.log.flushed(moving.log.flush())
    assert moving.log.recovery_point == 8


def test_a_read_on_a_thread_begins_again() -> None:
    """The old files go while it reads them."""
    moving = Moving(segment_bytes=200)
    for _ in range(20):
        append(moving.log)
    future = moving.begin()
    moving.copy(future)
    about_to_read, moved = threading.Event(), threading.Event()
    opened = moving.disk.open

    def open_slowly(path: str, **options: bool) -> object:
        if threading.current_thread() is not threading.main_thread() and not moved.is_set():
            about_to_read.set()
            moved.wait(30)
        return opened(path, **options)

    found: list[int] = []

    def read() -> None:
        found.append(read_header(moving.log.read(7, 100, 20).data).base_offset)

    reader = threading.Thread(target=read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving.disk, "open", open_slowly)
        reader.start()
        assert about_to_read.wait(30)
        moving.swap(future)
        moving.disk.remove_tree(f"/a/events-0.{'1' * 32}-delete")
        moved.set()
        reader.join(30)
    assert found == [7]


def test_epochs_without_batches_move_too() -> None:
    moving = Moving()
    append(moving.log, epoch=1)
    moving.log.assign_epoch(4, moving.log.log_end_offset)
    moving.log.assign_epoch(7, moving.log.log_end_offset)
    moving.swap(moving.begin())
    moving.log.flushed(moving.log.flush())
    moving.disk.crash()
    again = LogDirectory(moving.disk, "/b").open(PARTITION, moving.settings, now_ms=NOW, topic_id=TOPIC_ID)
    assert [each.epoch for each in moving.log.epochs.entries] == [1, 7]
    # As everywhere, an epoch that begins at the end of a log is not kept over a crash.
    assert [each.epoch for each in again.epochs.entries] == [1]


def test_a_batch_that_holds_the_start_of_the_log_is_copied_whole() -> None:
    moving = Moving()
    append(moving.log, 10)
    append(moving.log, 10)
    moving.log.advance_log_start(4)
    moving.swap(moving.begin())
    assert moving.log.log_start_offset == 4
    assert [(each.base_offset, each.last_offset) for each in headers(moving.log)] == [(0, 9), (10, 19)]


def test_the_end_of_a_log_may_lie_behind_its_last_batch() -> None:
    """Compaction took what was there."""
    moving = Moving()
    append(moving.log, 5)
    moving.log.skip_to(9, NOW)
    moving.swap(moving.begin())
    assert moving.log.log_end_offset == 9
    append(moving.log)
    assert offsets(moving.log) == [0, 9]


def test_gaps_are_copied() -> None:
    moving = Moving()
    for base in (0, 3, 40):
        moving.log.append_preassigned(build_batch([(NOW, None, b"x", ())], base_offset=base, leader_epoch=2), NOW)
    moving.swap(moving.begin())
    assert offsets(moving.log) == [0, 3, 40]
    assert moving.log.epochs.epoch_for_offset(3) == 2


def test_a_piece_that_was_read_before_a_cut_is_dropped() -> None:
    moving = Moving()
    append(moving.log, 5)
    append(moving.log, 5)
    future = moving.begin()
    offset = future.next_copy(NOW, list.clear)
    assert offset == 0
    piece = future.read(offset)()
    future.cut(5)
    moving.log.truncate_to(5)
    append(moving.log, 1, size=3, epoch=1)
    future.append(piece, NOW)
    assert future.log.log_end_offset == 0
    moving.swap(future)
    assert [(each.base_offset, each.leader_epoch) for each in headers(moving.log)] == [(0, 0), (5, 1)]


def test_nothing_of_a_namesake_is_believed() -> None:
    """The directory remembers offsets of a log that was there before."""
    moving = Moving()
    former = moving.target.open(PARTITION, moving.settings, now_ms=NOW, topic_id=TOPIC_ID)
    append(former, 20)
    append(former, 20)
    append(former, 10)
    former.advance_log_start(40)
    former.flushed(former.flush())
    moving.target.write_checkpoint(moving.target.checkpoint({PARTITION: 50}))
    moving.disk.remove_tree(moving.target.delete(PARTITION, "2" * 32))
    append(moving.log, 5)
    future = moving.begin()
    moving.copy(future)
    moving.disk.crash()
    target = LogDirectory(moving.disk, "/b")
    ((partition, name),) = target.future_directories()
    again: Log = target.open_future(partition, name, moving.settings, now_ms=NOW, topic_id=TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 5, 0)
