"""One fault of the disk at a time, and what clients and the node make of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import wire as w
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.simulator.client import Client, Lost, records_checked
from penstock.simulator.stories.broker_world import DATA, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.disk import Event
from penstock.simulator.twins.loop import SimulatedLoop, simulate

HOUR_S = 3600.0


def run(story: Callable[[BrokerWorld], Awaitable[None]], *, seed: int = 1, **options: Any) -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, seed, **options)
        await world.start()
        await story(world)

    simulate(program, seed)


def batch(world: BrokerWorld, *values: str, **options: Any) -> bytearray:
    return w.batch(*values, timestamp=world.now_ms, **options)


async def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in await client.read_all(topic)]


# -- syncs


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("configs", [{}, {"compression.type": "gzip"}])
def test_with_flush_messages_1_a_sync_precedes_every_acknowledgement(acks: int, configs: dict[str, str]) -> None:
    trace: list[Event] = []
    log = f"{DATA}/t-0/00000000000000000000.log"

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t", {"flush.messages": "1", **configs})

        async def produce(name: str) -> None:
            async with world.client() as client:
                for number in range(20):
                    answer = await client.produce("t", batch(world, f"{name}{number}"), acks=acks)
                    assert answer.error_code == ErrorCode.NONE
                    trace.append(("acknowledged", answer.base_offset))

        await asyncio.gather(*(produce(name) for name in "abc"))

    run(story, trace=trace)
    written = synced = 0  # offsets: every batch has one record, so the n-th write is offset n - 1
    acknowledged = 0
    for event in trace:
        if event[:2] == ("write", log):
            written += 1
        elif event[:2] == ("sync", log):
            synced = written
        elif event[0] == "acknowledged":
            assert int(event[1]) < synced, f"offset {event[1]} was acknowledged and only {synced} synced"
            acknowledged += 1
    assert acknowledged == 60
    assert sum(event[:2] == ("sync", log) for event in trace) < 60, "no commit was shared"


def test_what_is_not_synced_yet_is_shown_to_nobody() -> None:
    """A consumer must not see what a power loss could take back."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as producer, world.client() as consumer:
            await producer.create_topic("t", {"flush.messages": "1"})
            await producer.produce("t", batch(world, "first"))
            world.loop.executor_delay = lambda: 5.0
            pending = asyncio.ensure_future(producer.produce("t", batch(world, "second")))
            await asyncio.sleep(1.0)
            answer = await consumer.fetch("t", 0)
            assert w.values(answer.records) == [b"first"]
            assert answer.high_watermark == 1
            at_the_end = await consumer.fetch("t", 1, max_wait_ms=60_000, min_bytes=1)
            assert w.values(at_the_end.records) == [b"second"]
            assert (await pending).base_offset == 1

    run(story)


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_fails_stops_the_node_and_acknowledges_nothing(operation: str) -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t", {"flush.messages": "1", "segment.ms": "1000"})
            assert (await client.produce("t", batch(world, "safe"))).base_offset == 0
            await asyncio.sleep(2)  # so that the next write begins a segment, whose name must be synced, too
            world.disk.fail(operation, f"{DATA}/t-0*", times=1)
            with pytest.raises(Lost):
                await client.produce("t", batch(world, "doubtful"))
        assert len(world.failures) == 1 and "flush" in world.failures[0]
        world.power_loss()
        await world.start()
        async with world.client() as client:
            assert (await values(client, "t"))[:1] == [b"safe"]
            assert (await client.produce("t", batch(world, "again"))).error_code == ErrorCode.NONE

    run(story)


