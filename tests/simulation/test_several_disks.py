"""Brokers with several log directories: one fails, or is replaced by an empty one, and the others go on."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest

from penstock.io.files import read_file
from penstock.log.meta_properties import MetaProperties, write_meta_properties
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.requests import batch
from penstock.simulator.stories.cluster_world import DATA, Machine
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import BROKER_RESOURCE, TOPIC, ReplicatedTopic

A, B = "/mnt/a", "/mnt/b"
SEVERAL = {"metadata.log.dir": DATA, "log.dirs": f"{A},{B}", "log.flush.offset.checkpoint.interval.ms": "1000"}
UNCLEAN, SAFE_DOWNGRADE = 1, 2

Story = Callable[[ReplicatedTopic], Awaitable[None]]


def play(story: Story, *, replicas: tuple[int, ...] = (1, 2), properties: dict[str, str] | None = None) -> None:
    """The topic's replicas are the first on their brokers, hence in the first directory."""

    async def program(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(
            loop, brokers=2, replicas=replicas, properties={**SEVERAL, **(properties or {})}
        )
        await known(topic)
        await story(topic)

    simulate(program)


async def known(topic: ReplicatedTopic) -> None:
    """Until the controller knows where all replicas are."""
    await topic.world.until(
        lambda: all(
            directory == directory_id(topic.machine(broker), A)
            for broker, directory in zip(topic.partition.replicas, topic.partition.directories, strict=True)
        ),
        "the controller knows where the replicas are",
    )


def directory_id(machine: Machine, path: str) -> bytes:
    return machine.directory_id(path)


async def describe(topic: ReplicatedTopic, machine: Machine) -> dict[str, DescribeLogDirsResult]:
    async with topic.world.client(machine.name) as client:
        answer = await client.ask(DescribeLogDirsRequest(topics=None))
    return {result.log_dir: result for result in answer.results}


async def create(topic: ReplicatedTopic, name: str, *brokers: int) -> CreateTopicsResponse:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))
    wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    async with topic.world.client(topic.leader.name) as client:
        answer = await client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
    assert isinstance(answer, CreateTopicsResponse)
    await topic.world.settled()
    return answer


def home_of(machine: Machine, name: str) -> str | None:
    """The directory that has a replica of this topic's only partition."""
    assert machine.broker is not None
    replica = machine.replicas.get(name, 0)
    return None if replica is None else machine.broker.storage.directory_of(replica.log).path


# -- a directory fails -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_directory_that_fails_goes_offline_alone(operation: str) -> None:
    async def story(topic: ReplicatedTopic) -> None:
        assert await topic.produce("a") == ErrorCode.NONE
        failing = topic.leader
        await create(topic, "other", failing.node_id)
        assert (home_of(failing, TOPIC), home_of(failing, "other")) == (A, B)
        failing.disk.fail(operation, f"{A}/*")
        answered = await topic.produce("b", at=failing)
        assert answered in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        await topic.in_sync(*(machine.node_id for machine in topic.followers))
        assert failing.node is not None and failing.runs and not topic.world.failures
        assert topic.leader is not failing
        assert await topic.produce("c") == ErrorCode.NONE
        assert await topic.values() == (["a", "b", "c"] if answered == ErrorCode.NONE else ["a", "c"])
        other = failing.replicas.get("other", 0)
        assert home_of(failing, "other") == B and other is not None and other.leader is not None
        described = await describe(topic, failing)
        assert described[A].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert described[B].error_code == ErrorCode.NONE
        registered = topic.leader.image.brokers[failing.node_id]
        assert registered.directories == (directory_id(failing, B),) and not registered.fenced

    play(story)


