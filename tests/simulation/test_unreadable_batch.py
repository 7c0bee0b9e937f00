"""A leader whose follower lags, and a segment between them whose records cannot be read: only this partition stops.

The follower's fetch waits, and is woken by other partitions, in the middle of whatever these do: of the replies of a
listener, of a change of the metadata. An error that left the fetch there stopped them.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from penstock.simulator import requests
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic

MAGIC = 16  # its position in a batch
OTHER = "other"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(autouse=True)
def silence() -> None:
    quietly()


class LaggingFollower:
    """Broker 2 follows broker 1, and has missed segments of which one has rotted."""

    def __init__(self, topic: ReplicatedTopic) -> None:
        self.topic = topic
        self.world = topic.world

    @classmethod
    async def create(cls, loop: SimulatedLoop, *other: int, properties: dict[str, str]) -> LaggingFollower:
        topic = await ReplicatedTopic.create(
            loop, replicas=(1, 2), configs={"segment.ms": "100"}, properties=properties
        )
        assert topic.partition.leader == 1
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(other))
        created = CreatableTopic(name=OTHER, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        async with topic.world.client("broker-1") as client:
            await client.ask(CreateTopicsRequest(topics=[created], timeout_ms=10_000))
        await asyncio.sleep(2)
        leader, follower = topic.leader, topic.followers[0]
        loop.network.partition([leader.name], [follower.name])
        await asyncio.sleep(1)
        for number in range(12):
            assert await topic.produce(f"{number}" * 20_000, acks=1) == ErrorCode.NONE
            await asyncio.sleep(0.05)
        leader.disk.corrupt(topic.log_path(topic.replica(leader).log.segments[2].base_offset), MAGIC)
        loop.network.heal()
        return cls(topic)

    async def produce_other(self, acks: int) -> ErrorCode:
        leader = self.topic.machine(1)
        data = requests.batch("x", timestamp=leader.clock.now_ms())
        async with asyncio.timeout(15), self.world.client(leader.name) as client:
            return ErrorCode((await client.produce(OTHER, data, acks=acks, timeout_ms=5000)).error_code)


def test_other_partitions_are_replicated() -> None:
    async def story(loop: SimulatedLoop) -> None:
        scene = await LaggingFollower.create(loop, 1, 2, properties={})
        for _ in range(6):
            assert await scene.produce_other(acks=1) == ErrorCode.NONE
            await asyncio.sleep(5)
        leader, follower = (scene.topic.machine(each).replicas.get(OTHER, 0) for each in (1, 2))
        assert leader is not None and follower is not None
        assert follower.log.log_end_offset == leader.log.log_end_offset == 6

    simulate(story)


@pytest.mark.parametrize("selector", ["", RACK_AWARE])
def test_clients_are_answered(selector: str) -> None:
    async def story(loop: SimulatedLoop) -> None:
        properties = {"replica.selector.class": selector} if selector else {}
        scene = await LaggingFollower.create(loop, 1, 2, 3, properties=properties)
        for _ in range(10):
            await asyncio.sleep(0.5)
            assert await scene.produce_other(acks=-1) == ErrorCode.NONE

    simulate(story)


def test_metadata_is_applied() -> None:
    async def story(loop: SimulatedLoop) -> None:
        scene = await LaggingFollower.create(loop, 1, 2, 3, properties={"replica.socket.timeout.ms": "30000"})
        await asyncio.sleep(3)
        moved = ReassignablePartition(partition_index=0, replicas=[2, 3])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=OTHER, partitions=[moved])])
        async with scene.world.client("broker-3") as client:
            assert (await client.ask(request)).error_code == ErrorCode.NONE
        await asyncio.sleep(5)
        assert not scene.world.failures
        assert scene.topic.machine(1).is_ready

    simulate(story)
