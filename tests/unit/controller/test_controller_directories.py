from __future__ import annotations

import pytest

from penstock.controller.elections import RECOVERING, Election
from penstock.metadata.cluster import default_directory
from penstock.metadata.partition import LOST_DIRECTORY, MIGRATING_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from penstock.simulator.stories.controller_world import World, directory, registration


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


def test_a_new_disk_is_where_replicas_are_once_the_broker_says_so() -> None:
    """A directory that is missing may come back with all it had, unless the broker has made its replicas anew."""
    world = World(brokers=3)
    world.assign("orders", (1, 2))
    world.assign("others", (1, 3))
    world.alter("orders", (1,))
    world.start_broker(2, incarnation=2, disk=1)
    assert world.partition("orders").directories == (directory(1), directory(2))
    assert world.alter("orders", (1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert assigned(world, world.located(2, "orders", directory(2, disk=1))) == ErrorCode.NONE
    assert world.partition("orders").directories == (directory(1), directory(2, disk=1))
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


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_broker_with_a_new_disk_never_leads_what_was_on_the_old_one(clean: bool, elr: bool) -> None:
    world = World(elr=elr)
    world.create("orders")
    world.start_broker(1, incarnation=2, disk=1, clean=clean)
    assert world.partition("orders").leader == NO_LEADER
    assigned(world, world.located(1, "orders", directory(1, disk=1)))
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (NO_LEADER, (), (), ())
    world.fence(1)
    world.unfence(1)
    assert world.partition("orders").leader == NO_LEADER
    world.elect(Election.UNCLEAN)
    partition = world.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (1, RECOVERING)


def test_a_partition_without_leader_does_not_wait_for_a_replaced_disk() -> None:
    world = World({"min.insync.replicas": "2"}, brokers=2, elr=True)
    world.assign("orders", (1, 2))
    world.fence(2)
    world.fence(1)
    assert world.partition("orders").last_known_elr == (1,)
    world.start_broker(1, incarnation=2, disk=1, clean=True)
    assert world.partition("orders").leader == NO_LEADER
    assigned(world, world.located(1, "orders", directory(1, disk=1)))
    partition = world.partition("orders")
    assert (partition.leader, partition.elr, partition.last_known_elr) == (NO_LEADER, (2,), ())
    world.unfence(2)
    partition = world.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, 0)


# -- several directories -----------------------------------------------------------------------------------------------

A, B, REPLACED = directory(2), directory(2, disk=1), directory(2, disk=2)


def start_with(world: World, directories: list[Uuid], incarnation: int, *, clean: bool = False) -> None:
    """Broker 2, with these directories."""
    request = registration(2, incarnation=incarnation)
    request.log_dirs = directories
    if clean:
        request.previous_broker_epoch = world.epoch(2)
    world.run(lambda controller: controller.register_broker(request))
    world.unfence(2)


def two_disks(*, elr: bool, **configs: str) -> World:
    """Broker 2 has two disks, leads `orders`, and is alone in sync; broker 1 has an older part of it."""
    world = World(brokers=1, elr=elr)
    start_with(world, [A, B], 1)
    world.assign("orders", (2, 1), **configs)
    world.alter("orders", (2,))
    return world


def test_a_missing_disk_is_one_change_of_each_partition() -> None:
    """Also of one that the broker both led last and is eligible to lead."""
    world = two_disks(elr=True)
    world.fence(2)
    before = world.partition("orders")
    assert before.elr == before.last_known_elr == (2,)
    start_with(world, [B, REPLACED], 2)
    partition = world.partition("orders")
    assert (partition.elr, partition.last_known_elr) == ((), ())
    assert partition.partition_epoch == before.partition_epoch + 1


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_an_unassigned_replica_may_have_been_on_the_disk_that_is_gone(clean: bool, elr: bool) -> None:
    world = two_disks(elr=elr)
    assert world.partition("orders").directory_of(2) == UNASSIGNED_DIRECTORY
    start_with(world, [REPLACED, B], 2, clean=clean)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (NO_LEADER, (), (), ())
    assigned(world, world.located(2, "orders", REPLACED))
    assert world.partition("orders").leader == NO_LEADER


@pytest.mark.parametrize("elr", [False, True])
def test_an_unassigned_replica_is_trusted_while_no_disk_is_missing(elr: bool) -> None:
    world = two_disks(elr=elr)
    start_with(world, [A, B, REPLACED], 2, clean=True)
    assert world.partition("orders").leader == 2


@pytest.mark.parametrize("elr", [False, True])
def test_a_disk_that_fails_and_comes_back_has_what_it_had(elr: bool) -> None:
    world = two_disks(elr=elr)
    assigned(world, world.located(2, "orders", A))
    world.heartbeat(2, offline_log_dirs=[A])
    assert world.partition("orders").leader == NO_LEADER
    start_with(world, [B], 2)
    assert world.partition("orders").leader == NO_LEADER
    assert world.partition("orders").directory_of(2) == A
    start_with(world, [A, B], 3)
    assert world.partition("orders").leader == 2


@pytest.mark.parametrize("elr", [False, True])
def test_a_disk_that_fails_and_is_replaced_has_nothing(elr: bool) -> None:
    world = two_disks(elr=elr)
    assigned(world, world.located(2, "orders", A))
    world.heartbeat(2, offline_log_dirs=[A])
    start_with(world, [REPLACED, B], 2)
    assigned(world, world.located(2, "orders", REPLACED))
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (NO_LEADER, (), (), ())
    world.fence(2)
    world.unfence(2)
    assert world.partition("orders").leader == NO_LEADER


@pytest.mark.parametrize("elr", [False, True])
def test_an_unclean_election_takes_the_survivor_before_the_replica_that_begins_anew(elr: bool) -> None:
    world = two_disks(elr=elr, unclean_leader_election_enable="true")
    assigned(world, world.located(2, "orders", A))
    world.fence(1)
    start_with(world, [REPLACED, B], 2)
    world.unfence(1)
    assigned(world, world.located(2, "orders", REPLACED))
    partition = world.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (1, RECOVERING)


def test_a_replica_that_moves_between_disks_stays_in_sync() -> None:
    world = two_disks(elr=False)
    assigned(world, world.located(2, "orders", A))
    assigned(world, world.located(2, "orders", B))
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.directory_of(2)) == (2, (2,), B)