def test_requests_for_a_partition_on_a_failed_directory_say_so() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        failing = topic.leader
        failing.disk.fail("sync", f"{A}/*")
        topic.world.loop.network.partition([failing.name], [f"broker-{3 - failing.node_id}", "controller-1"])
        await topic.produce("a", at=failing, acks=1)
        await topic.world.until(lambda: home_of(failing, TOPIC) is None, "the directory is offline")
        assert await topic.produce("b", at=failing) == ErrorCode.KAFKA_STORAGE_ERROR
        async with topic.world.client(failing.name) as client:
            assert (await client.fetch(TOPIC, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        topic.world.loop.network.heal()
        await topic.in_sync(3 - failing.node_id)
        async with topic.world.client(topic.leader.name) as client:
            answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
        assert answer.topics[0].partitions[0].offline_replicas == [failing.node_id]

    play(story)


def test_what_a_failed_directory_had_is_there_again_after_a_restart() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        assert await topic.produce("a") == ErrorCode.NONE
        failing = topic.leader
        failing.disk.fail("sync", f"{A}/*")
        await topic.produce("b", at=failing)
        await topic.in_sync(3 - failing.node_id)
        failing.disk.heal()
        await failing.stop()
        failing.start()
        await topic.in_sync(1, 2)
        assert home_of(failing, TOPIC) == A

    play(story)


def test_the_last_directory_takes_the_broker_with_it() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        failing = topic.leader
        failing.disk.fail("write", f"{A}/*")
        await topic.produce("a", at=failing)
        await topic.in_sync(3 - failing.node_id)
        await create(topic, "other", failing.node_id)
        assert home_of(failing, "other") == B
        failing.disk.fail("sync", f"{B}/*")
        node = failing.node
        assert node is not None
        async with topic.world.client(failing.name) as client:
            await client.produce("other", batch("b", timestamp=failing.clock.now_ms()))
        assert "other-0" in await node.failure
        topic.world.failures.clear()

    play(story)


def test_the_directory_of_the_metadata_log_takes_the_broker_with_it() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        failing = topic.leader
        node = failing.node
        assert node is not None and home_of(failing, TOPIC) == A
        failing.disk.fail("write", f"{A}/*")
        await topic.produce("a", at=failing)
        assert A in await node.failure
        topic.world.failures.clear()

    play(story, properties={"metadata.log.dir": A})


def test_a_full_disk_is_no_failed_disk() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        machine = topic.leader
        machine.disk.fail("write", f"{A}/*", error=errno.ENOSPC)
        assert await topic.produce("a") == ErrorCode.KAFKA_STORAGE_ERROR
        machine.disk.heal()
        assert await topic.produce("b") == ErrorCode.NONE
        assert topic.leader is machine and (await describe(topic, machine))[A].error_code == ErrorCode.NONE

    play(story)


def test_a_broker_that_cannot_tell_of_a_failed_directory_stops() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        failing = topic.leader
        node = failing.node
        assert node is not None
        topic.world.loop.network.partition([failing.name], ["controller-1"])
        failing.disk.fail("write", f"{A}/*")
        began = topic.world.loop.time()
        await topic.produce("a", at=failing)
        assert "log.dir.failure.timeout.ms" in await node.failure
        assert 7 <= topic.world.loop.time() - began < 9
        topic.world.failures.clear()

    play(story, properties={"log.dir.failure.timeout.ms": "7000"})


# -- at the start ------------------------------------------------------------------------------------------------------


def unreadable(machine: Machine) -> None:
    machine.disk.fail("open", f"{A}/meta.properties")


def malformed(machine: Machine) -> None:
    file = machine.disk.open(f"{A}/meta.properties")
    file.truncate(3)
    file.close()


def of_another_node(machine: Machine) -> None:
    write_meta_properties(machine.disk, A, MetaProperties("another-cluster", 77, b"x" * 16))


@pytest.mark.parametrize("spoil", [unreadable, malformed, of_another_node])
def test_a_directory_that_cannot_be_used_at_the_start_is_left_out(spoil: Callable[[Machine], None]) -> None:
    async def story(topic: ReplicatedTopic) -> None:
        assert await topic.produce("a") == ErrorCode.NONE
        machine = topic.leader
        own = read_file(machine.disk, f"{A}/meta.properties")
        await machine.stop()
        spoil(machine)
        machine.start()
        await topic.world.until(lambda: machine.is_ready, "it starts without the directory")
        assert (await describe(topic, machine))[A].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert home_of(machine, TOPIC) is None
        assert topic.leader is not machine and await topic.produce("b") == ErrorCode.NONE
        await machine.stop()
        machine.disk.heal()
        file = machine.disk.open(f"{A}/meta.properties")
        file.truncate(0)
        file.pwrite(own, 0)
        file.close()
        machine.start()
        await topic.in_sync(1, 2)
        assert home_of(machine, TOPIC) == A
        assert await topic.values() == ["a", "b"]

    play(story)


# -- a directory is replaced -------------------------------------------------------------------------------------------


async def disable_elr(topic: ReplicatedTopic) -> None:
    update = FeatureUpdateKey(
        feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=0, upgrade_type=SAFE_DOWNGRADE
    )
    await topic.world.controllers_registered()
    async with topic.world.client(topic.leader.name) as client:
        answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=5000))
    assert answer.error_code == ErrorCode.NONE, answer


@pytest.mark.parametrize("log_dirs", [f"{A},{B}", A], ids=["two", "one"])
@pytest.mark.parametrize("elr", [True, False], ids=["elr", "no-elr"])
def test_an_empty_replica_is_never_elected_and_the_survivor_keeps_what_it_has(elr: bool, log_dirs: str) -> None:
    async def story(topic: ReplicatedTopic) -> None:
        if not elr:
            await disable_elr(topic)
        assert await topic.produce("a") == ErrorCode.NONE
        replaced, survivor = topic.leader, topic.followers[0]
        survivor.crash()
        await topic.in_sync(replaced.node_id)
        assert await topic.produce("b") == ErrorCode.NONE
        replaced.crash()
        replaced.disk.remove_tree(A)
        replaced.start()
        survivor.start()
        await topic.world.until(lambda: replaced.is_ready and survivor.is_ready, "both are back")
        await topic.world.settled()
        assert topic.partition.leader == NO_LEADER and topic.partition.isr == ()
        assert topic.replica(replaced).log.log_end_offset == 0
        assert topic.replica(survivor).log.log_end_offset == 1
        async with topic.world.client(survivor.name) as client:
            await client.ask(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None, timeout_ms=5000))
        await topic.world.until(lambda: topic.partition.leader != NO_LEADER, "an unclean election finds a leader")

    play(story, properties={"log.dirs": log_dirs})


