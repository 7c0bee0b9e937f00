"""A broker that may have been replaced does not pass judgement on producers: the next one may know better."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.client import Client
from penstock.simulator.requests import batch, only_partition, produce_request
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

TOPIC, NAME, STATE = "t", "p", "__transaction_state"
PROPERTIES = {"transaction.state.log.num.partitions": "1", "broker.session.timeout.ms": "4000"}


async def cluster(loop: SimulatedLoop) -> ClusterWorld:
    world = ClusterWorld(loop, 1, controllers=1, brokers=3, properties=PROPERTIES)
    await world.start_all()
    async with world.client("broker-1") as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
        (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert result.error_code == ErrorCode.NONE
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
        await patiently(client, find, 4)
    await world.settled()
    return world


def leader_of(world: ClusterWorld, topic: str, *, unless: str = "") -> str | None:
    """As those say who are not cut off."""
    partitions = [each.image.topics.partition(topic, 0) for each in world.brokers if each.name != unless]
    leaders = {f"broker-{partition.leader}" for partition in partitions if partition is not None}
    return leaders.pop() if len(leaders) == 1 else None


async def replaced(world: ClusterWorld, topic: str, leader: str) -> str:
    """Who leads instead of one that no controller hears of."""
    world.loop.network.partition([leader], [each.name for each in world.controllers])
    await world.until(lambda: leader_of(world, topic, unless=leader) not in (None, leader), "another leader")
    found = leader_of(world, topic, unless=leader)
    assert found is not None
    return found


async def initialize(client: Client) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    answer = await patiently(client, request, 5)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


async def end(client: Client, producer: tuple[int, int]) -> int:
    request = EndTxnRequest(transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], committed=False)
    code: int = (await client.ask(request, 5)).error_code
    return code


async def initialize_again(client: Client, producer: tuple[int, int]) -> int:
    request = InitProducerIdRequest(
        transactional_id=NAME, transaction_timeout_ms=60_000, producer_id=producer[0], producer_epoch=producer[1]
    )
    code: int = (await client.ask(request, 5)).error_code
    return code


async def add_partitions(client: Client, producer: tuple[int, int]) -> int:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    (topic,) = (await client.ask(request, 3)).results_by_topic_v3_and_below
    code: int = topic.results_by_partition[0].partition_error_code
    return code


async def add_offsets(client: Client, producer: tuple[int, int]) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    code: int = (await client.ask(request, 3)).error_code
    return code


@pytest.mark.parametrize("ask", [end, initialize_again, add_partitions, add_offsets])
def test_a_coordinator_that_may_be_replaced_fences_nobody(
    ask: Callable[[Client, tuple[int, int]], Awaitable[int]],
) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        before = leader_of(world, STATE)
        assert before is not None
        async with world.client(before, patience=60) as client:
            producer_id, epoch = await initialize(client)
            assert await ask(client, (producer_id, epoch + 1)) == ErrorCode.PRODUCER_FENCED
            now = await replaced(world, STATE, before)
            async with world.client(now, patience=60) as other:
                successor = await initialize(other)
                assert await ask(client, successor) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert await ask(other, successor) == ErrorCode.NONE
                assert await ask(other, (producer_id, epoch)) == ErrorCode.PRODUCER_FENCED

    quietly()
    simulate(story, 1)


def test_a_leader_that_may_be_replaced_does_not_call_a_batch_out_of_order() -> None:
    """The next leader may have what comes before it; librdkafka's idempotent producers would be finished."""

    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        before = leader_of(world, TOPIC)
        assert before is not None
        timestamp = world.machines[before].clock.now_ms()
        async with world.client(before, patience=60) as client:
            producer_id = await client.producer_id()
            assert producer_id is not None

            async def write(asked: Client, sequence: int) -> int:
                data = batch(
                    "x", timestamp=timestamp, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
                )
                code: int = (await asked.produce(TOPIC, data, acks=-1)).error_code
                return code

            assert await write(client, 0) == ErrorCode.NONE
            assert await write(client, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            now = await replaced(world, TOPIC, before)
            async with world.client(now, patience=60) as other:
                assert await write(other, 1) == ErrorCode.NONE
            assert await write(client, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    quietly()
    simulate(story, 1)


def test_a_coordinator_that_may_be_replaced_does_not_refuse_a_transactional_batch_of_its_own_partition() -> None:
    """Since transaction version 2 a batch adds its partition to the transaction. A producer gives up if its id is
    unknown; here only the broker that was replaced does not know it."""

    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        before = leader_of(world, STATE)
        assert before is not None
        async with world.client(before, patience=60) as client:
            # As many partitions as brokers: each leads one.
            topic = CreatableTopic(name="own", num_partitions=3, replication_factor=3)
            (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
            assert result.error_code == ErrorCode.NONE
            await world.settled()
            led = [
                index
                for index in range(3)
                if present(world.brokers[0].image.topics.partition("own", index)).leader == int(before[-1])
            ]
            timestamp = world.machines[before].clock.now_ms()

            async def write(producer: tuple[int, int]) -> int:
                data = batch(
                    "x",
                    timestamp=timestamp,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=0,
                    transactional=True,
                )
                request = produce_request("own", data, partition=led[0])
                request.transactional_id = NAME
                code: int = only_partition(await client.ask(request, 12)).error_code
                return code

            await initialize(client)
            now = await replaced(world, STATE, before)
            async with world.client(now, patience=60) as other:
                successor = await initialize(other)
            assert ErrorCode(await write(successor)).retriable

    quietly()
    simulate(story, 1)
