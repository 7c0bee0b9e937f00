"""What compaction keeps, what it removes, and when."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from compaction_world import DAY_MS, DIRECTORY, MEGABYTE, World
from penstock.records.batch import HEADER_SIZE
from penstock.records.compression import Codec
from penstock.records.control import read_transaction_marker


def test_the_latest_value_of_each_key_stays_where_it_was() -> None:
    world = World()
    for number in range(10):
        world.put((b"key%d" % (number % 3), b"value%d" % number))
    world.roll()
    world.put((b"key0", b"in the active segment"))
    assert world.clean()
    assert world.contents() == [
        (7, b"key1", b"value7"),
        (8, b"key2", b"value8"),
        (9, b"key0", b"value9"),
        (10, b"key0", b"in the active segment"),
    ]
    assert world.log.log_end_offset == 11
    assert not world.clean()


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_lose_records_and_keep_the_rest(codec: Codec) -> None:
    world = World()
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"long key " * 10, b"1"), codec=codec)
    world.put((b"b", b"2"), (b"long key " * 10, b"2"), codec=codec)
    world.roll()
    before = [header for header, _ in world.batches()]
    assert world.clean()
    after = [header for header, _ in world.batches()]
    assert [(header.base_offset, header.last_offset, header.codec) for header in after] == [
        (0, 3, codec),
        (4, 5, codec),
    ]
    assert after[1] == before[1]
    assert world.contents() == [
        (0, b"a", b"1"),
        (2, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"long key " * 10, b"2"),
    ]


def test_records_without_keys_go() -> None:
    world = World()
    world.put((None, b"1"), (b"a", b"1"), (None, None))
    world.roll()
    world.put((b"b", b"1"))
    world.roll()
    world.clean()
    assert world.contents() == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_tombstones_outlive_their_values_by_the_retention() -> None:
    world = World(delete_retention_ms=DAY_MS)
    world.put((b"a", b"1"), (b"b", b"1"))
    world.clock.jump(1000)
    world.put((b"a", None), (b"c", None))
    world.roll()
    world.put((b"z", b"1"))
    world.roll()
    assert world.clean()
    assert world.contents() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", None), (4, b"z", b"1")]
    header, records = world.batches()[1]
    horizon = world.clock.now_ms() + DAY_MS
    assert header.delete_horizon_ms == horizon
    assert header.max_timestamp == world.clock.now_ms()
    assert {record.timestamp for record in records} == {world.clock.now_ms()}

    world.clock.jump(DAY_MS - 1)
    world.put((b"z", b"2"))
    world.roll()
    assert world.clean()
    assert (2, b"a", None) in world.contents()
    assert world.batches()[1][0].delete_horizon_ms == horizon

    world.clock.jump(1)
    world.put((b"z", b"3"))
    world.roll()
    assert world.clean()
    assert world.contents() == [(1, b"b", b"1"), (6, b"z", b"3")]


def test_a_deleted_key_may_come_back() -> None:
    world = World(delete_retention_ms=0)
    world.put((b"a", b"1"))
    world.put((b"a", None))
    world.put((b"a", b"2"))
    world.roll()
    assert world.clean()
    assert world.contents() == [(2, b"a", b"2")]


def test_append_time_survives_rewriting() -> None:
    world = World(delete_retention_ms=DAY_MS)
    world.put((b"a", b"1"), (b"b", None), log_append_time=12345)
    world.put((b"a", b"2"))
    world.roll()
    assert world.clean()
    header, records = world.batches()[0]
    assert header.is_log_append_time
    assert [(record.key, record.timestamp) for record in records] == [(b"b", 12345)]


def test_an_idempotent_producers_last_sequence_is_remembered() -> None:
    world = World()
    for sequence in range(3):
        world.put((b"a", b"%d" % sequence), producer_id=7, producer_epoch=2, base_sequence=sequence)
    world.put((b"a", b"other"))
    world.roll()
    world.put((b"b", b"1"))
    assert world.clean()
    batches = world.batches()
    assert [header.base_offset for header, _ in batches] == [2, 3, 4]
    empty = batches[0][0]
    assert (empty.count, empty.size, empty.base_sequence, empty.producer_epoch) == (0, HEADER_SIZE, 2, 2)
    world.restart()
    entry = world.log.producers.get(7)
    assert entry is not None
    assert (entry.last_sequence, entry.epoch) == (2, 2)

    world.put((b"c", b"1"), producer_id=7, producer_epoch=2, base_sequence=3)
    world.roll()
    assert world.clean()
    assert [header.base_offset for header, _ in world.batches()] == [3, 4, 5]


def test_the_batch_that_ends_the_committed_log_stays() -> None:
    world = World()
    world.put((b"a", b"1"))
    world.put((None, b"1"))
    world.roll()
    assert world.clean()
    assert [(header.base_offset, header.count) for header, _ in world.batches()] == [(0, 1), (1, 0)]


def test_aborted_data_goes_at_once_and_its_marker_later() -> None:
    world = World(delete_retention_ms=DAY_MS)
    world.put((b"a", b"kept"))
    world.put((b"a", b"aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    world.put((b"b", b"aborted"), producer_id=5, producer_epoch=0, base_sequence=1, transactional=True)
    world.mark(5, committed=False)
    world.put((b"c", b"1"), producer_id=5, producer_epoch=0, base_sequence=2, transactional=True)
    world.mark(5, committed=True)
    world.roll()
    world.put((b"z", b"1"))
    world.roll()
    assert world.clean()
    assert world.contents() == [(0, b"a", b"kept"), (4, b"c", b"1"), (6, b"z", b"1")]
    markers = [header for header, _ in world.batches() if header.is_control]
    assert [(header.base_offset, header.delete_horizon_ms) for header in markers] == [(3, None), (5, None)]
    assert [entry.first_offset for entry in world.log.aborted_transactions(0, 6)] == [1]

    # None of the aborted batches is left: the marker gets its horizon, and the index forgets the transaction.
    world.put((b"z", b"2"))
    world.roll()
    assert world.clean()
    markers = [header for header, _ in world.batches() if header.is_control]
    horizon = world.clock.now_ms() + DAY_MS
    assert [(header.base_offset, header.delete_horizon_ms) for header in markers] == [(3, horizon), (5, None)]
    assert world.log.aborted_transactions(0, 6) == []

    world.clock.jump(DAY_MS)
    world.put((b"c", b"2"))
    world.roll()
    assert world.clean()
    markers = [header for header, _ in world.batches() if header.is_control]
    assert [header.base_offset for header in markers] == [5]


def test_an_aborted_producer_that_commits_later_is_not_taken_for_aborted() -> None:
    world = World()
    world.put((b"a", b"0"))
    world.put((b"a", b"aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    world.mark(5, committed=False)
    world.roll()
    assert world.clean()
    world.put((b"a", b"committed"), producer_id=5, producer_epoch=0, base_sequence=1, transactional=True)
    world.mark(5, committed=True)
    world.roll()
    world.put((b"z", b"1"))
    assert world.clean()
    assert world.contents() == [(3, b"a", b"committed"), (5, b"z", b"1")]


def test_a_transaction_that_is_aborted_in_a_later_segment() -> None:
    world = World()
    world.put((b"a", b"0"))
    world.put((b"a", b"aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    world.roll()
    world.mark(5, committed=False)
    assert world.clean()
    assert world.contents() == [(0, b"a", b"0")]
    header, _ = world.batches()[-1]
    data = world.log.read(header.base_offset, MEGABYTE, world.log.log_end_offset).data
    marker = read_transaction_marker(data, 0, header)
    assert marker is not None
    assert not marker.committed


def test_committed_markers_outlive_their_data() -> None:
    world = World(delete_retention_ms=0)
    world.put((b"a", b"1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    world.mark(5, committed=True)
    world.put((b"a", b"2"))
    world.put((b"b", b"1"), producer_id=5, producer_epoch=0, base_sequence=1)
    world.roll()
    kept_markers = []
    for number in range(3):
        world.put((b"z", b"%d" % number))
        world.roll()
        assert world.clean()
        kept_markers.append([header.base_offset for header, _ in world.batches() if header.is_control])
    # The first cleaning met the data; the second set the horizon; the third saw it passed.
    assert kept_markers == [[1], [1], []]


def test_open_transactions_and_the_high_watermark_bound_cleaning() -> None:
    world = World()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    world.put((b"a", b"3"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    world.roll()
    world.put((b"a", b"4"))
    world.roll()
    world.high_watermark_lag = 3
    assert not world.clean()
    world.high_watermark_lag = 0
    assert world.clean()
    assert world.contents() == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    world.mark(5, committed=True)
    world.roll()
    assert world.clean()
    assert [record[0] for record in world.contents()] == [3]


def test_the_dirty_ratio() -> None:
    world = World(min_cleanable_dirty_ratio=0.5)
    for number in range(10):
        world.put((b"%d" % number, b"1" * 100))
    world.roll()
    assert world.clean()
    for number in range(9):
        world.put((b"%d" % number, b"2" * 100))
    world.roll()
    assert not world.clean()
    for number in range(9):
        world.put((b"%d" % number, b"3" * 100))
    world.roll()
    assert world.clean()
    assert len(world.contents()) == 10


def test_young_records_wait_and_old_ones_do_not() -> None:
    world = World(min_compaction_lag_ms=1000, max_compaction_lag_ms=10_000, min_cleanable_dirty_ratio=1.0)
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    world.clock.jump(999)
    world.put((b"a", b"3"))
    world.roll()
    assert not world.clean()
    world.clock.jump(9002)
    assert world.clean()
    assert world.contents() == [(2, b"a", b"3")]


def test_only_what_is_old_enough_is_cleaned() -> None:
    world = World(min_compaction_lag_ms=1000)
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    world.clock.jump(1000)
    world.put((b"a", b"3"))
    world.roll()
    assert world.clean()
    assert world.contents() == [(1, b"a", b"2"), (2, b"a", b"3")]


def test_a_map_that_is_too_small_takes_several_rounds() -> None:
    world = World()
    world.node.log_cleaner_dedupe_buffer_size = 4 * 200
    world.node.log_cleaner_io_buffer_load_factor = 1.0
    for value in range(3):
        for key in range(10):
            world.put((b"%d" % key, b"%d" % value))
    world.roll()
    world.put((b"z", b""))
    rounds = 0
    while world.clean():
        rounds += 1
    assert rounds > 3
    assert world.contents() == [(20 + key, b"%d" % key, b"2") for key in range(10)] + [(30, b"z", b"")]


def test_small_segments_are_merged() -> None:
    world = World(segment_bytes=1000)
    for number in range(50):
        world.put((b"key%d" % (number % 5), b"v" * 50))
    world.roll()
    before = len(world.log.segments)
    assert world.clean()
    world.put((b"z", b""))
    world.roll()
    assert world.clean()
    assert before > 5
    assert len(world.log.segments) <= 2
    assert [offset for offset, _, _ in world.contents()] == [45, 46, 47, 48, 49, 50]


def test_every_offset_and_timestamp_is_found_through_the_new_indexes() -> None:
    world = World(index_interval_bytes=200, segment_bytes=4000)
    for number in range(200):
        world.clock.jump(10)
        world.put((b"key%d" % (number % 37), b"v" * (number % 50)))
    world.roll()
    assert world.clean()
    kept = world.records()
    assert sum(len(segment.index) for segment in world.log.segments) > 3
    headers = [header for header, _ in world.batches()]
    for offset in range(200):
        expected = next(header for header in headers if header.last_offset >= offset)
        assert world.log.read(offset, 1, 200).first_offset == expected.base_offset
    for record in kept:
        found = world.log.offset_for_timestamp(record.timestamp - 5)
        assert found is not None
        assert (found.offset, found.timestamp) == (record.offset, record.timestamp)
    world.restart()
    assert world.records() == kept


def test_nothing_is_rewritten_where_nothing_changes() -> None:
    world = World(segment_bytes=500)
    for number in range(20):
        world.put((b"key%d" % number, b"v" * 100))
    world.roll()
    segments = world.log.segments
    assert world.clean()
    assert world.log.segments == segments


def test_a_corrupt_batch_stops_compaction_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for number in range(10):
        world.put((b"key", b"value%d" % number))
    world.roll()
    path = f"{DIRECTORY}/{0:020d}.log"
    world.disk.corrupt(path, 300)
    with caplog.at_level(logging.ERROR):
        assert not world.clean()
    assert "cannot be compacted" in caplog.text
    assert world.names() == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{10:020d}.log",
        f"{10:020d}.snapshot",
    ]
    caplog.clear()
    assert not world.clean()
    assert not caplog.text


def test_a_bomb_stops_compaction() -> None:
    world = World()
    world.node.socket_request_max_bytes = MEGABYTE
    world.put((b"key", bytes(2 * MEGABYTE)), codec=Codec.ZSTD)
    world.put((b"key", b"1"))
    world.roll()
    assert not world.clean()
    assert len(world.log.segments) == 2


def test_a_full_disk_is_tried_again() -> None:
    world = World()
    for number in range(10):
        world.put((b"key", b"value%d" % number))
    world.roll()
    world.disk.fill(leave=200)
    assert world.clean_round() == 0
    world.disk.heal()
    assert world.clean_round() == 1
    assert len(world.contents()) == 1


def test_a_child_that_dies_leaves_nothing_that_matters() -> None:
    world = World()
    for number in range(10):
        world.put((b"key", b"value%d" % number))
    world.roll()
    before = world.contents()
    world.processes.death_rate = 1.0
    for _ in range(20):
        if world.clean_round():  # it had done its work before it could die
            break
        assert world.contents() == before
    world.processes.death_rate = 0.0
    world.clean_round()
    assert [offset for offset, _, _ in world.contents()] == [9]
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap", ".tmp", ".deleted"))]


def test_the_checkpoint_is_kafkas_and_is_read_again() -> None:
    world = World()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"))
    world.roll()
    assert world.clean()
    file = world.disk.open("/data/cleaner-offset-checkpoint")
    assert file.pread(100, 0) == b"0\n1\ntopic 0 2\n"
    world.flush()
    world.restart()
    assert not world.clean()


def test_what_takes_the_place_of_what_was_cut_is_not_clean() -> None:
    world = World()
    for number in range(8):
        world.put((b"a", b"%d" % number))
    world.roll()
    assert world.clean()
    world.put((b"b", b"1"))
    world.log.truncate_to(7)
    world.truncated(7)
    for number in range(3):
        world.put((b"a", b"other %d" % number))
    world.roll()
    world.flush()
    world.restart()
    assert world.clean()
    assert world.contents() == [(9, b"a", b"other 2")]


def test_a_log_that_was_repaired_is_compacted_after_all() -> None:
    world = World()
    for number in range(8):
        world.put((b"a", b"%d" % number))
    world.roll()
    (segment, _) = world.log.segments
    file = world.disk.open(segment.path)
    good = file.pread(segment.size, 0)
    world.disk.corrupt(segment.path, 65)
    wanted: list[bool] = []
    world.log.on_corruption = lambda: wanted.append(segment.is_suspect)
    assert not world.clean()
    assert wanted == [True]
    assert world.clean_round() == 0  # it would fail again
    damage = world.log.find_damage(segment)()
    assert damage is not None and (damage.first_offset, damage.next_offset) == (0, 1)
    assert world.log.restore(segment, damage, good[: damage.size])
    assert world.log.find_damage(segment)() is None
    assert world.clean()
    assert world.contents() == [(7, b"a", b"7")]


def test_a_partition_deleted_and_made_again_is_left_alone() -> None:
    world = World()
    for number in range(10):
        world.put((b"key", b"value%d" % number))
    world.roll()
    compact = world.processes.run

    async def compact_and_delete(module: str, arguments: Sequence[str]) -> int:
        code = await compact(module, arguments)
        world.log.close()
        world.disk.rename(DIRECTORY, DIRECTORY + "-delete")
        world.open()
        world.put((b"key", b"1"), (b"key", b"2"))
        world.roll()
        return code

    world.processes.run = compact_and_delete  # type: ignore[method-assign]
    assert not world.clean()
    assert world.contents() == [(0, b"key", b"1"), (1, b"key", b"2")]
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_segments_that_retention_took_meanwhile_do_not_come_back() -> None:
    world = World(cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=300)
    for number in range(20):
        world.put((b"key%d" % (number % 3), b"value%d" % number))
    world.roll()
    compact = world.processes.run

    async def compact_and_retain(module: str, arguments: Sequence[str]) -> int:
        code = await compact(module, arguments)
        world.log.advance_log_start(10)
        world.log.delete_old_segments(world.clock.now_ms(), world.high_watermark)
        return code

    world.processes.run = compact_and_retain  # type: ignore[method-assign]
    assert not world.clean()
    assert min(offset for offset, _, _ in world.contents()) >= 9
    world.processes.run = compact  # type: ignore[method-assign]
    assert world.clean_round() == 1
    assert [offset for offset, _, _ in world.contents()] == [17, 18, 19]
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]
