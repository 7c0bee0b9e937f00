"""Bits that flip on a broker's disk: found when they are read, and made good with what other replicas have."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.partitions import tail
from penstock.broker.partitions.replica import Replica
from penstock.io.files import Buffer
from penstock.model.errors import ErrorCode
from penstock.records.batch import iterate_headers
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import TOPIC, ReplicatedTopic
from waiting import wait_until_async

BATCHES = 30
VALUES = [f"{number}-{'x' * 60}" for number in range(BATCHES)]
CONFIGS = {"min.insync.replicas": "2", "segment.ms": "100", "index.interval.bytes": "200"}

# Positions in a batch.
OFFSET, OFFSET_FAR, LENGTH, LENGTH_FAR, EPOCH, MAGIC, LAST_OFFSET, RECORD = 7, 3, 11, 9, 15, 16, 26, 80


@pytest.fixture(autouse=True)
def silence() -> None:
    quietly()


async def filled(loop: SimulatedLoop, replicas: tuple[int, ...] = (1, 2, 3)) -> ReplicatedTopic:
    """Five batches a segment, all committed, and known to be."""
    configs = {**CONFIGS, "min.insync.replicas": str(min(2, len(replicas)))}
    properties = {"log.flush.offset.checkpoint.interval.ms": "2000"}
    topic = await ReplicatedTopic.create(loop, configs=configs, replicas=replicas, properties=properties)
    for value in VALUES:
        assert await topic.produce(value) == ErrorCode.NONE
        await asyncio.sleep(0.02)
    await topic.world.until(
        lambda: all(topic.replica(each).high_watermark == BATCHES for each in topic.followers), "all is committed"
    )
    assert len(topic.replica(topic.leader).log.segments) > 4
    return topic


async def fetch_code(topic: ReplicatedTopic, machine: Machine, offset: int) -> ErrorCode:
    async with topic.world.client(machine.name) as client:
        return ErrorCode((await client.fetch(TOPIC, offset)).error_code)


def files_of(topic: ReplicatedTopic, machine: Machine) -> dict[int, bytes]:
    """The contents of each segment, by its first offset."""
    contents = {}
    for segment in topic.replica(machine).log.segments:
        file = machine.disk.open(segment.path, read_only=True)
        contents[segment.base_offset] = file.pread(1 << 20, 0)
        file.close()
    return contents


def flip(topic: ReplicatedTopic, machine: Machine, offset: int, position: int) -> None:
    """A bit in the batch at `offset`, on a replica's disk."""
    base, data = max((base, data) for base, data in files_of(topic, machine).items() if base <= offset)
    at = next(at for at, header in iterate_headers(data) if header.base_offset == offset)
    machine.disk.corrupt(topic.log_path(base), at + position)


def repairs(machine: Machine) -> int:
    assert machine.broker is not None
    return machine.broker.repairs.repaired


async def is_repaired(topic: ReplicatedTopic, machine: Machine, before: int) -> None:
    await topic.world.until(lambda: repairs(machine) > before, "it is repaired", 30)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_whatever_has_rotted_is_replaced(leads: bool) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        machine = topic.leader if leads else topic.followers[0]
        whole = files_of(topic, topic.followers[1])
        # What the page cache has lost is checked when it is read.
        machine.disk.cold = lambda path, position, size: path.endswith(".log")
        for offset in (0, 1, 13, max(whole) - 2):
            for position in (RECORD, OFFSET, OFFSET_FAR, LENGTH, LENGTH_FAR, MAGIC, LAST_OFFSET):
                before = repairs(machine)
                flip(topic, machine, offset, position)
                assert files_of(topic, machine) != whole
                code = await fetch_code(topic, machine, offset)
                assert code == ErrorCode.CORRUPT_MESSAGE, (offset, position, code)
                await is_repaired(topic, machine, before)
                assert files_of(topic, machine) == whole, (offset, position)
        assert await topic.values(machine) == VALUES

    simulate(story)


