"""Replicas of a broker that move between its log directories, on the simulated disk: everything else goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import wire as w
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.records.batch import iterate_headers
from penstock.simulator.client import Client, Lost, records_checked
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from waiting import wait_until_async

DISKS = ("/disk/a", "/disk/b", "/disk/c")


def run(story: Callable[[BrokerWorld], Awaitable[None]], *, seed: int | str = 1, **properties: str) -> None:
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        world = BrokerWorld(loop, seed, properties={"log.dirs": ",".join(DISKS), **settings})
        await world.start()
        await story(world)
        assert not world.failures

    simulate(program, seed)


def batch(world: BrokerWorld, *values: str, **options: Any) -> bytearray:
    return w.batch(*values, timestamp=world.now_ms, **options)


async def ask(client: Client, disk: str, topic: str = "t", partition: int = 0) -> ErrorCode:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=disk, topics=topics)])
    answer = await client.ask(request)
    return ErrorCode(answer.results[0].partitions[0].error_code)


async def places(client: Client, topic: str = "t") -> tuple[str, str | None]:
    """Where a replica is, and where it is going."""
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    current = future = None
    for result in answer.results:
        for found in result.topics:
            for partition in found.partitions:
                if found.name == topic and partition.is_future_key:
                    assert future is None
                    future = result.log_dir
                elif found.name == topic:
                    assert current is None, "two current logs"
                    current = result.log_dir
    assert current is not None
    return current, future


async def arrived(client: Client, disk: str, topic: str = "t") -> None:
    async def there() -> bool:
        return await places(client, topic) == (disk, None)

    await wait_until_async(there, f"{topic} in {disk}")


async def values(client: Client, topic: str = "t", offset: int = 0) -> list[bytes | None]:
    return [record.value for record in await client.read_all(topic, offset)]


async def filled(world: BrokerWorld, client: Client, configs: dict[str, str] | None = None, count: int = 20) -> str:
    """A topic with records; the directory it is in."""
    await client.create_topic("t", {"internal.segment.bytes": "2000", "file.delete.delay.ms": "0", **(configs or {})})
    for number in range(count):
        answer = await client.produce("t", batch(world, f"{number} " + "x" * 100), acks=-1)
        assert answer.error_code == ErrorCode.NONE
    return (await places(client))[0]


def another(disk: str) -> str:
    return next(each for each in DISKS if each != disk)


def numbered(found: list[bytes | None]) -> list[int]:
    return [int((value or b"").split(b" ")[0]) for value in found]


def names(world: BrokerWorld, disk: str) -> list[str]:
    return [name for name in world.disk.list(disk) if name.startswith("t-")]


@pytest.mark.parametrize("configs", [{}, {"flush.messages": "1"}], ids=["", "flushed"])
def test_a_replica_moves_while_it_is_written_and_read(configs: dict[str, str]) -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client, world.client() as other:
            home = await filled(world, client, configs)
            target = another(home)
            moving = True
            written = 20

            async def write() -> None:
                nonlocal written
                while moving:
                    answer = await client.produce("t", batch(world, f"{written} " + "y" * 100), acks=-1)
                    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, written)
                    written += 1

            writing = asyncio.ensure_future(write())
            assert await ask(other, target) == ErrorCode.NONE
            await arrived(other, target)
            assert numbered(await values(other))[:20] == list(range(20))
            moving = False
            await writing
            assert numbered(await values(other)) == list(range(written))
            assert world.node is not None
            topic = world.node.image.topics.by_name("t")
            assert topic is not None
            # The controller knows it, too.
            assert topic.partitions[0].directory_of(1) == world.node.identity.directories[target]
            await wait_until_async(lambda: not names(world, home), "the old files gone")
            assert names(world, target) == ["t-0"]
            assert "former-directories" not in world.disk.list(f"{target}/t-0")
        await world.stop()
        await world.start()
        async with world.client() as client:
            assert numbered(await values(client)) == list(range(written))
            assert await places(client) == (target, None)

    run(story)


def test_errors() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            await filled(world, client, count=1)
            assert await ask(client, "/disk/d") == ErrorCode.LOG_DIR_NOT_FOUND
            assert await ask(client, "/disk/a", partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await ask(client, "/disk/a", topic="new") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            long = "l" * 240
            await client.create_topic(long)
            assert await ask(client, "/disk/a", topic=long) == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(story)


@pytest.mark.parametrize("disk", DISKS)
def test_a_partition_is_made_where_it_was_asked_to_be(disk: str) -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            assert await ask(client, disk) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await client.create_topic("t")
            assert await places(client) == (disk, None)

    run(story)


def test_a_move_is_throttled_cancelled_and_redirected() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            second, third = [disk for disk in DISKS if disk != home]
            assert await ask(client, second) == ErrorCode.NONE
            assert await places(client) == (home, second)
            assert await ask(client, third) == ErrorCode.NONE
            assert await places(client) == (home, third)
            assert await ask(client, home) == ErrorCode.NONE
            assert await places(client) == (home, None)
            await wait_until_async(lambda: not names(world, second) + names(world, third), "the copies gone")
            assert numbered(await values(client)) == list(range(20))

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="100")


def test_what_is_deleted_meanwhile_stays_deleted() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client, {"internal.segment.bytes": "1000"}, count=60)
            await ask(client, another(home))
            partition = DeleteRecordsPartition(partition_index=0, offset=31)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000
            )
            answer = await client.ask(request)
            assert answer.topics[0].partitions[0].low_watermark == 31
            await arrived(client, another(home))
            assert await client.earliest("t") == 31
        world.crash()
        await world.start()
        async with world.client() as client:
            assert await client.earliest("t") == 31
            assert numbered(await values(client, offset=31)) == list(range(31, 60))

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="2000")


def test_deleting_the_topic_ends_its_move() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            await ask(client, another(home))
            assert await client.delete_topic("t") == ErrorCode.NONE
            await wait_until_async(lambda: not any(names(world, disk) for disk in DISKS), "all of it gone")
            await client.create_topic("t")
            assert await values(client) == []

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="100")


@pytest.mark.parametrize("how", ["stop", "crash", "power_loss"])
def test_a_move_goes_on_after_a_restart(how: str) -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client, {"flush.messages": "1"})
            await ask(client, another(home))
            await asyncio.sleep(2)
            assert await places(client) == (home, another(home))
        if how == "stop":
            await world.stop()
        elif how == "crash":
            world.crash()
        else:
            world.power_loss()
        world.properties["replica.alter.log.dirs.io.max.bytes.per.second"] = "1000000"
        await world.start()
        async with world.client() as client:
            await arrived(client, another(home))
            assert numbered(await values(client)) == list(range(20))

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="500")


def test_a_full_target_costs_the_move_and_nothing_else() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            world.disk.fail("write", f"{another(home)}/t-0.*", error=errno.ENOSPC)
            await ask(client, another(home))
            await given_up(client, home)
            answer = await client.produce("t", batch(world, "20 y"), acks=-1)
            assert answer.error_code == ErrorCode.NONE
            assert numbered(await values(client)) == list(range(21))
            world.disk.heal()
            await ask(client, another(home))
            await arrived(client, another(home))
            assert numbered(await values(client)) == list(range(21))

    run(story)


async def given_up(client: Client, home: str) -> None:
    async def stays() -> bool:
        return await places(client) == (home, None)

    await wait_until_async(stays, "the end of the move")


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_target_that_fails_goes_offline_alone(operation: str) -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            world.disk.fail(operation, f"{another(home)}/t-0.*", error=errno.EIO)
            await ask(client, another(home))
            await given_up(client, home)
            answer = await client.produce("t", batch(world, "20 y"), acks=-1)
            assert answer.error_code == ErrorCode.NONE
            assert await ask(client, another(home)) == ErrorCode.KAFKA_STORAGE_ERROR
            world.disk.heal()
        world.crash()
        await world.start()
        async with world.client() as client:
            await ask(client, another(home))
            await arrived(client, another(home))
            assert numbered(await values(client)) == list(range(21))

    run(story)


def test_a_source_that_fails_leaves_what_was_copied() -> None:
    """Should the disk come back, the move goes on; all that was acknowledged is there."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            assert await ask(client, "/disk/b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await filled(world, client, {"flush.messages": "1"}) == "/disk/b"
            await ask(client, "/disk/c")
            await asyncio.sleep(2)
            assert await places(client) == ("/disk/b", "/disk/c")
            world.disk.fail("write", "/disk/b/*", error=errno.EIO)
            answer = await client.produce("t", batch(world, "20 y"), acks=-1)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            answer = await client.ask(DescribeLogDirsRequest(topics=None))
            assert {result.log_dir: ErrorCode(result.error_code) for result in answer.results} == {
                "/disk/a": ErrorCode.NONE,
                "/disk/b": ErrorCode.KAFKA_STORAGE_ERROR,
                "/disk/c": ErrorCode.NONE,
            }
            (left,) = names(world, "/disk/c")
            assert left.endswith("-future")
            world.disk.heal()
        world.crash()
        world.properties["replica.alter.log.dirs.io.max.bytes.per.second"] = "1000000"
        await world.start()
        async with world.client() as client:
            await arrived(client, "/disk/c")
            assert numbered(await values(client)) == list(range(20))

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="500")


