"""A leader that only clients can reach does not keep them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.simulator.client import Client, Lost
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from wire import batch

TOPIC = "t"
PROPERTIES = {"replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "4000"}


async def cluster(loop: SimulatedLoop, *, controllers: int, replicas: int) -> tuple[ClusterWorld, str]:
    """Three brokers with a topic, and the name of its leader."""
    world = ClusterWorld(loop, 0, controllers=controllers, brokers=3, properties=PROPERTIES)
    await world.start_all()
    configs = [CreatableTopicConfig(name="min.insync.replicas", value="1")]
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=replicas, configs=configs)
    async with world.client("broker-1") as client:
        (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
    assert result.error_code == ErrorCode.NONE
    await world.until(
        lambda: all(each.image.topics.partition(TOPIC, 0) for each in world.brokers), "all know the topic"
    )
    return world, leader_of(world)


def cut_off(world: ClusterWorld, name: str) -> None:
    world.loop.network.partition([name], [each for each in world.machines if each != name])


def leader_of(world: ClusterWorld, *, seen_by: int = 0) -> str:
    partition = world.brokers[seen_by].image.topics.partition(TOPIC, 0)
    assert partition is not None
    return f"broker-{partition.leader}"


async def hung_up(client: Client) -> None:
    with pytest.raises(Lost) as lost:
        await client.receive_frame()
    assert isinstance(lost.value.__cause__, asyncio.IncompleteReadError), "the connection was not closed"


def test_a_leader_that_hears_of_nobody_sends_its_clients_to_look_around() -> None:
    async def story(loop: SimulatedLoop) -> None:
        world, leader = await cluster(loop, controllers=3, replicas=3)
        async with world.client(leader, patience=60) as client, world.client(leader, patience=60) as idle:
            cut_off(world, leader)
            # Followers that had everything stay in sync for as long as there is nothing new.
            new = batch("new", timestamp=world.machines[leader].clock.now_ms())
            assert (await client.produce(TOPIC, new, acks=1)).error_code == ErrorCode.NONE
            await hung_up(idle)
            await hung_up(client)
        async with world.client(leader, patience=60) as client:  # it takes them back, and may be all there is
            assert list(await client.topics()) == [TOPIC]
            await hung_up(client)

    simulate(story, 0)


def test_the_only_replica_keeps_its_clients() -> None:
    """No other broker can lead."""

    async def story(loop: SimulatedLoop) -> None:
        world, leader = await cluster(loop, controllers=3, replicas=1)
        async with world.client(leader, patience=60) as client:
            cut_off(world, leader)
            await asyncio.sleep(60)
            assert list(await client.topics()) == [TOPIC]

    simulate(story, 0)


def test_a_leader_that_may_be_replaced_does_not_call_an_offset_out_of_range() -> None:
    """The next leader may have it; some clients would begin at the other end of the log."""

    async def story(loop: SimulatedLoop) -> None:
        world, leader = await cluster(loop, controllers=3, replicas=3)
        async with world.client(leader, patience=60) as client:
            assert (await client.fetch(TOPIC, 7)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            world.loop.network.partition([leader], [each.name for each in world.controllers])
            another = 1 if leader == "broker-1" else 0
            await world.until(lambda: leader_of(world, seen_by=another) != leader, "another leader")
            assert (await client.fetch(TOPIC, 7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(story, 0)


def test_a_leader_that_has_a_follower_keeps_its_clients_while_no_controller_answers() -> None:
    """One follower is gone and cannot be taken out of the in-sync replicas; the other one follows. Once that one is
    gone, too, the leader sends its clients away, whatever it has proposed before."""

    async def story(loop: SimulatedLoop) -> None:
        world, leader = await cluster(loop, controllers=1, replicas=3)
        async with world.client(leader, patience=60) as client:
            world.machines["controller-1"].crash()
            first, second = (each for each in world.brokers if each.name != leader)
            first.crash()
            new = batch("new", timestamp=world.machines[leader].clock.now_ms())
            assert (await client.produce(TOPIC, new, acks=1)).error_code == ErrorCode.NONE
            await asyncio.sleep(60)
            assert list(await client.topics()) == [TOPIC]
            second.crash()
            assert (await client.produce(TOPIC, new, acks=1)).error_code == ErrorCode.NONE
            await hung_up(client)

    simulate(story, 0)


def test_followers_of_other_partitions_stay_connected() -> None:
    """One partition is cut off; its clients are disconnected, but followers of other partitions are not."""

    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, 0, controllers=1, brokers=3, properties=PROPERTIES)
        await world.start_all()
        async with world.client("broker-1") as client:
            for name, replicas in ((TOPIC, [1, 2]), ("other", [1, 3])):
                assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
                topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
                (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
                assert result.error_code == ErrorCode.NONE
        await world.settled()
        node = world.machines["broker-1"].node
        assert node is not None
        async with world.client("broker-1", patience=60) as client:
            new = batch("new", timestamp=world.machines["broker-1"].clock.now_ms())
            assert (await client.produce(TOPIC, new, acks=-1)).error_code == ErrorCode.NONE
            assert (await client.produce("other", new, acks=-1)).error_code == ErrorCode.NONE
            world.machines["controller-1"].crash()
            world.machines["broker-2"].crash()
            assert (await client.produce(TOPIC, new, acks=1)).error_code == ErrorCode.NONE
            followers = [each for listener in node.listeners.of_brokers for each in listener.connections]
            followers = [each for each in followers if each.is_of_follower]
            await hung_up(client)
        assert followers and any(not each.is_closed for each in followers)

    simulate(story, 0)
