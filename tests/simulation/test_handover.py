"""A broker that shuts down: its successors take what producers still send to it, and no producer sees an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.protocol.codec import decode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from penstock.simulator import requests
from penstock.simulator.client import Client, Lost
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

TOPIC = "t"
PRODUCERS = 3


class Producer:
    """Idempotent, one request at a time, always to the same broker."""

    def __init__(self, world: ClusterWorld, producer_id: int) -> None:
        self.world = world
        self.producer_id = producer_id
        self.sent = 0
        self.answers: list[PartitionProduceResponse] = []

    async def send(self, client: Client, acks: int) -> PartitionProduceResponse:
        data = requests.batch(
            f"{self.producer_id}:{self.sent}",
            timestamp=self.world.brokers[0].clock.now_ms(),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sent,
        )
        request = requests.produce_request(TOPIC, data, acks=acks)
        self.sent += 1
        answer = requests.only_partition(await client.ask(request, 12))
        self.answers.append(answer)
        return answer

    @property
    def is_refused(self) -> bool:
        return bool(self.answers) and self.answers[-1].error_code != ErrorCode.NONE

    async def run(self, machine: Machine, acks: int) -> None:
        """Until the broker ends the connection, or refuses what comes while it does that."""
        try:
            async with self.world.client(machine.name) as client:
                while not self.is_refused:
                    await self.send(client, acks)
                    await asyncio.sleep(self.world.chance.choice((0.0, 0.002)))
        except Lost:
            pass


async def cluster(loop: SimulatedLoop, seed: int, replicas: int) -> tuple[ClusterWorld, Machine]:
    """Three brokers, a topic of one partition, and the machine that leads it."""
    world = ClusterWorld(loop, seed, controllers=1, brokers=3)
    await world.start_all()
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=replicas)
    async with world.client("broker-1") as client:
        (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
    assert result.error_code == ErrorCode.NONE
    image = await world.settled()
    partition = image.topics.partition(TOPIC, 0)
    assert partition is not None
    return world, world.machines[f"broker-{partition.leader}"]


def tell(story: Callable[[SimulatedLoop], Coroutine[Any, Any, None]], seed: int) -> None:
    quietly()
    simulate(story, seed)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("seed", [1, 2, 3])  # in some others it leaves before anybody writes to it again
def test_producers_see_no_error_and_hear_of_the_successor(seed: int, acks: int) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world, leaving = await cluster(loop, seed, replicas=3)
        producers = [Producer(world, producer_id) for producer_id in range(PRODUCERS)]
        async with asyncio.TaskGroup() as tasks:
            for producer in producers:
                tasks.create_task(producer.run(leaving, acks))
            await asyncio.sleep(0.1)
            before = sum(len(producer.answers) for producer in producers)
            await leaving.stop()
        assert sum(len(producer.answers) for producer in producers) > before + 2 * PRODUCERS
        image = await world.settled()
        partition = image.topics.partition(TOPIC, 0)
        assert partition is not None
        for producer in producers:
            *answers, last = producer.answers
            assert all(answer.error_code == ErrorCode.NONE for answer in answers)
            assert last.error_code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        hints = [answer.current_leader for producer in producers for answer in producer.answers]
        assert {(hint.leader_id, hint.leader_epoch) for hint in hints if hint is not None} == {
            (partition.leader, partition.leader_epoch)
        }
        successor = world.machines[f"broker-{partition.leader}"]
        replica = successor.replicas.get(TOPIC, 0)
        assert replica is not None
        await world.until(lambda: replica.high_watermark == replica.log.log_end_offset, "all is committed")
        async with world.client(successor.name) as client:
            values = [record.value or b"" for record in await client.read_all(TOPIC)]
        for producer in producers:
            own = [int(value.split(b":")[1]) for value in values if value.startswith(b"%d:" % producer.producer_id)]
            assert own == list(range(len(own)))
            assert len(own) >= len(producer.answers) - 1

    tell(story, seed)


def test_a_partition_that_nobody_else_has_is_served_to_the_end() -> None:
    async def story(loop: SimulatedLoop) -> None:
        world, leaving = await cluster(loop, 1, replicas=1)
        producer = Producer(world, 0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(producer.run(leaving, -1))
            await asyncio.sleep(0.1)
            before = producer.sent
            await leaving.stop()
        assert producer.sent > before
        assert all(
            answer.error_code == ErrorCode.NONE and not answer.current_leader for answer in producer.answers[:-1]
        )

    tell(story, 0)  # in others it may leave before anybody writes to it again


def test_without_a_controller_it_is_served_as_before_after_a_while() -> None:
    async def story(loop: SimulatedLoop) -> None:
        world, leaving = await cluster(loop, 1, replicas=3)
        world.controllers[0].crash()
        producer = Producer(world, 0)
        async with world.client(leaving.name) as client:
            stopping = asyncio.ensure_future(leaving.stop())
            await asyncio.sleep(0.01)
            assert (await producer.send(client, -1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            producer.sent -= 1
            assert (await producer.send(client, -1)).error_code == ErrorCode.NONE
        await stopping

    tell(story, 1)


async def ask_at_once(client: Client, *questions: ProduceRequest) -> list[Any]:
    """One after the other on one connection, without waiting for answers; those come in the same order."""
    for number, question in enumerate(questions):
        client._writer.write(encode_request(question, 12, 1000 + number, "simulated"))
    frames = [await client.receive_frame() for _ in questions]
    return [decode(ProduceResponse, frame, 12, 5) for frame in frames]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_acknowledged_of_a_producer_without_idempotence_is_in_order(seed: int) -> None:
    """A request for one partition is held, and the next, for two, cannot be: it must not pass the first."""

    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, seed, controllers=1, brokers=3)
        await world.start_all()
        assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2, 3]) for index in range(2)]
        topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
        async with world.client("broker-2") as client:
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        await world.settled()
        leaving = world.machines["broker-1"]

        def batch(value: str) -> bytes:
            return bytes(requests.batch(value, timestamp=leaving.clock.now_ms()))

        acknowledged: list[bytes] = []
        async with world.client(leaving.name) as client:
            stopping = asyncio.ensure_future(leaving.stop())
            assert leaving.broker is not None
            handover = leaving.broker.handover
            while not handover.is_on:  # noqa: ASYNC110 - nothing else says so
                await asyncio.sleep(0)  # the leaderships move some milliseconds later
            both = requests.produce_request(TOPIC, batch("second"), acks=1)
            both.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch("elsewhere")))
            first, second = await ask_at_once(client, requests.produce_request(TOPIC, batch("first"), acks=1), both)
            for value, answer in ((b"first", first), (b"second", second)):
                if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                    acknowledged.append(value)
        await stopping
        assert b"first" in acknowledged
        replica = present(world.machines["broker-2"].replicas.get(TOPIC, 0))
        await world.until(lambda: replica.high_watermark == replica.log.log_end_offset, "all is committed")
        async with world.client("broker-2") as client:
            values = [record.value for record in await client.read_all(TOPIC)]
        assert [value for value in values if value in acknowledged] == acknowledged

    tell(story, seed)
