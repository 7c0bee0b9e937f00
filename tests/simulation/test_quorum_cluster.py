"""Whole clusters under faults: the metadata that was answered for stays, and every node comes to the same image."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages import add_raft_voter, quorum_structs
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.stories.cluster_world import CLUSTER_ID, CONTROLLER_PORT, DATA, ClusterWorld
from simulation.quorum_cluster import create, in_world

SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "6000",
    "internal.metadata.log.segment.bytes": "1500",
}


def test_a_cluster_comes_up_and_answers_alike_everywhere() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        assert await create(world, "broker-1", "orders")
        await world.controllers_registered()
        image = await world.settled()
        assert [topic.name for topic in image.topics] == ["orders"]
        assert sorted(image.brokers) == [1, 2] and not any(broker.fenced for broker in image.brokers.values())
        assert sorted(image.controllers) == [101, 102, 103]
        async with world.client("broker-2") as client:
            assert list(await client.topics()) == ["orders"]
            assert await client.producer_id() is not None

    in_world(story)


def test_topics_are_created_while_active_controllers_die() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        created: list[str] = []
        for number in range(4):
            victim = world.active_controller()
            assert victim is not None
            asked = asyncio.ensure_future(create(world, "broker-1", f"topic-{number}"))
            await asyncio.sleep(world.chance.choice((0.0, 0.001, 0.005)))
            victim.crash()
            if await asked:
                created.append(f"topic-{number}")
            await world.until(world.active_controller, "another controller is active")
            await world.start_all()
        assert len(created) >= 2
        image = await world.settled()
        assert set(created) <= {topic.name for topic in image.topics}

    in_world(story, seed=3)


def test_a_node_that_was_away_for_long_catches_up_with_a_snapshot() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        away = next(machine for machine in world.controllers if machine is not world.active_controller())
        observer = world.machines["broker-2"]
        away.crash()
        observer.crash()
        for number in range(60):
            assert await create(world, "broker-1", f"topic-{number}")
        active = world.active_controller()
        assert active is not None and active.node is not None
        assert active.image.offset > 100
        away.start()
        observer.start()
        await world.until(lambda: away.is_ready and observer.is_ready, "both are back")
        image = await world.settled()
        assert len(image.topics) == 60
        for machine in (away, observer):
            names = machine.disk.list("/var/penstock/__cluster_metadata-0")
            begins = min(int(name[:20]) for name in names if name.endswith(".log"))
            assert begins > 20, f"{machine.name} fetched the log from {begins} on, and no snapshot"

    in_world(story, properties=SMALL)


@pytest.mark.parametrize(("one_machine", "seconds"), [(True, 1.0), (False, 5.0)])
def test_a_broker_that_dies_is_fenced_soon_and_unfenced_when_it_is_back(one_machine: bool, seconds: float) -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        await world.settled()
        victim, other = world.machines["broker-2"], world.machines["broker-1"]
        before = other.image.brokers[2]
        victim.crash()
        begin = world.loop.time()
        await world.until(lambda: other.image.brokers[2].fenced, "it is fenced")
        assert world.loop.time() - begin < seconds  # and not after the session timeout of 9 s
        victim.start()
        await world.until(lambda: victim.is_ready, "it is back")
        after = (await world.settled()).brokers[2]
        assert not after.fenced and after.epoch > before.epoch
        # Only who is seen to be dead has a successor before its session is over.
        assert world.loop.time() - begin < 5.0 if one_machine else world.loop.time() - begin > 8.0

    in_world(story, one_machine=one_machine)


def test_a_broker_that_cannot_be_heard_is_fenced_after_its_session() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        await world.settled()
        world.loop.network.isolate("broker-2")
        begin = world.loop.time()
        other = world.machines["broker-1"]
        await world.until(lambda: other.image.brokers[2].fenced, "it is fenced")
        assert 5.0 < world.loop.time() - begin < 20.0
        world.loop.network.heal()
        await world.until(lambda: not other.image.brokers[2].fenced, "it is unfenced")

    in_world(story)


def test_a_broker_that_stops_says_so() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        assert await create(world, "broker-1", "orders")
        await world.settled()
        begin = world.loop.time()
        await world.machines["broker-2"].stop()
        assert world.loop.time() - begin < 3.0
        await world.until(lambda: world.machines["broker-1"].image.brokers[2].fenced, "it is fenced")

    in_world(story)


def test_the_active_controller_hands_over_when_it_stops() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        await world.settled()
        active = world.active_controller()
        assert active is not None
        begin = world.loop.time()
        await active.stop()
        await world.until(world.active_controller, "another takes over")
        assert world.loop.time() - begin < 1.5
        assert await create(world, "broker-1", "orders")

    in_world(story)


def test_a_cut_off_leader_gives_up_and_follows_when_the_cut_heals() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        await world.settled()
        old = world.active_controller()
        assert old is not None and old.node is not None
        world.loop.network.isolate(old.name)
        others = [machine for machine in world.controllers if machine is not old]

        def replaced() -> bool:
            return any(machine.node is not None and machine.node.quorum.is_active for machine in others)

        await world.until(replaced, "the others elect a leader")
        await world.until(lambda: old.node is not None and not old.node.quorum.is_active, "the old one gives up")
        assert await create(world, "broker-1", "orders")
        world.loop.network.heal()
        image = await world.settled()
        assert [topic.name for topic in image.topics] == ["orders"]

    in_world(story)


def test_voters_in_the_log_can_be_changed_while_the_cluster_runs() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        assert await create(world, "broker-1", "before")
        new = world.add_controller(4)
        await world.start_all()
        await world.settled()
        assert new.node is not None
        joined = new.node.identity.directories[DATA]

        def voters() -> set[int]:
            active = world.active_controller()
            return set(active.node.quorum.voters.node_ids) if active is not None and active.node is not None else set()

        assert voters() == {101, 102, 103}
        async with world.client("broker-1") as client:
            endpoint = quorum_structs.Listener(name="CONTROLLER", host="controller-4", port=CONTROLLER_PORT)
            answer = await client.ask(
                add_raft_voter.AddRaftVoterRequest(
                    cluster_id=CLUSTER_ID, voter_id=104, voter_directory_id=joined, listeners=[endpoint]
                )
            )
            assert ErrorCode(answer.error_code) is ErrorCode.NONE, answer.error_message
            assert voters() == {101, 102, 103, 104}
            leaving = world.active_controller()
            assert leaving is not None and leaving.node is not None
            node_id, directory = leaving.node_id, leaving.node.identity.directories[DATA]
            answer = await client.ask(
                RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory)
            )
            assert ErrorCode(answer.error_code) is ErrorCode.NONE, answer.error_message
        await world.until(lambda: world.active_controller() not in (None, leaving), "another takes over")
        assert voters() == {101, 102, 103, 104} - {node_id}
        leaving.crash()
        assert await create(world, "broker-1", "after")
        image = await world.settled()
        assert [topic.name for topic in image.topics] == ["before", "after"]

    in_world(story, dynamic=True)


def test_fixed_voters_become_voters_in_the_log() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()

        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        async with world.client("broker-1") as client:
            # Not before every voter has told the leader its directory and what it supports.
            answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update]))
            assert ErrorCode(answer.error_code) is ErrorCode.INVALID_UPDATE_VERSION
            await asyncio.sleep(10)
            answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update]))
            assert ErrorCode(answer.error_code) is ErrorCode.NONE, answer.error_message
        await world.settled()
        for machine in world.machines.values():
            assert machine.node is not None and machine.node.quorum.features["kraft.version"] == 1
        active = world.active_controller()
        assert active is not None
        active.power_loss()
        await world.start_all()
        assert await create(world, "broker-1", "after")
        await world.settled()
        for machine in world.machines.values():
            assert machine.node is not None and machine.node.quorum.features["kraft.version"] == 1

    in_world(story)


def test_a_new_broker_learns_from_the_quorum_which_cluster_it_is_in() -> None:
    async def story(world: ClusterWorld) -> None:
        await world.start_all()
        for machine in world.machines.values():
            assert machine.node is not None and machine.node.identity.cluster_id == CLUSTER_ID

    in_world(story, dynamic=True)