def test_a_replaced_directory_is_filled_again() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        assert await topic.produce("a") == ErrorCode.NONE
        machine = topic.leader
        machine.crash()
        machine.disk.remove_tree(A)
        machine.start()
        await topic.in_sync(1, 2)
        assert topic.leader is not machine
        assert topic.replica(machine).log.log_end_offset == 1
        where = home_of(machine, TOPIC)
        assert where is not None
        assert topic.partition.directory_of(machine.node_id) == directory_id(machine, where)

    play(story)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_is_repeated_until_it_is_acknowledged_or_superseded() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        machine = topic.followers[0]
        broker = machine.broker
        topic_id = topic.leader.image.topics.id_of(TOPIC)
        assert broker is not None and topic_id is not None
        here, there = directory_id(machine, A), directory_id(machine, B)
        topic.world.loop.network.partition([machine.name], ["controller-1"])
        first = broker.directory_assignments.assign(topic_id, 0, there)
        second = broker.directory_assignments.assign(topic_id, 0, here)
        assert not await first and not second.done()
        assert broker.directory_assignments.is_pending(here) and not broker.directory_assignments.is_pending(there)
        topic.world.loop.network.heal()
        assert await second
        assert not broker.directory_assignments.has_pending
        assert topic.partition.directory_of(machine.node_id) == here
        assert await broker.directory_assignments.assign(topic_id, 0, there)
        assert topic.partition.directory_of(machine.node_id) == there
        assert not await broker.directory_assignments.assign(b"no such topic at", 0, here)
        assert not await broker.directory_assignments.assign(topic_id, 77, here)

    play(story)


# -- where new replicas go ---------------------------------------------------------------------------------------------


async def cordon(topic: ReplicatedTopic, broker: Machine, value: str) -> tuple[int, str | None]:
    config = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(broker.node_id), configs=[config])
    async with topic.world.client(broker.name) as client:
        (answer,) = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return answer.error_code, answer.error_message


def test_new_replicas_avoid_directories_that_are_cordoned_or_offline() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        machine = topic.leader
        for number in range(3):
            await create(topic, f"balancing-{number}", machine.node_id)
        assert home_of(machine, "balancing-0") == B
        assert await cordon(topic, machine, B) == (ErrorCode.NONE, None)
        await topic.world.settled()
        for number in range(4):
            await create(topic, f"cordoned-{number}", machine.node_id)
            assert home_of(machine, f"cordoned-{number}") == A
        described = await describe(topic, machine)
        assert (described[A].is_cordoned, described[B].is_cordoned) == (False, True)
        machine.disk.fail("write", f"{A}/*")
        await topic.produce("a", at=machine)
        await topic.world.until(lambda: home_of(machine, TOPIC) is None, "the directory is offline")
        assert await cordon(topic, machine, "") == (ErrorCode.NONE, None)
        await topic.world.settled()
        await create(topic, "late", machine.node_id)
        assert home_of(machine, "late") == B

    play(story)


def test_a_broker_whose_directories_are_all_cordoned_gets_no_new_partitions() -> None:
    async def story(topic: ReplicatedTopic) -> None:
        machine = topic.leader
        other = topic.followers[0]
        assert await cordon(topic, machine, "*") == (ErrorCode.NONE, None)
        controller = topic.world.active_controller()
        assert controller is not None
        await topic.world.until(
            lambda: controller.image.brokers[machine.node_id].cordoned, "the controller knows that it is cordoned"
        )
        (refused,) = (await create(topic, "refused", machine.node_id)).topics
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert f"broker {machine.node_id}, but all its log directories are cordoned" in (refused.error_message or "")
        (created,) = (await create(topic, "elsewhere", other.node_id)).topics
        assert created.error_code == ErrorCode.NONE
        assert await topic.produce("a") == ErrorCode.NONE
        await machine.stop()
        machine.start()
        await topic.in_sync(1, 2)
        await topic.world.until(
            lambda: controller.image.brokers[machine.node_id].cordoned, "it still is after a restart"
        )

    play(story)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (f"*,{A}", "it must not contain other values"),
        ("/elsewhere", "Invalid entries in cordoned.log.dirs: [/elsewhere]"),
    ],
)
def test_what_cannot_be_cordoned(value: str, message: str) -> None:
    async def story(topic: ReplicatedTopic) -> None:
        code, why = await cordon(topic, topic.leader, value)
        assert code == ErrorCode.INVALID_REQUEST and message in (why or "")

    play(story)