def test_a_leader_checks_what_a_follower_did_not_like() -> None:
    """What this process appended is not checked when it is read from the page cache; the follower does that."""

    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        leader, follower = topic.leader, topic.followers[0]
        follower.crash()
        await topic.in_sync(1, 3)
        follower.lose_disk()
        flip(topic, leader, BATCHES - 2, RECORD)
        follower.start()
        await is_repaired(topic, leader, 0)
        await topic.in_sync(1, 2, 3)
        assert files_of(topic, leader) == files_of(topic, follower) == files_of(topic, topic.followers[1])
        # The leader looks at what is asked for again from the same offset: once if the batch begins a segment, where an
        # answer begins, too; else the first answer with it began before it.
        begins_segment = BATCHES - 2 in [segment.base_offset for segment in topic.replica(leader).log.segments]
        assert follower.broker is not None
        assert follower.broker.replication.fetchers.damaged_answers == (1 if begins_segment else 2)
        assert await topic.values() == VALUES

    simulate(story)


def test_what_was_damaged_on_the_way_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        follower = topic.followers[0]
        broker = follower.broker
        assert broker is not None
        damaged = 0

        def append_replicated(self: Replica, records: Buffer, leader_epoch: int) -> None:
            nonlocal damaged
            data = bytearray(records)
            if self is topic.replica(follower) and damaged < 2:
                damaged += 1
                data[-1] ^= 1
            original(self, data, leader_epoch)

        original = Replica.append_replicated
        monkeypatch.setattr(Replica, "append_replicated", append_replicated)
        assert await topic.produce("more") == ErrorCode.NONE
        await topic.world.until(lambda: topic.replica(follower).high_watermark == BATCHES + 1, "it is committed")
        assert damaged == broker.replication.fetchers.damaged_answers == 2
        assert files_of(topic, follower) == files_of(topic, topic.leader)
        assert all(repairs(machine) == 0 for machine in topic.world.brokers)

    simulate(story)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("position", [RECORD, LENGTH_FAR, MAGIC])
@pytest.mark.parametrize("offset", [2, BATCHES - 2], ids=["old", "recent"])
def test_rot_during_a_stop_costs_nothing(offset: int, position: int, is_clean: bool) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        machine = topic.leader
        await machine.stop() if is_clean else machine.crash()
        others = [each for each in topic.world.brokers if each is not machine]
        whole = files_of(topic, others[0])
        await topic.in_sync(2, 3)
        disk_path = next(base for base in sorted(whole, reverse=True) if base <= offset)
        at = next(at for at, header in iterate_headers(whole[disk_path]) if header.base_offset == offset)
        machine.disk.corrupt(topic.log_path(disk_path), at + position)
        machine.start()
        await topic.in_sync(1, 2, 3)
        assert await topic.produce("more") == ErrorCode.NONE
        await topic.world.until(lambda: topic.replica(machine).high_watermark == BATCHES + 1, "that is committed")
        # Readers find the damage, if it was not cut and fetched again.
        await fetch_code(topic, machine, offset)
        whole = files_of(topic, topic.leader)
        await topic.world.until(lambda: joined(files_of(topic, machine)) == joined(whole), "it is as it was", 60)
        assert await topic.values(machine) == [*VALUES, "more"]

    simulate(story)


def joined(files: dict[int, bytes]) -> bytes:
    return b"".join(files[base] for base in sorted(files))


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("position", [RECORD, LENGTH_FAR, MAGIC])
def test_the_only_copy_is_kept_and_its_readers_are_told(position: int, is_clean: bool) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop, replicas=(1,))
        machine = topic.leader
        before = files_of(topic, machine)
        rotten = (2, 12, BATCHES - 1) if is_clean or position != LENGTH_FAR else (2, 12)
        await asyncio.sleep(5)  # everything is flushed, and that is written down
        await machine.stop() if is_clean else machine.crash()
        for offset in rotten:
            base = max(each for each in before if each <= offset)
            at = next(at for at, header in iterate_headers(before[base]) if header.base_offset == offset)
            machine.disk.corrupt(topic.log_path(base), at + position)
        machine.start()
        await topic.in_sync(1)
        assert await topic.produce("more") == ErrorCode.NONE
        for offset in rotten:
            assert await fetch_code(topic, machine, offset) == ErrorCode.CORRUPT_MESSAGE
            await asyncio.sleep(6)
            assert await fetch_code(topic, machine, offset) == ErrorCode.CORRUPT_MESSAGE
            async with topic.world.client(machine.name) as client:
                rest = await client.fetch(TOPIC, offset + 1)
            # Where batches begin behind a header that has rotted, only the index knows.
            assert position != RECORD or (rest.error_code == ErrorCode.NONE and rest.records)
        assert topic.replica(machine).log.log_end_offset == BATCHES + 1
        assert repairs(machine) == 0

    simulate(story)


