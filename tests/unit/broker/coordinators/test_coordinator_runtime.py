"""The runtime of a coordinator's partition: loading, appending, waiting for commits, failing, resigning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator_harness import World, record, run, sleep, turn
from log_harness import topic
from penstock.broker.coordinators.hashing import partition_for
from penstock.broker.coordinators.partition import Marker, Producer
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.coordinator.decision import Decision
from penstock.model.errors import ErrorCode
from penstock.simulator.twins.clock import SimulatedClock


def test_it_serves_once_it_is_loaded() -> None:
    async def story(world: World) -> None:
        world.lead()
        world.look("early", "a")
        assert world.take() == [("early", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        await turn(world.loop)
        assert world.shard.is_loaded
        world.look("later", "a")
        assert world.take() == [("later", None)]

    run(story)


def test_a_reply_waits_for_the_commit_and_so_does_a_read_of_what_is_not_committed() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("writer", "a", 1)
        world.look("reader", "a")
        await turn(world.loop)
        assert world.take() == []
        world.catch_up()
        assert world.take() == [("writer", "done"), ("reader", 1)]
        world.look("reader", "a")
        assert world.take() == [("reader", 1)]

    run(story)


def test_a_coordinator_that_may_be_replaced_asks_its_followers() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("writer", "a", 1)
        await turn(world.loop)
        world.catch_up()
        world.take()
        world.is_sure = False
        world.look("any", "a")
        assert world.take() == [("any", 1)]
        world.look("reader", "a", is_current=True)
        await turn(world.loop)
        assert world.take() == []
        world.catch_up()
        assert world.take() == [("reader", 1)]
        world.look("reader", "a", is_current=True)
        await turn(world.loop)
        world.follow()
        assert world.take() == [("reader", ErrorCode.NOT_COORDINATOR)]

    run(story)


def test_a_coordinator_that_may_be_replaced_refuses_while_there_are_not_enough_replicas() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.lead((1,), same_epoch=True)
        world.look("sure", "a", is_current=True)
        assert world.take() == [("sure", None)]
        world.is_sure = False
        world.look("unsure", "a", is_current=True)
        assert world.take() == [("unsure", ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    run(story)


def test_a_partition_of_one_replica_has_no_other_coordinator() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.is_sure = False
        world.look("reader", "a", is_current=True)
        assert world.take() == [("reader", None)]

    run(story, alone=True)


def test_what_is_decided_in_one_turn_is_one_batch() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        for number in range(10):
            world.put("writer", f"a{number}", number)
        await turn(world.loop)
        found = world.replica.log.read(0, 1 << 20, 100)
        assert found is not None
        from penstock.records.batch import iterate_headers

        (only,) = [header for _, header in iterate_headers(found.data)]
        assert only.count == 10
        assert only.leader_epoch == world.epoch

    run(story, alone=True)


def test_a_batch_that_would_be_too_large_is_two() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        for number in range(3):
            world.put(f"writer-{number}", f"a{number}", number, padding=400)
        await turn(world.loop)
        assert world.take() == [(f"writer-{number}", "done") for number in range(3)]
        assert world.shard.numbers == {"a0": 0, "a1": 1, "a2": 2}

    run(story, alone=True, settings=topic(segment_bytes=1_000_000, max_message_bytes=1000))


def test_a_decision_too_large_for_a_batch_is_refused_and_forgotten() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("before", "a", 1)
        await turn(world.loop)
        world.put("large", "b", 2, padding=2000)
        await turn(world.loop)
        assert world.take() == [("before", "done"), ("large", ErrorCode.UNKNOWN_SERVER_ERROR)]
        assert world.shard.numbers == {"a": 1}

    run(story, alone=True, settings=topic(segment_bytes=1_000_000, max_message_bytes=1000))


def test_what_nobody_waits_for_may_be_written_piece_by_piece() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.shard.on_tick = lambda: Decision([record(f"a{n}", n, 300) for n in range(10)], [])
        world.shard.deadline = world.clock.now_ms()
        world.look("x", "x")  # whatever is asked, deadlines are looked at afterwards
        await sleep(world.loop, 0.1)
        assert len(world.shard.numbers) == 10
        assert len(world.shards) == 1

    run(story, alone=True, settings=topic(segment_bytes=1_000_000, max_message_bytes=1000))


def test_a_new_leader_finds_everything_in_the_log() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        for number in range(200):
            world.put("writer", f"a{number % 7}", number)
            await turn(world.loop, 1)
        before = world.shard.numbers
        world.follow()
        world.look("reader", "a")
        assert world.take()[-1] == ("reader", ErrorCode.NOT_COORDINATOR)
        world.lead()
        await turn(world.loop)
        assert world.shard.numbers == before
        assert len(world.shards) == 2

    run(story)


def test_resigning_tells_everybody_who_waits() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("appended", "a", 1)
        await turn(world.loop)
        world.put("not appended", "b", 2)
        world.park("parked")
        world.follow()
        assert world.take() == [
            ("parked", "parked until resigned"),
            ("appended", ErrorCode.NOT_COORDINATOR),
            ("not appended", ErrorCode.NOT_COORDINATOR),
        ]
        await turn(world.loop)
        assert world.replica.log.log_end_offset == 1
        assert not world.replica.watchers

    run(story)


def test_another_epoch_begins_from_the_log() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("writer", "a", 1)
        await turn(world.loop)
        world.lead()
        assert world.take() == [("writer", ErrorCode.NOT_COORDINATOR)]
        await turn(world.loop)
        assert world.shard is world.shards[1]
        world.look("reader", "a")
        world.catch_up()
        assert world.take() == [("reader", 1)]

    run(story)


def test_another_isr_changes_nothing() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.park("parked")
        world.lead((1,), same_epoch=True)
        world.lead((1, 2), same_epoch=True)
        assert world.take() == []
        assert len(world.shards) == 1

    run(story)


def test_without_enough_replicas_nothing_is_written_and_no_time_passes() -> None:
    async def story(world: World) -> None:
        world.lead((1,))
        await turn(world.loop)
        world.put("careful", "a", 1, writes=True)
        assert world.take() == [("careful", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        world.shard.deadline = world.clock.now_ms()
        world.look("reader", "a")
        assert world.take() == [("reader", None)]
        await sleep(world.loop, 3)
        assert world.shard.ticks == 0
        world.lead((1, 2), same_epoch=True)
        await sleep(world.loop, 3)
        assert world.shard.ticks == 1

    run(story)


def test_after_a_failed_append_the_shard_is_loaded_anew() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("good", "a", 1)
        await turn(world.loop)
        world.park("parked")
        world.lead((1,), same_epoch=True)
        world.put("bad", "a", 2)
        world.look("reader", "a")
        await turn(world.loop)
        assert world.take() == [
            ("parked", "parked until resigned"),
            ("bad", ErrorCode.COORDINATOR_NOT_AVAILABLE),
            ("reader", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ]
        assert world.shard is world.shards[1]
        assert world.shard.numbers == {"a": 1}
        world.lead((1, 2), same_epoch=True)
        world.catch_up()
        assert world.take() == [("good", "done")]

    run(story)


def test_a_disk_that_refuses_is_a_failed_append() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("first", "a", 1)
        await turn(world.loop)
        world.disk.fill()
        world.put("second", "a", 2)
        await turn(world.loop)
        world.disk.heal()
        assert world.take() == [("first", "done"), ("second", ErrorCode.NOT_COORDINATOR)]
        await turn(world.loop)
        assert world.shard.numbers == {"a": 1}
        world.put("third", "a", 3)
        await turn(world.loop)
        assert world.take() == [("third", "done")]

    run(story, alone=True)


def test_a_commit_that_takes_too_long_is_told_so() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("writer", "a", 1)
        await sleep(world.loop, 1)
        world.put("later", "a", 2)
        await sleep(world.loop, 4.5)
        assert world.take() == [("writer", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        world.catch_up()
        assert world.take() == [("later", "done")]
        assert world.shard.numbers == {"a": 2}

    run(story)


def test_time_passes_when_the_shard_says_so() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        shard = world.shard
        shard.deadline = world.clock.now_ms() + 10_000
        world.look("x", "x")
        await sleep(world.loop, 9.9)
        assert shard.ticks == 0
        shard.deadline = world.clock.now_ms() + 5_000
        await sleep(world.loop, 1)
        assert shard.ticks == 0
        await sleep(world.loop, 5)
        assert shard.ticks == 1

    run(story, alone=True)


def test_offsets_in_a_transaction_count_when_it_commits() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("plain", "a", 1)
        world.put("txn", "b", 2, producer=world.producer(7, 0))
        world.put("other", "c", 3, producer=world.producer(8, 0))
        world.look("reader", "b")
        world.partition.end_transaction(Marker(7, 0, True, 0, 0), world.waiting("commit"))
        world.partition.end_transaction(Marker(8, 0, False, 0, 0), world.waiting("abort"))
        world.look("reader", "b")
        world.look("reader", "c")
        assert world.take() == [
            ("plain", "done"),
            ("txn", "done"),
            ("other", "done"),
            ("reader", None),
            ("commit", ErrorCode.NONE),
            ("abort", ErrorCode.NONE),
            ("reader", 2),
            ("reader", None),
        ]
        world.lead()
        await turn(world.loop)
        assert world.shard.numbers == {"a": 1, "b": 2}
        assert world.shard.pending == {}

    run(story, alone=True)


def test_a_zombie_cannot_commit_offsets_in_a_transaction() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("txn", "b", 2, producer=world.producer(7, 3))
        world.put("zombie", "b", 1, producer=Producer(7, 2))
        assert world.take() == [("txn", "done"), ("zombie", ErrorCode.INVALID_PRODUCER_EPOCH)]
        assert len(world.shards) == 1

    run(story, alone=True)


def test_a_clock_that_is_set_is_followed_slowly() -> None:
    wall, elapsed = SimpleNamespace(time=1_000_000), SimpleNamespace(time=0)
    clock = SteadyClock(cast(Any, SimpleNamespace(now_ms=lambda: wall.time, boottime_ms=lambda: elapsed.time)))

    def pass_time(ms: int) -> int:
        wall.time += ms
        elapsed.time += ms
        return clock.now_ms()

    assert pass_time(1000) == 1_001_000
    wall.time += 60_000
    assert clock.now_ms() == 1_001_000
    assert pass_time(1000) == 1_002_100
    wall.time -= 120_000
    before = clock.now_ms()
    assert pass_time(1000) == before + 900
    for _ in range(2000):
        pass_time(1000)
    assert clock.now_ms() == wall.time
    wall.time += 10 * 86_400_000
    assert clock.now_ms() == wall.time


def test_a_clock_that_was_suspended_is_right_at_once() -> None:
    """Otherwise what it stamps looks hours old to the next coordinator."""
    elapsed = SimpleNamespace(time=1000.0)
    machine = SimulatedClock(elapsed=lambda: elapsed.time)
    clock = SteadyClock(machine)
    machine.suspend(5 * 3_600_000)
    assert clock.now_ms() == machine.now_ms()
    elapsed.time += 1.0
    assert clock.now_ms() == machine.now_ms()


@pytest.mark.parametrize(
    ("key", "partitions", "expected"),
    [
        ("", 50, 0),
        ("my-group", 50, 12),
        ("a", 50, 47),
        ("grüße", 50, None),
        ("polygenelubricants", 50, 0),
        ("console-consumer-1", 50, 24),
    ],
)
def test_partitions_are_those_of_java(key: str, partitions: int, expected: int | None) -> None:
    found = partition_for(key, partitions)
    assert 0 <= found < partitions
    if expected is not None:
        assert found == expected
