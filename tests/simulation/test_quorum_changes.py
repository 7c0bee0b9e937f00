"""Whole nodes while the cluster itself changes: roles in one process, brokers that leave for good, voters that come, go
and move, features that not everybody has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.io.files import read_file
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.index import PartitionIndex
from penstock.model.errors import ErrorCode
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.messages import add_raft_voter, quorum_structs
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.records.batch import iterate_headers
from penstock.simulator.client import Client, Lost, connected
from penstock.simulator.stories.cluster_world import CLUSTER_ID, CONTROLLER_PORT, DATA, PORT, ClusterWorld, Machine
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.quorum_cluster import create, in_world

METADATA_LOG = f"{DATA}/__cluster_metadata-0"


async def create_replicated(client: Client, name: str, replicas: int) -> ErrorCode:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=replicas)
    (result,) = (await client.ask(CreateTopicsRequest(topics=[topic]))).topics
    return ErrorCode(result.error_code)


def in_sync(machine: Machine, topic: str) -> list[int]:
    found = machine.image.topics.by_name(topic)
    return [] if found is None else [len(partition.isr) for partition in found.partitions.values()]


def combined_world(loop: SimulatedLoop, seed: int) -> ClusterWorld:
    """Three nodes, each of them broker and controller."""
    names = [f"controller-{number}" for number in (1, 2, 3)]
    voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for number, name in enumerate(names, 1))
    properties = {"controller.quorum.voters": voters}
    world = ClusterWorld(loop, seed, controllers=0, brokers=0, properties=properties, one_machine=True)
    for number, name in enumerate(names, 1):
        own = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
        }
        world.machines[name] = Machine(world, name, {**world.shared, **own})
    return world


@pytest.mark.parametrize("end", ["crash", "power_loss", "stop"])
def test_nodes_of_both_roles_survive_the_loss_of_one(end: str) -> None:
    async def program(loop: SimulatedLoop) -> None:
        world = combined_world(loop, 1)
        await world.start_all()
        async with world.client("controller-1") as client:
            assert await create_replicated(client, "before", 3) is ErrorCode.NONE
        active = world.active_controller()
        assert active is not None
        others = [machine for machine in world.controllers if machine is not active]
        begin = loop.time()
        if end == "stop":
            await active.stop()
            assert loop.time() - begin < 5.0
        else:
            getattr(active, end)()
        await world.until(world.active_controller, "another controller is active")
        # And not after its session: a broker without sessions with the controller is dead.
        await world.until(lambda: in_sync(others[0], "before") == [2, 2], "it is not in sync any more", 3.0)
        assert all(
            partition.leader != int(active.properties["node.id"])
            for topic in others[0].image.topics
            for partition in topic.partitions.values()
        )
        async with world.client(others[1].name) as client:
            assert await create_replicated(client, "after", 2) is ErrorCode.NONE
        await world.start_all()
        await world.until(lambda: in_sync(active, "before") == [3, 3], "it is in sync again")
        image = await world.settled()
        assert [topic.name for topic in image.topics] == ["before", "after"]
        assert not world.failures, world.failures

    simulate(program, 1)


def test_nodes_of_both_roles_that_all_stop_at_once_do_not_wait_for_each_other() -> None:
    async def program(loop: SimulatedLoop) -> None:
        world = combined_world(loop, 2)
        await world.start_all()
        async with world.client("controller-2") as client:
            assert await create_replicated(client, "orders", 3) is ErrorCode.NONE
        begin = loop.time()
        await asyncio.gather(*(machine.stop() for machine in world.controllers))
        assert loop.time() - begin < 15.0
        await world.start_all()
        await world.until(lambda: in_sync(world.controllers[0], "orders") == [3, 3], "all are in sync again")

    simulate(program, 2)


def test_a_broker_whose_controllers_are_gone_stops_all_the_same() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        assert await create(world, "broker-1", "orders")
        for machine in world.controllers:
            machine.crash()
        begin = world.loop.time()
        await asyncio.gather(*(machine.stop() for machine in world.brokers))
        assert world.loop.time() - begin < 6.0

    in_world(story)


def test_a_broker_that_dies_with_the_active_controller_is_not_waited_for() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        first, second = world.brokers
        active = world.active_controller()
        assert active is not None
        active.crash()
        second.crash()
        begin = world.loop.time()
        await world.until(lambda: first.image.brokers[2].fenced, "it is fenced")
        assert world.loop.time() - begin < 3.0
        assert not first.image.brokers[1].fenced

    in_world(story, one_machine=True)


def test_a_silent_broker_keeps_its_session_when_the_controller_changes() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        first, _ = world.brokers
        active = world.active_controller()
        assert active is not None
        await world.until(lambda: not first.image.brokers[2].fenced, "everybody knows that it is there")
        world.loop.network.isolate("broker-2")
        active.crash()
        begin = world.loop.time()
        await world.until(lambda: first.image.brokers[2].fenced, "it is fenced")
        assert world.loop.time() - begin > 8.0

    in_world(story)


def test_an_unregistered_broker_that_lives_registers_again() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        first, second = world.brokers
        async with world.client("broker-1") as client:
            assert await create_replicated(client, "orders", 2) is ErrorCode.NONE
            await world.until(lambda: in_sync(first, "orders") == [2, 2], "both are in sync")
            before = first.image.brokers[2]
            answer = await client.ask(UnregisterBrokerRequest(broker_id=2))
            assert answer.error_code == ErrorCode.NONE
            answer = await client.ask(UnregisterBrokerRequest(broker_id=7))
            assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

        def is_back() -> bool:
            now = first.image.brokers.get(2)
            return now is not None and now.epoch > before.epoch and not now.fenced

        await world.until(is_back, "it is registered again", 10.0)
        await world.until(lambda: in_sync(first, "orders") == [2, 2], "both are in sync again", 10.0)
        assert second.broker is not None and second.broker.epoch == first.image.brokers[2].epoch

    in_world(story)


def test_an_unregistered_broker_that_is_gone_is_forgotten_until_it_comes_back() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        first, second = world.brokers
        async with world.client("broker-1") as client:
            assert await create_replicated(client, "orders", 2) is ErrorCode.NONE
            second.crash()
            await world.until(lambda: first.image.brokers[2].fenced, "it is fenced")
            answer = await client.ask(UnregisterBrokerRequest(broker_id=2))
            assert answer.error_code == ErrorCode.NONE
            await world.until(lambda: 2 not in first.image.brokers, "it is forgotten")
            assert await create_replicated(client, "more", 2) is ErrorCode.INVALID_REPLICATION_FACTOR
        await world.start_all()
        await world.until(lambda: in_sync(first, "orders") == [2, 2], "both are in sync again")

    in_world(story)


def test_no_producer_id_is_given_twice_while_controllers_die() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        given: list[int] = []

        async def take(broker: str, count: int) -> None:
            try:
                async with world.client(broker, patience=20) as client:
                    for _ in range(count):
                        producer_id = await client.producer_id()
                        if producer_id is not None:
                            given.append(producer_id)
            except Lost:
                pass

        for round_ in range(4):
            # A block has a thousand ids: a broker that starts again needs a new one, from the active controller.
            broker = world.brokers[round_ % 2]
            broker.crash()
            victim = world.active_controller()
            assert victim is not None
            await world.start_all()
            asked = [asyncio.ensure_future(take(machine.name, 20)) for machine in world.brokers]
            await asyncio.sleep(world.chance.choice((0.0, 0.001, 0.01)))
            victim.crash()
            await asyncio.gather(*asked)
            await world.start_all()
        await take("broker-1", 5)
        assert len(given) > 100
        assert len(given) == len(set(given))
        blocks = {producer_id // 1000 for producer_id in given}
        assert len(blocks) >= 4
        image = await world.settled()
        assert image.next_producer_id > max(given)

    in_world(story, seed=5)


def test_a_feature_is_not_turned_on_while_a_broker_lacks_it() -> None:
    feature = "eligible.leader.replicas.version"

    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        await world.controllers_registered()

        async def update(client: Client, level: int, kind: int) -> Any:
            wanted = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
            return await client.ask(UpdateFeaturesRequest(feature_updates=[wanted]))

        async with world.client("broker-1") as client:
            answer = await update(client, 0, 2)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            await register_old_broker(world)
            answer = await update(client, 1, 1)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert "Broker 9 does not support this feature" in answer.error_message
            assert world.brokers[0].node is not None and feature not in world.brokers[0].node.quorum.features
            assert (await client.ask(UnregisterBrokerRequest(broker_id=9))).error_code == ErrorCode.NONE
            answer = await update(client, 1, 1)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
        assert (await world.settled()).features[feature] == 1
        # What is finalized, a broker must support.
        assert await register_old_broker(world) is ErrorCode.UNSUPPORTED_VERSION

    async def register_old_broker(world: ClusterWorld) -> ErrorCode:
        active = world.active_controller()
        assert active is not None
        request = BrokerRegistrationRequest(
            broker_id=9,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(range(16)),
            listeners=[Listener(name="PLAINTEXT", host="old", port=PORT)],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in SUPPORTED_FEATURES.items()
                if name != feature
            ],
            log_dirs=[bytes(range(16, 32))],
        )
        async with connected(active.name, CONTROLLER_PORT, 10.0) as client:
            return ErrorCode((await client.ask(request)).error_code)

    in_world(story)


# -- voters --------------------------------------------------------------------------------------------------------


def voters(world: ClusterWorld) -> dict[int, tuple[str, int]]:
    """As the active controller has them; None while there is none."""
    active = world.active_controller()
    if active is None or active.node is None:
        return {}
    return {
        voter.key.node_id: (voter.endpoints[0].host, voter.endpoints[0].port) for voter in active.node.quorum.voters
    }


def directory_of(machine: Machine) -> bytes:
    assert machine.node is not None
    return machine.node.identity.directories[DATA]


async def add_voter(client: Client, number: int, directory: bytes) -> ErrorCode:
    endpoint = quorum_structs.Listener(name="CONTROLLER", host=f"controller-{number}", port=CONTROLLER_PORT)
    request = add_raft_voter.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=100 + number, voter_directory_id=directory, listeners=[endpoint]
    )
    return ErrorCode((await client.ask(request)).error_code)


async def remove_voter(client: Client, number: int, directory: bytes) -> ErrorCode:
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=100 + number, voter_directory_id=directory)
    return ErrorCode((await client.ask(request)).error_code)


def test_a_voter_that_listens_elsewhere_says_so() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        active = world.active_controller()
        moved = next(machine for machine in world.controllers if machine is not active)
        node_id = int(moved.properties["node.id"])
        await moved.stop()
        moved.properties["listeners"] = f"CONTROLLER://{moved.name}:{CONTROLLER_PORT + 1}"
        await world.start_all()
        await world.until(
            lambda: voters(world).get(node_id) == (moved.name, CONTROLLER_PORT + 1), "the voters know its new address"
        )
        # Without the one that led, it is needed where it is now.
        assert active is not None
        active.crash()
        await world.until(lambda: voters(world), "another controller is active")
        assert await create(world, "broker-1", "orders")

    in_world(story, dynamic=True)


@pytest.mark.parametrize("seed", [0, 12, 27])  # some leaders die before the voter knows that it is one
def test_a_voter_with_a_new_disk_is_removed_and_added_again(seed: int) -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        lost = next(machine for machine in world.controllers if machine is not world.active_controller())
        number = int(lost.name.removeprefix("controller-"))
        before = directory_of(lost)
        lost.crash()
        lost.lose_disk()
        await world.start_all()
        await world.settled()
        after = directory_of(lost)
        assert after != before
        async with world.client("broker-1") as client:
            assert await add_voter(client, number, after) is ErrorCode.DUPLICATE_VOTER
            assert await remove_voter(client, number, after) is ErrorCode.VOTER_NOT_FOUND
            assert await remove_voter(client, number, before) is ErrorCode.NONE
            assert len(voters(world)) == 2
            assert await add_voter(client, number, after) is ErrorCode.NONE
        assert len(voters(world)) == 3
        active = world.active_controller()
        assert active is not None
        active.crash()
        await world.until(lambda: voters(world), "another controller is active")
        assert await create(world, "broker-1", "orders")

    in_world(story, seed, dynamic=True)


def test_a_voter_that_is_dead_can_be_removed_and_one_that_does_not_answer_is_not_added() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        dead = next(machine for machine in world.controllers if machine is not world.active_controller())
        number, directory = int(dead.name.removeprefix("controller-")), directory_of(dead)
        dead.crash()
        async with world.client("broker-1") as client:
            assert await remove_voter(client, number, directory) is ErrorCode.NONE
            assert len(voters(world)) == 2
            assert await add_voter(client, number, directory) is ErrorCode.REQUEST_TIMED_OUT
            assert await add_voter(client, 4, directory) is ErrorCode.REQUEST_TIMED_OUT
            assert len(voters(world)) == 2
        await world.start_all()
        await world.settled()
        assert len(voters(world)) == 2

    in_world(story, dynamic=True)


# -- what is reported ---------------------------------------------------------------------------------------------


def describe_quorum() -> DescribeQuorumRequest:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def test_the_quorum_is_described_by_its_leader_whoever_is_asked() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        assert await create(world, "broker-1", "orders")
        await asyncio.sleep(5)
        active = world.active_controller()
        assert active is not None and active.node is not None
        for broker in world.brokers:
            async with world.client(broker.name) as client:
                answer = await client.ask(describe_quorum())
            assert answer.error_code == ErrorCode.NONE
            ((told,),) = (topic.partitions for topic in answer.topics)
            assert told.error_code == ErrorCode.NONE
            assert (told.leader_id, told.leader_epoch) == (active.node_id, active.node.quorum.epoch)
            assert told.high_watermark == active.node.quorum.high_watermark
            assert sorted(each.replica_id for each in told.current_voters) == [101, 102, 103]
            assert sorted(each.replica_id for each in told.observers) == [1, 2]
            now_ms = active.clock.now_ms()
            for each in (*told.current_voters, *told.observers):
                assert each.log_end_offset == told.high_watermark
                assert now_ms - 1500 <= each.last_caught_up_timestamp <= each.last_fetch_timestamp <= now_ms
            addresses = {
                node.node_id: [(each.name, each.host, each.port) for each in node.listeners] for node in answer.nodes
            }
            assert addresses == {
                100 + number: [("CONTROLLER", f"controller-{number}", CONTROLLER_PORT)] for number in (1, 2, 3)
            }
        for controller in world.controllers:
            async with connected(controller.name, CONTROLLER_PORT, 10.0) as client:
                answer = await client.ask(describe_quorum())
            ((told,),) = (topic.partitions for topic in answer.topics)
            is_active = controller is active
            assert told.error_code == (ErrorCode.NONE if is_active else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Nothing is appended while it is looked at.
    in_world(story, dynamic=True, properties={"metadata.max.idle.interval.ms": "0"})


# -- what is in the log --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_every_epoch_begins_with_its_leaders_batch_and_followers_keep_the_index(seed: int) -> None:
    """No leader appends while an election is carried out, however often the controller is asked meanwhile."""

    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        asking = [asyncio.ensure_future(create(world, "broker-1", f"topic-{number}")) for number in range(5)]
        for number in range(5, 25):
            asking.append(asyncio.ensure_future(create(world, "broker-2", f"topic-{number}")))
            await asyncio.sleep(world.chance.choice((0.0, 0.01, 0.3)))
            active = world.active_controller()
            if active is not None and number % 5 == 0:
                fault = world.chance.choice(["crash", "power_loss", "isolate"])
                if fault == "isolate":
                    world.loop.network.isolate(active.name)
                else:
                    getattr(active, fault)()
                await asyncio.sleep(world.chance.choice((0.0, 1.0, 4.0)))
                world.loop.network.heal()
            for machine in world.controllers:
                if not machine.runs:
                    machine.start()
        await world.start_all()
        await asyncio.gather(*asking)
        image = await world.settled()
        epochs: dict[str, list[int]] = {}
        for machine in world.controllers:
            assert machine.node is not None
            controller = machine.node.quorum.controller
            expected = PartitionIndex.of(image.topics)
            for broker_id in image.brokers:
                assert set(controller.index.in_sync(broker_id)) == set(expected.in_sync(broker_id))
                assert controller.index.leads(broker_id) == expected.leads(broker_id)
            assert controller.index.leaderless.keys() == expected.leaderless.keys()
            data = b"".join(
                read_file(machine.disk, f"{METADATA_LOG}/{name}")
                for name in sorted(machine.disk.list(METADATA_LOG))
                if name.endswith(".log")
            )
            batches = [header for _, header in iterate_headers(data)]
            befores = [-1, *(batch.leader_epoch for batch in batches)]
            begins = [batch for before, batch in zip(befores, batches, strict=False) if batch.leader_epoch != before]
            epochs[machine.name] = [batch.leader_epoch for batch in begins]
            assert all(batch.is_control for batch in begins)
            assert epochs[machine.name] == sorted(set(epochs[machine.name]))
        assert len(set(map(tuple, epochs.values()))) == 1
        assert len(next(iter(epochs.values()))) > 1

    in_world(story, seed=seed)