def test_a_leader_whose_last_batch_nobody_can_copy_leaves_it_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES_MAX", 0)  # followers would copy it from memory

    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        machine = topic.leader
        loop.network.partition([machine.name], [each.name for each in topic.followers])
        await asyncio.sleep(1)  # no fetch waits any more
        assert await topic.produce("lost", acks=1) == ErrorCode.NONE
        flip(topic, machine, BATCHES, RECORD - 12)
        loop.network.heal()
        await until_failed(topic, machine)
        await topic.in_sync(2, 3)
        assert await topic.produce("more") == ErrorCode.NONE
        machine.start()
        await topic.in_sync(1, 2, 3)
        assert await topic.values() == [*VALUES, "more"]
        assert joined(files_of(topic, machine)) == joined(files_of(topic, topic.leader))

    simulate(story)


def test_a_last_batch_that_rots_on_disk_is_copied_from_memory() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await filled(loop)
        machine = topic.leader
        loop.network.partition([machine.name], [each.name for each in topic.followers])
        await asyncio.sleep(1)  # no fetch waits any more
        assert await topic.produce("kept", acks=1) == ErrorCode.NONE
        before = joined(files_of(topic, machine))
        flip(topic, machine, BATCHES, RECORD - 12)
        loop.network.heal()
        await wait_until_async(
            lambda: all(joined(files_of(topic, follower)) == before for follower in topic.followers), "it is copied"
        )
        assert joined(files_of(topic, machine)) != before

    simulate(story)


async def until_failed(topic: ReplicatedTopic, machine: Machine) -> None:
    """A node that ends by itself is no failure of the test."""
    failures = topic.world.failures
    await wait_until_async(lambda: failures, "the node ends")
    assert "is damaged before others have copied it" in failures.pop()
    machine.crash()


@pytest.mark.parametrize("compacted", [True, False], ids=["compacted", "not compacted"])
@pytest.mark.parametrize("position", [RECORD, LENGTH_FAR])
def test_replicas_that_were_compacted_differently(compacted: bool, position: int) -> None:
    """The other one has more of the batch, or nothing of it."""

    async def story(loop: SimulatedLoop) -> None:
        configs = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
        topic = await ReplicatedTopic.create(
            loop, configs=configs, replicas=(1, 2), properties={"log.cleaner.backoff.ms": "500"}
        )
        for number in range(BATCHES):
            key = b"%d" % (number % 4)
            assert await topic.produce(f"{number}-{'x' * 60}", f"{number}-{'y' * 60}", key=key) == ErrorCode.NONE
            await asyncio.sleep(0.02)
        cleaning = topic.world.machines["broker-2"]
        await cleaning.stop()
        cleaning.properties["log.cleaner.enable"] = "true"
        cleaning.start()
        await topic.in_sync(1, 2)
        await topic.world.until(
            lambda: topic.replica(cleaning).log.size < topic.replica(topic.leader).log.size / 2, "it is compacted"
        )
        machine = cleaning if compacted else topic.leader
        machine.disk.cold = lambda path, position, size: path.endswith(".log")
        kept = [
            header
            for data in files_of(topic, cleaning).values()
            for _, header in iterate_headers(data)
            if header.count and header.count <= header.last_offset_delta
        ]
        offset = kept[0].base_offset if compacted else 2
        assert offset < min(each.base_offset for each in kept) or compacted
        size = topic.replica(machine).log.size
        await topic.world.until(lambda: topic.replica(machine).high_watermark == 2 * BATCHES, "all is committed")
        latest = await latest_values(topic, machine)
        flip(topic, machine, offset, position)
        assert await fetch_code(topic, machine, offset) == ErrorCode.CORRUPT_MESSAGE
        await is_repaired(topic, machine, 0)
        assert await fetch_code(topic, machine, offset) == ErrorCode.NONE
        assert await latest_values(topic, machine) == latest
        assert (topic.replica(machine).log.size > size) == compacted
        assert topic.replica(machine).log.log_end_offset == 2 * BATCHES

    simulate(story)


async def latest_values(topic: ReplicatedTopic, machine: Machine) -> dict[bytes | None, bytes | None]:
    async with topic.world.client(machine.name) as client:
        return {record.key: record.value for record in await client.read_all(TOPIC)}