def test_a_broker_that_registers_again_with_fewer_directories_leads_nothing_there() -> None:
    """The same process: its registration was forgotten, and a directory failed meanwhile."""
    world = World(brokers=1)
    start_with(world, [A, B], 1)
    for name, where in (("here", A), ("there", B)):
        world.assign(name, (2, 1))
        assigned(world, world.located(2, name, where))
    start_with(world, [B], 1)
    assert (world.partition("here").leader, world.partition("here").isr) == (1, (1,))
    assert (world.partition("there").leader, world.partition("there").isr) == (2, (2, 1))


def test_a_lost_directory_is_no_place_to_lead_from() -> None:
    world = two_disks(elr=True)
    assigned(world, world.located(2, "orders", LOST_DIRECTORY))
    assert world.partition("orders").leader == NO_LEADER
    assert default_directory([]) == MIGRATING_DIRECTORY
    assert default_directory([A]) == A
    assert default_directory([A, B]) == UNASSIGNED_DIRECTORY


def test_the_last_eligible_replica_is_remembered_when_it_crashes() -> None:
    """No other replica is eligible: the disk of the last leader was replaced."""
    world = World({"min.insync.replicas": "2"}, brokers=2, elr=True)
    world.assign("orders", (1, 2))
    world.fence(2)
    world.fence(1)
    world.start_broker(1, incarnation=2, disk=1)
    assigned(world, world.located(1, "orders", directory(1, disk=1)))
    assert (world.partition("orders").elr, world.partition("orders").last_known_elr) == ((2,), ())
    world.register(2, incarnation=2)
    assert (world.partition("orders").elr, world.partition("orders").last_known_elr) == ((), (2,))
    world.unfence(2)
    partition = world.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, RECOVERING)