def test_nothing_moves_to_a_cordoned_directory() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            assert await ask(client, "/disk/c") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert await places(client) == (home, None)

    run(story, cordoned_log_dirs="/disk/c")


def test_there_and_back_again() -> None:
    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            for number, target in enumerate([*(each for each in DISKS if each != home), home] * 2):
                await ask(client, target)
                await arrived(client, target)
                answer = await client.produce("t", batch(world, f"{20 + number} y"), acks=-1)
                assert answer.error_code == ErrorCode.NONE
            assert numbered(await values(client)) == list(range(26))
            world.power_loss()
        await world.start()
        async with world.client() as client:
            await places(client)

    run(story)


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("seed", range(12))
def test_a_broker_that_dies_while_it_moves_a_replica(seed: int, power_loss: bool) -> None:
    """At a random change to its disks, from the request on; what was acknowledged on a flushed topic is there."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client, {"flush.messages": "1"})
            target = another(home)
            written = 20
            assert world.files is not None
            world.files.die_after(world.chance.randrange(140))
            try:
                async with world.client() as other:
                    await ask(other, target)
                    while not world.killed.is_set() and await places(other) != (target, None):
                        answer = await client.produce("t", batch(world, f"{written} y"), acks=-1)
                        assert answer.error_code == ErrorCode.NONE
                        written += 1
            except (Lost, TimeoutError):
                pass
        if power_loss:
            world.power_loss()
        else:
            world.crash()
        await world.start()
        async with world.client() as client:
            place, future = await places(client)
            if future is None and place == home:
                await ask(client, target)
            await arrived(client, target)
            found = numbered(await values(client))
            assert found[:written] == list(range(written))
            assert found in (list(range(written)), list(range(written + 1)))

    run(story, seed=f"dies {seed} {power_loss}")


def test_a_copy_is_what_its_replica_knows() -> None:
    """Epochs, producers and aborted transactions, in memory and after a crash."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            home = await filled(world, client)
            producer_id = await client.producer_id()
            assert producer_id is not None
            first = batch(world, "20 a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            answer = await client.produce("t", bytearray(first), acks=-1)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 20)
            await ask(client, another(home))
            await arrived(client, another(home))
            again = await client.produce("t", bytearray(first), acks=-1)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 20)
            epochs = _epochs(world)
        world.crash()
        await world.start()
        async with world.client() as client:
            again = await client.produce("t", bytearray(first), acks=-1)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 20)
            assert _epochs(world)[: len(epochs)] == epochs

    run(story)


