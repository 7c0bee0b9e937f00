"""What clients get that ask the former coordinator for offsets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from narrowing import present
from penstock.broker.coordinators.coordinator import RESIGNED_S
from penstock.model.errors import ErrorCode
from penstock.protocol.messages import offset_commit, offset_fetch
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.client import Client, Lost
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

TOPIC, GROUP, OFFSETS = "t", "g", "__consumer_offsets"
TRANSACTION, TRANSACTIONS = "x", "__transaction_state"


def tell(story: Callable[[SimulatedLoop], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    quietly()
    simulate(story, seed)


async def cluster(loop: SimulatedLoop) -> ClusterWorld:
    """Three brokers and a topic of one partition."""
    properties = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    world = ClusterWorld(loop, 1, controllers=1, brokers=3, properties=properties)
    await world.start_all()
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=3)
    async with world.client("broker-1") as client:
        (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
    assert result.error_code == ErrorCode.NONE
    await world.settled()
    return world


async def leader(world: ClusterWorld, topic: str) -> Machine:
    partition = (await world.settled()).topics.partition(topic, 0)
    assert partition is not None
    return world.machines[f"broker-{partition.leader}"]


async def commit_offset(client: Client, offset: int) -> None:
    committed = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])
    request = offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    await patiently(client, request, 8, lambda answer: answer.topics[0].partitions[0].error_code)


async def moved(world: ClusterWorld) -> tuple[Machine, Machine]:
    """A group's offset is committed, and then its coordinator is another: that of before, and that of now."""
    async with world.client("broker-1") as client:
        found = FindCoordinatorRequest(coordinator_keys=[GROUP])
        await patiently(client, found, 4)
    preferred = await leader(world, OFFSETS)
    async with world.client(preferred.name) as client:
        await commit_offset(client, 7)
    await preferred.stop()
    before = await leader(world, OFFSETS)
    preferred.start()

    def is_whole() -> bool:
        partition = before.image.topics.partition(OFFSETS, 0)
        return partition is not None and len(partition.isr) == 3

    await world.until(is_whole, "all replicas in sync")
    async with world.client(before.name) as client:
        await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000))
    now = await leader(world, OFFSETS)
    assert now is preferred
    return before, now


async def ask_offset(client: Client) -> tuple[int, int | None]:
    topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    (answer,) = (await client.ask(offset_fetch.OffsetFetchRequest(groups=[group]), 9)).groups
    offset = answer.topics[0].partitions[0].committed_offset if answer.topics else None
    return answer.error_code, offset


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("librdkafka", "2.16.0", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("apache-kafka-java", "4.3.0", ErrorCode.NOT_COORDINATOR),
        (None, "", ErrorCode.NOT_COORDINATOR),
    ],
)
def test_only_librdkafka_is_put_off_when_the_coordinator_has_moved(
    name: str | None, version: str, told: ErrorCode
) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        before, now = await moved(world)
        async with world.client(before.name) as client:
            if name is not None:
                await client.ask(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
            assert await ask_offset(client) == (told, None)
            await asyncio.sleep(RESIGNED_S)
            assert await ask_offset(client) == (ErrorCode.NOT_COORDINATOR, None)
        async with world.client(now.name) as client:
            assert await ask_offset(client) == (ErrorCode.NONE, 7)

    tell(story)


async def replaced(world: ClusterWorld, old: Machine, topic: str) -> Machine:
    """Cut a coordinator off from the controllers, but not from its clients; returns the next coordinator."""

    def successor() -> Machine | None:
        partition = world.controllers[0].image.topics.partition(topic, 0)
        assert partition is not None
        leader = world.machines.get(f"broker-{partition.leader}")
        return leader if leader is not old else None

    world.loop.network.partition([old.name], [each.name for each in world.controllers])
    await world.until(successor, "another coordinator")
    return present(successor())


def test_a_replaced_coordinator_returns_no_old_offsets() -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        _, old = await moved(world)
        new = await replaced(world, old, OFFSETS)
        async with world.client(new.name, patience=60) as client:
            await commit_offset(client, 9)
        for _ in range(20):
            with contextlib.suppress(Lost):  # a leader without followers sends its clients away
                async with world.client(old.name, patience=60) as client:
                    assert await ask_offset(client) != (ErrorCode.NONE, 7)
            await asyncio.sleep(1)
        world.loop.network.heal()
        await world.settled()
        async with world.client(old.name, patience=60) as client:
            assert (await ask_offset(client))[0] == ErrorCode.NOT_COORDINATOR

    tell(story)


def test_a_replaced_coordinator_fences_no_producer() -> None:
    """The producer has a newer epoch than the one it knows."""

    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        async with world.client("broker-1") as client:
            await patiently(client, FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]), 4)
        old = await leader(world, TRANSACTIONS)
        async with world.client(old.name) as client:
            begin = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
            before = await patiently(client, begin, 4, lambda answer: answer.error_code)
        new = await replaced(world, old, TRANSACTIONS)
        async with world.client(new.name, patience=60) as client:
            now = await patiently(client, begin, 4, lambda answer: answer.error_code)
        assert (now.producer_id, now.producer_epoch) == (before.producer_id, before.producer_epoch + 1)
        topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=now.producer_id,
            v3_and_below_producer_epoch=now.producer_epoch,
            v3_and_below_topics=topics,
        )
        for _ in range(20):
            with contextlib.suppress(Lost):
                async with world.client(old.name, patience=60) as client:
                    (topic,) = (await client.ask(add, 3)).results_by_topic_v3_and_below
                    codes = {partition.partition_error_code for partition in topic.results_by_partition}
                    assert codes <= {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
            await asyncio.sleep(1)

    tell(story)


def test_offsets_are_returned_while_there_is_no_controller() -> None:
    """The followers confirm that the coordinator has not been replaced."""

    async def story(loop: SimulatedLoop) -> None:
        world = await cluster(loop)
        _, coordinator = await moved(world)
        assert coordinator.node is not None
        session_s = coordinator.node.settings.now.broker_session_timeout_ms / 1000
        async with world.client(coordinator.name, patience=60) as client:
            for controller in world.controllers:
                controller.crash()
            await asyncio.sleep(3 * session_s)
            assert await ask_offset(client) == (ErrorCode.NONE, 7)

    tell(story)
