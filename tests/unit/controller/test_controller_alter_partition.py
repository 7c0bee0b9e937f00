from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.elections import RECOVERED, RECOVERING
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.alter_partition import BrokerState
from penstock.simulator.stories.controller_world import World


@pytest.fixture
def world() -> World:
    world = World({"min.insync.replicas": "2"}, brokers=4)
    world.assign("orders", (1, 2, 3))
    return world


def test_the_leader_shrinks_and_expands(world: World) -> None:
    result = world.alter("orders", (1, 2))
    assert (result.error_code, result.leader_id, result.isr) == (ErrorCode.NONE, 1, [1, 2])
    assert (result.leader_epoch, result.partition_epoch) == (0, 1)
    assert world.partition("orders").isr == (1, 2)
    result = world.alter("orders", (1, 2, 3))
    assert (result.isr, result.partition_epoch, world.partition("orders").leader_epoch) == ([1, 2, 3], 2, 0)
    # The same again changes nothing, and is answered as it is.
    offset = world.offset
    assert world.alter("orders", (1, 2, 3)).partition_epoch == 2
    assert world.offset == offset


def test_version_2_has_no_broker_epochs(world: World) -> None:
    result = world.alter("orders", (), new_isr=[1, 2], new_isr_with_epochs=[])
    assert (result.error_code, result.isr) == (ErrorCode.NONE, [1, 2])


@pytest.mark.parametrize(
    ("isr", "different", "expected"),
    [
        ((1, 2), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((1, 2), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 2), {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 4), {}, ErrorCode.INVALID_REQUEST),
        ((1, 1), {}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_proposals_that_are_refused(
    world: World, isr: tuple[int, ...], different: dict[str, Any], expected: ErrorCode
) -> None:
    offset = world.offset
    assert world.alter("orders", isr, **different).error_code == expected
    assert world.offset == offset


def test_only_who_is_alive_and_the_same_may_be_in_sync(world: World) -> None:
    world.alter("orders", (1, 2))
    stale = world.epoch(3)

    def propose(epoch: int) -> int:
        states = [BrokerState(broker_id=1, broker_epoch=world.epoch(1)), BrokerState(broker_id=3, broker_epoch=epoch)]
        return int(world.alter("orders", (), new_isr_with_epochs=states).error_code)

    world.fence(3)
    assert propose(stale) == ErrorCode.INELIGIBLE_REPLICA
    world.start_broker(3, incarnation=2)
    assert propose(stale) == ErrorCode.INELIGIBLE_REPLICA
    assert propose(world.epoch(3)) == ErrorCode.NONE
    assert world.partition("orders").isr == (1, 3)


def test_unknown_topics_partitions_and_senders(world: World) -> None:
    request = world.proposal("orders", (1, 2))
    request.topics[0].partitions[0].partition_index = 9
    response = world.do(world.controller.alter_partition(request))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.topics[0].topic_id = b"?" * 16
    response = world.do(world.controller.alter_partition(request))
    assert response.topics[0].topic_id == b"?" * 16
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request.broker_epoch += 1
    with pytest.raises(KafkaError) as caught:
        world.controller.alter_partition(request)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_partition_named_twice_is_altered_once(world: World) -> None:
    request = world.proposal("orders", (1, 2))
    request.topics[0].partitions *= 2
    results = world.do(world.controller.alter_partition(request)).topics[0].partitions
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert world.partition("orders").partition_epoch == 1


def test_recovery_ends_before_anybody_comes_in_sync() -> None:
    world = World({"unclean.leader.election.enable": "true"}, brokers=2)
    world.assign("orders", (1, 2))
    world.alter("orders", (1,))
    world.fence(1)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    world.unfence(1)
    still = world.alter("orders", (2, 1), leader_recovery_state=RECOVERING)
    assert still.error_code == ErrorCode.INVALID_REQUEST
    done = world.alter("orders", (2, 1), leader_recovery_state=RECOVERED)
    assert (done.error_code, done.isr, done.leader_recovery_state) == (ErrorCode.NONE, [2, 1], RECOVERED)


def test_the_last_to_come_in_sync_ends_a_reassignment(world: World) -> None:
    assert world.reassign("orders", (4, 2)).error_code == ErrorCode.NONE
    partition = world.partition("orders")
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ((4, 2, 1, 3), (4,), (1, 3))
    result = world.alter("orders", (1, 2, 3, 4))
    # It is done; but the broker that asked leads no more.
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 2), (2, 4), 4)
    assert not partition.reassigning and partition.leader_epoch == 1


def test_who_leaves_below_the_minimum_is_eligible() -> None:
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2, 3))
    world.alter("orders", (1, 2))
    assert world.partition("orders").elr == ()
    world.alter("orders", (1,))
    assert world.partition("orders").elr == (2,)
    world.fence(1)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    world.fence(2)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1, 2))
    world.unfence(1)
    assert world.partition("orders").leader == 1
