from __future__ import annotations

import pytest

from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from penstock.testing.simulation.controller_world import World, directory, registration


def assigned(world: World, request: AssignReplicasToDirsRequest) -> int:
    response = world.do(world.controller.assign_replicas_to_dirs(request))
    assert response.directories[0].id == request.directories[0].id
    return int(response.directories[0].topics[0].partitions[0].error_code)


def test_directories_are_recorded() -> None:
    world = World(brokers=2)
    world.assign("orders", (1, 2))
    elsewhere = directory(2, disk=5)
    request = registration(2, incarnation=2)
    request.log_dirs = [directory(2), elsewhere]
    world.do(world.controller.register_broker(request))
    before = world.partition("orders")
    assert assigned(world, world.located(2, "orders", elsewhere)) == ErrorCode.NONE
    partition = world.partition("orders")
    assert partition.directories == (directory(1), elsewhere)
    assert partition.leader_epoch == before.leader_epoch
    offset = world.offset
    assigned(world, world.located(2, "orders", elsewhere))
    assert world.offset == offset


def test_a_new_disk_is_where_replicas_are_from_then_on() -> None:
    """With one directory there is no choice, so that nobody has to say it."""
    world = World(brokers=3)
    world.assign("orders", (1, 2))
    world.assign("others", (1, 3))
    world.alter("orders", (1,))
    world.start_broker(2, incarnation=2, disk=1)
    partition = world.partition("orders")
    assert partition.directories == (directory(1), directory(2, disk=1))
    assert world.partition("others").directories == (directory(1), directory(3))
    assert world.alter("orders", (1, 2)).error_code == ErrorCode.NONE
    world.fence(1)
    assert world.partition("orders").leader == 2


def test_a_replica_without_its_directory_cannot_come_in_sync() -> None:
    world = World(brokers=2)
    world.assign("orders", (1, 2))
    world.alter("orders", (1,))
    assert assigned(world, world.located(2, "orders", directory(2, disk=7))) == ErrorCode.NONE
    assert world.alter("orders", (1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_what_is_refused() -> None:
    world = World(brokers=2)
    world.assign("orders", (1,))
    here = directory(2)
    assert assigned(world, world.located(2, "nowhere", here)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assigned(world, world.located(2, "orders", here, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assigned(world, world.located(2, "orders", here)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    request = world.located(1, "orders", here)
    request.directories *= 2
    response = world.do(world.controller.assign_replicas_to_dirs(request))
    assert [entry.topics[0].partitions[0].error_code for entry in response.directories] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    request.broker_epoch -= 1
    with pytest.raises(KafkaError) as caught:
        world.controller.assign_replicas_to_dirs(request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_replica_in_a_directory_that_is_offline_is_out_of_sync() -> None:
    world = World(brokers=2)
    world.assign("orders", (2, 1))
    assert assigned(world, world.located(2, "orders", directory(2, disk=7))) == ErrorCode.NONE
    partition = world.partition("orders")
    assert (partition.leader, partition.isr) == (1, (1,))
    assert partition.directory_of(2) == directory(2, disk=7)


@pytest.mark.parametrize("clean", [False, True])
def test_a_broker_with_a_new_disk_never_leads_what_was_on_the_old_one(clean: bool) -> None:
    world = World(elr=True)
    world.create("orders")
    world.start_broker(1, incarnation=2, disk=1, clean=clean)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (NO_LEADER, (), (), ())
    assigned(world, world.located(1, "orders", directory(1, disk=1)))
    world.fence(1)
    world.unfence(1)
    assert world.partition("orders").leader == NO_LEADER


def test_a_partition_without_leader_does_not_wait_for_a_replaced_disk() -> None:
    world = World({"min.insync.replicas": "2"}, brokers=2, elr=True)
    world.assign("orders", (1, 2))
    world.fence(2)
    world.fence(1)
    assert world.partition("orders").last_known_elr == (1,)
    world.start_broker(1, incarnation=2, disk=1, clean=True)
    partition = world.partition("orders")
    assert (partition.leader, partition.elr, partition.last_known_elr) == (NO_LEADER, (2,), ())
    world.unfence(2)
    partition = world.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, 0)