def test_what_is_recovered_after_a_failed_sync_reaches_the_disk() -> None:
    """The system takes pages for clean whose sync has failed: without writing them anew no sync would write them."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t", {"flush.messages": "1"})
            world.disk.fail("sync", f"{DATA}/t-0/*.log", times=1)
            with pytest.raises(Lost):
                await client.produce("t", batch(world, "doubtful"))
        world.crash()
        await world.start()
        async with world.client() as client:
            assert (await client.produce("t", batch(world, "safe"))).base_offset == 1
            assert await values(client, "t") == [b"doubtful", b"safe"]
        world.power_loss()
        await world.start()
        async with world.client() as client:
            assert await values(client, "t") == [b"doubtful", b"safe"]

    run(story)


def test_metadata_recovered_after_a_failed_sync_reaches_the_disk() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            world.disk.fail("sync", f"{DATA}/__cluster_metadata-0/*.log", times=1)
            with suppress(Lost):
                await client.create_topic("t")
            await asyncio.sleep(1)
        world.crash()
        await world.start()
        async with world.client() as client:
            assert await client.create_topic("t2") is ErrorCode.NONE
            assert (await client.produce("t2", batch(world, "a"))).error_code == ErrorCode.NONE
        world.power_loss()
        await world.start()
        async with world.client() as client:
            assert (await client.produce("t2", batch(world, "b"))).error_code == ErrorCode.NONE

    run(story)


def test_a_metadata_sync_that_fails_stops_the_node() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            world.disk.fail("sync", f"{DATA}/__cluster_metadata-0/*", times=1)
            with suppress(Lost):
                assert await client.create_topic("t") is not ErrorCode.NONE
            await asyncio.sleep(1)
        assert len(world.failures) == 1 and "metadata" in world.failures[0]
        world.power_loss()
        await world.start()
        async with world.client() as client:
            assert await client.create_topic("t2") is ErrorCode.NONE

    run(story)


def test_a_stop_that_cannot_sync_says_so_and_leaves_no_mark() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t")
            await client.produce("t", batch(world, "a"))
        world.disk.fail("sync", f"{DATA}/t-0/*")
        with pytest.raises(KafkaError):
            await world.stop()
        assert not world.disk.exists(f"{DATA}/.kafka_cleanshutdown")

    run(story)


# -- no room


def test_a_full_disk_is_said_and_over_when_there_is_room() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            for name, configs in (("t", {}), ("f", {"flush.messages": "1"}), ("r", {"compression.type": "lz4"})):
                await client.create_topic(name, configs)
                assert (await client.produce(name, batch(world, "before"))).base_offset == 0
            world.disk.fill(leave=10)
            for name in "tfr":
                for _ in range(3):
                    answer = await client.produce(name, batch(world, "x" * 100))
                    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    assert answer.base_offset == -1
                assert await values(client, name) == [b"before"]
            assert await client.create_topic("new") is ErrorCode.KAFKA_STORAGE_ERROR
            assert "new" not in await client.topics()
            assert await client.delete_topic("t") is ErrorCode.KAFKA_STORAGE_ERROR
            assert set(await client.topics()) == {"t", "f", "r"}
            await asyncio.sleep(HOUR_S)  # checkpoints, retention and flushes come and go meanwhile
            assert not world.failures
            world.disk.heal()
        async with world.client() as client:  # the other was idle for too long
            assert await client.create_topic("new") is ErrorCode.NONE
            for name in "tfr":
                assert (await client.produce(name, batch(world, "after"))).base_offset == 1
                assert await values(client, name) == [b"before", b"after"]
            await asyncio.sleep(HOUR_S)
        assert not world.failures
        await world.stop()
        await world.start()
        async with world.client() as client:
            assert await values(client, "f") == [b"before", b"after"]

    run(story)


@pytest.mark.parametrize("leave", [*range(0, 600, 23), 700, 1000, 2000, 5000])
def test_however_little_room_is_left_the_node_lives(leave: int) -> None:
    """Wherever in the making, filling, rolling and deleting of topics the disk is full."""

    async def story(world: BrokerWorld) -> None:
        created = []
        async with world.client() as client:
            await client.create_topic("old", {"segment.ms": "1000", "flush.messages": "1"})
            await client.create_topic("short")
            for name in ("old", "short"):
                await client.produce(name, batch(world, "a"))
                await client.produce(name, batch(world, "b"))
            await client.ask(
                DeleteRecordsRequest(
                    topics=[
                        DeleteRecordsTopic(
                            name="short", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)]
                        )
                    ]
                )
            )
            await asyncio.sleep(2)
            world.disk.fill(leave=leave)
            for number in range(4):
                code = await client.create_topic(f"new{number}", partitions=2)
                assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
                if code is ErrorCode.NONE:
                    created.append(f"new{number}")
                for name in ("old", *created):
                    answer = await client.produce(name, batch(world, "x" * 50), timeout_ms=1000)
                    assert answer.error_code in (
                        ErrorCode.NONE,
                        ErrorCode.KAFKA_STORAGE_ERROR,
                        ErrorCode.REQUEST_TIMED_OUT,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    )
            await client.producer_id()
            if created and await client.delete_topic(created[-1]) is ErrorCode.NONE:
                created.pop()
            if await client.delete_topic("short") is ErrorCode.NONE:
                code = await client.create_topic("short")
                assert code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
                if code is ErrorCode.NONE:
                    created.append("short")
            await asyncio.sleep(200)
            assert not world.failures
            world.disk.heal()
            await asyncio.sleep(60)
            for name in ("old", *created):
                assert (await client.produce(name, batch(world, "y"))).error_code == ErrorCode.NONE
            assert await client.producer_id() is not None
            contents = {name: await values(client, name) for name in ("old", *created)}
        assert not world.failures
        world.crash()
        await world.start()
        async with world.client() as client:
            assert {name: await values(client, name) for name in ("old", *created)} == contents

    run(story)


def test_a_write_that_fails_otherwise_is_said_too() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t")
            await client.produce("t", batch(world, "a"))
            world.disk.fail("write", f"{DATA}/t-0/*.log", error=errno.EIO)
            assert (await client.produce("t", batch(world, "b"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            world.disk.heal()
            assert (await client.produce("t", batch(world, "c"))).base_offset == 1
            assert await values(client, "t") == [b"a", b"c"]

    run(story)


# -- reads


def test_a_read_that_fails_is_said_and_does_not_end_the_node() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t", {"segment.ms": "1000"})
            await client.produce("t", batch(world, "a"))
            world.disk.cold = lambda *_: True  # by a thread, too
            world.disk.fail("read", f"{DATA}/t-0/*.log")
            assert (await client.fetch("t", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            world.disk.heal()
            assert await values(client, "t") == [b"a"]
        assert not world.failures

    run(story)


@pytest.mark.parametrize("position", [3, 7, 8, 16, 17, 21, 30, 57, 61, 70])
@pytest.mark.parametrize("cold", [False, True])
def test_a_batch_that_rots_between_runs_is_never_served(position: int, cold: bool) -> None:
    """A clean start checks nothing; the first read does. Whatever is served is right, or an error."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await client.create_topic("t")
            for letter in "abc":
                await client.produce("t", batch(world, letter * 20))
        await world.stop()
        size = len(batch(world, "a" * 20))
        world.disk.corrupt(f"{DATA}/t-0/00000000000000000000.log", size + position, 0x40)
        await world.start()
        if cold:
            world.disk.cold = lambda *_: True
        async with world.client() as client:
            for _ in range(2):  # being in the page cache makes it no better
                codes = []
                for offset in range(3):
                    answer = await client.fetch("t", offset)
                    codes.append(ErrorCode(answer.error_code))
                    served = records_checked(answer.records)
                    assert [(record.offset, record.value) for record in served] == [
                        (number, ("abc"[number] * 20).encode()) for number in range(offset, offset + len(served))
                    ]
                # Found at the start (the log ends before it then, and says so), or at the read.
                allowed = {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE}
                assert set(codes) <= allowed
                assert cold or set(codes) != {ErrorCode.NONE}
            assert (await client.produce("t", batch(world, "d"))).error_code == ErrorCode.NONE
        assert not world.failures

    run(story)