def _epochs(world: BrokerWorld) -> list[tuple[int, int]]:
    replica = world.replicas.get(*TopicPartition("t", 0))
    assert replica is not None
    return list(replica.log.epochs.entries)


def test_compaction_waits_for_a_move_and_goes_on_after_it() -> None:
    """Were it to go on meanwhile, the copy could have a record and lack its tombstone, which is gone already."""

    async def story(world: BrokerWorld) -> None:
        async with world.client() as client:
            configs = {
                "cleanup.policy": "compact",
                "internal.segment.bytes": "1000",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "0",
            }
            await client.create_topic("t", configs)
            home = (await places(client))[0]
            for number in range(60):
                value = None if number % 7 == 5 else f"{number} " + "x" * 100
                sent = w.batch(value, timestamp=world.now_ms, key=f"k{number % 3}".encode())
                answer = await client.produce("t", sent, acks=-1)
                assert answer.error_code == ErrorCode.NONE
            await ask(client, another(home))
            size = _size(world)
            for _ in range(10):
                await asyncio.sleep(1)
                assert await places(client) == (home, another(home))
                assert _size(world) == size, "compacted while it moves"
        world.properties["replica.alter.log.dirs.io.max.bytes.per.second"] = "1000000"
        world.crash()
        await world.start()
        async with world.client() as client:
            await arrived(client, another(home))
            await wait_until_async(lambda: _size(world) < size / 2, "compaction of what was moved")
            latest: dict[bytes | None, bytes | None] = {}
            offset = 0
            while offset < 60:  # compaction leaves batches without records
                data = (await client.fetch("t", offset)).records
                latest.update((record.key, record.value) for record in records_checked(data))
                offset = list(iterate_headers(memoryview(data)))[-1][1].next_offset
            kept = {key: numbered([value])[0] for key, value in latest.items() if value is not None}
            assert kept == {b"k0": 57, b"k1": 58, b"k2": 59}

    run(story, replica_alter_log_dirs_io_max_bytes_per_second="100", log_cleaner_backoff_ms="500")


def _size(world: BrokerWorld) -> int:
    replica = world.replicas.get(*TopicPartition("t", 0))
    assert replica is not None
    return replica.log.size
