from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.elections import RECOVERING
from penstock.controller.reassignments import plan_reassignment
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.simulator.stories.controller_world import World


@pytest.fixture
def world() -> World:
    world = World(brokers=5)
    world.assign("orders", (1, 2, 3))
    return world


def ongoing(world: World, topics: list[tuple[str, list[int]]] | None = None) -> list[tuple[str, int, Any, Any, Any]]:
    request = ListPartitionReassignmentsRequest(
        topics=None
        if topics is None
        else [ListPartitionReassignmentsTopics(name=name, partition_indexes=ids) for name, ids in topics]
    )
    response = world.do(world.controller.list_partition_reassignments(request))
    return [
        (topic.name, entry.partition_index, entry.replicas, entry.adding_replicas, entry.removing_replicas)
        for topic in response.topics
        for entry in topic.partitions
    ]


def test_a_reassignment_waits_until_the_new_replicas_are_in_sync(world: World) -> None:
    assert world.reassign("orders", (4, 5, 1)).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert partition.replicas == (4, 5, 1, 2, 3)
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 0)
    assert partition.directory_of(4) == world.image.brokers[4].default_directory
    assert ongoing(world) == [("orders", 0, [4, 5, 1, 2, 3], [4, 5], [2, 3])]
    assert ongoing(world, [("orders", [0, 7]), ("none", [0])]) == ongoing(world)
    assert ongoing(world, [("orders", [7])]) == []
    world.alter("orders", (1, 2, 3, 4))
    assert world.partition("orders").reassigning
    assert world.alter("orders", (1, 2, 3, 4, 5)).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 5, 1), (1, 4, 5), 1)
    assert not partition.reassigning and len(partition.directories) == 3
    assert partition.leader_epoch == 1  # replicas went
    assert ongoing(world) == []


def test_what_needs_no_copying_is_done_at_once(world: World) -> None:
    world.reassign("orders", (3, 2, 1))
    partition = world.partition("orders")
    assert (partition.replicas, partition.leader, partition.reassigning) == ((3, 2, 1), 1, False)
    world.reassign("orders", (3, 2))
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader, partition.reassigning) == ((3, 2), (2, 3), 3, False)


def test_fewer_replicas_wait_for_those_that_stay(world: World) -> None:
    world.alter("orders", (1, 2))
    world.reassign("orders", (1, 3))
    assert world.partition("orders").removing_replicas == (2,)
    world.alter("orders", (1, 2, 3))
    assert world.partition("orders").replicas == (1, 3)


def test_cancelling_brings_back_what_was(world: World) -> None:
    assert world.reassign("orders", None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    world.reassign("orders", (4, 5, 1))
    world.alter("orders", (1, 2, 3, 4))
    assert world.reassign("orders", None).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert (sorted(partition.replicas), partition.isr, partition.reassigning) == ([1, 2, 3], (1, 2, 3), False)
    assert partition.leader == 1


def test_cancelling_takes_leadership_from_a_new_replica(world: World) -> None:
    world.reassign("orders", (4, 5, 1))
    world.alter("orders", (1, 2, 3, 4))
    for broker_id in (1, 2, 3):
        world.fence(broker_id)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr) == (4, (4,))
    # None of the previous replicas has all records.
    refused = world.reassign("orders", None)
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    world.set_config("orders", "unclean.leader.election.enable", "true")
    world.unfence(2)
    assert world.reassign("orders", None).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert sorted(partition.replicas) == [1, 2, 3]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)


def test_cancelling_while_nobody_leads_needs_no_unclean_election() -> None:
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2))
    world.reassign("orders", (1, 3))
    world.fence(2)
    world.fence(1)
    assert world.partition("orders").leader == NO_LEADER
    assert world.reassign("orders", None).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert (sorted(partition.replicas), partition.isr, set(partition.elr)) == ([1, 2], (), {1, 2})
    world.unfence(2)
    assert world.partition("orders").leader == 2


def test_a_second_reassignment_replaces_the_first(world: World) -> None:
    world.reassign("orders", (4, 2, 3))
    world.reassign("orders", (5, 2, 3))
    partition = world.partition("orders")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((5, 2, 3, 1), (5,), (1,))
    world.reassign("orders", None)
    assert sorted(world.partition("orders").replicas) == [1, 2, 3]


def test_a_replica_still_on_its_way_is_waited_for_by_the_next_reassignment() -> None:
    partition = Partition((4, 2, 1), (b"",) * 3, (1, 2), 1, adding_replicas=(4,), removing_replicas=(1,))
    plan = plan_reassignment(partition, (4, 5))
    assert (plan.replicas, plan.adding, plan.removing) == ((4, 5, 2, 1), (4, 5), (2, 1))


def test_replicas_nobody_wants_stay_while_only_they_are_in_sync() -> None:
    partition = Partition((4, 2, 1), (b"",) * 3, (4,), 4, adding_replicas=(4,), removing_replicas=(1,))
    plan = plan_reassignment(partition, (5, 2))
    assert (plan.replicas, plan.adding, plan.removing, plan.isr) == ((5, 2, 1, 4), (5,), (1, 4), (4,))


@pytest.mark.parametrize(("elr", "last_known"), [((4,), (2,)), ((), (4,))], ids=["eligible", "led last"])
def test_replicas_nobody_wants_stay_while_only_they_know_how_things_ended(
    elr: tuple[int, ...], last_known: tuple[int, ...]
) -> None:
    partition = Partition((4, 2, 1), (b"",) * 3, (), NO_LEADER, adding_replicas=(4,), removing_replicas=(1,))
    partition = partition._replace(elr=elr, last_known_elr=last_known)
    plan = plan_reassignment(partition, (5, 2))
    assert (plan.replicas, plan.adding, plan.removing, plan.isr) == ((5, 2, 1, 4), (5,), (1, 4), ())


def test_a_second_reassignment_keeps_the_one_eligible_leader() -> None:
    """It came with the first one, which the second one replaces."""
    world = World(brokers=5, elr=True)
    world.assign("orders", (1, 2))
    world.reassign("orders", (3, 4))
    world.alter("orders", (1, 2, 3))
    for broker_id in (2, 1, 3):
        world.fence(broker_id)
    assert (world.partition("orders").isr, world.partition("orders").elr) == ((), (3,))
    world.reassign("orders", (4, 5))
    assert world.partition("orders").removing_replicas == (1, 2, 3)
    world.unfence(3)
    assert world.partition("orders").leader == 3
    world.alter("orders", (3, 4, 5))
    assert world.partition("orders").replicas == (4, 5)


def test_the_replication_factor_may_be_kept(world: World) -> None:
    refused = world.reassign("orders", (1, 2), allow_replication_factor_change=False)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    world.reassign("orders", (4, 5, 1), allow_replication_factor_change=False)
    refused = world.reassign("orders", (1, 2, 3, 4, 5), allow_replication_factor_change=False)
    assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.reassign("orders", (1, 2, 4), allow_replication_factor_change=False).error_code == ErrorCode.NONE


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 99)])
def test_assignments_that_cannot_be(world: World, replicas: tuple[int, ...]) -> None:
    result = world.reassign("orders", replicas)
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and result.error_message


def test_unknown_partitions(world: World) -> None:
    assert world.reassign("nowhere", (1,)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.reassign("orders", (1,), 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_a_topic_ends_its_reassignment(world: World) -> None:
    world.reassign("orders", (4, 5, 1))
    world.delete("orders")
    assert ongoing(world) == []
