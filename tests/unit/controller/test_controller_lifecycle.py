"""Brokers from registration to shutdown, by their heartbeats."""

from __future__ import annotations

import itertools

import pytest

from penstock.controller.heartbeats import BrokerSession
from penstock.controller.lifecycle import State, next_state
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.simulator.stories.controller_world import World, directory, registration


def code_of(world: World, request: BrokerHeartbeatRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.controller.broker_heartbeat(request, 0)
    return caught.value.code


# -- the table ---------------------------------------------------------------------------------------------------------


def step(state: State, **facts: bool) -> State:
    unsaid = dict.fromkeys(("want_fence", "want_shut_down", "caught_up", "leads", "others_know"), False)
    return next_state(state, **{**unsaid, **facts})


def test_the_table_of_states() -> None:
    assert step(State.FENCED) is State.FENCED
    assert step(State.FENCED, caught_up=True) is State.UNFENCED
    assert step(State.FENCED, caught_up=True, want_fence=True) is State.FENCED
    assert step(State.FENCED, caught_up=True, want_shut_down=True) is State.SHUTDOWN_NOW
    assert step(State.UNFENCED) is State.UNFENCED
    assert step(State.UNFENCED, want_fence=True) is State.FENCED
    assert step(State.UNFENCED, want_fence=True, want_shut_down=True, leads=True) is State.SHUTDOWN_NOW
    assert step(State.UNFENCED, want_shut_down=True, leads=True) is State.CONTROLLED_SHUTDOWN
    assert step(State.UNFENCED, want_shut_down=True) is State.SHUTDOWN_NOW
    assert step(State.CONTROLLED_SHUTDOWN, want_shut_down=True, others_know=True) is State.SHUTDOWN_NOW
    assert step(State.CONTROLLED_SHUTDOWN, others_know=True, leads=True) is State.CONTROLLED_SHUTDOWN
    for leads, want in itertools.product((False, True), repeat=2):
        assert step(State.CONTROLLED_SHUTDOWN, leads=leads, want_shut_down=want) is State.CONTROLLED_SHUTDOWN


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_broker_is_unfenced_when_it_has_caught_up_with_its_registration() -> None:
    world = World(brokers=1)
    world.register(2)
    registered_at = world.offset
    behind = world.heartbeat(2, offset=registered_at - 1)
    assert (behind.is_caught_up, behind.is_fenced, behind.should_shut_down) == (False, True, False)
    assert world.heartbeat(2, want_fence=True).is_fenced
    ready = world.heartbeat(2, offset=registered_at)
    assert (ready.is_caught_up, ready.is_fenced, ready.should_shut_down) == (True, False, False)
    assert world.image.brokers[2].active
    before = world.offset
    assert not world.heartbeat(2).is_fenced
    assert world.offset == before


def test_what_a_registration_cleans_up_must_be_replayed_too() -> None:
    """The epoch is where the batch begins; the registration is at its end."""
    world = World(brokers=2)
    world.create("orders", partitions=4, replication_factor=2)
    epoch = world.register(1, incarnation=2)
    assert epoch < world.offset
    assert world.heartbeat(1, offset=epoch).is_fenced
    assert not world.heartbeat(1, offset=world.offset).is_fenced


def test_a_controller_that_takes_over_knows_only_that_the_registration_is_not_later_than_itself() -> None:
    world = World(brokers=1)
    epoch = world.register(2)
    world.controller.reset(world.image)
    assert world.heartbeat(2, offset=epoch - 1).is_fenced
    assert not world.heartbeat(2, offset=world.offset).is_fenced


def test_heartbeats_of_the_wrong_incarnation_are_refused() -> None:
    world = World(brokers=1)
    epoch = world.epoch(1)
    assert code_of(world, BrokerHeartbeatRequest(broker_id=2, broker_epoch=1)) is ErrorCode.STALE_BROKER_EPOCH
    world.register(1, incarnation=2)
    assert code_of(world, BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)) is ErrorCode.STALE_BROKER_EPOCH
    assert not world.controller.heartbeats.session_alive(1, 0)


def test_a_session_keeps_others_from_registering() -> None:
    world = World(brokers=1)
    world.heartbeat(1)
    heartbeats = world.controller.heartbeats
    request = registration(1, incarnation=2)
    with pytest.raises(KafkaError) as caught:
        world.controller.register_broker(request, session_alive=heartbeats.session_alive(1, 10))
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    session = BrokerSession(1, world.epoch(1))
    heartbeats.contact_lost(*session)
    assert heartbeats.session_alive(1, 20)  # a connection that ended: the broker may live
    heartbeats.process_gone(session, 20)
    world.do(world.controller.register_broker(request, session_alive=heartbeats.session_alive(1, 20)))
    assert world.image.brokers[1].incarnation_id == request.incarnation_id
    assert heartbeats.overdue(1_000_000) == []  # the session of the one before is over


def test_a_fenced_broker_is_not_watched_until_it_is_heard_of() -> None:
    world = World(brokers=2)
    world.heartbeat(2)
    heartbeats = world.controller.heartbeats
    world.fence(2)
    assert heartbeats.next_deadline_ms is None
    world.heartbeat(2, want_fence=True)
    assert heartbeats.session_alive(2, 0)


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
def test_a_controlled_shutdown_moves_leaders_and_waits_until_all_know(elr: bool) -> None:
    world = World(brokers=3, elr=elr)
    world.create("orders", partitions=6, replication_factor=3)
    for broker_id in (2, 3):
        world.heartbeat(broker_id)
    response = world.heartbeat(1, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (False, False)
    broker = world.image.brokers[1]
    assert broker.in_controlled_shutdown and not broker.fenced
    for partition_id in range(6):
        partition = world.partition("orders", partition_id)
        assert partition.leader in (2, 3) and partition.isr == tuple(b for b in partition.replicas if b != 1)
    # The others have not said that they know.
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    world.heartbeat(2)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    world.heartbeat(3)
    response = world.heartbeat(1, want_shut_down=True)
    assert (response.is_fenced, response.should_shut_down) == (True, True)
    assert world.image.brokers[1].fenced
    # Once more, should the answer have been lost.
    assert world.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    world = World(brokers=2)
    assert world.heartbeat(2, want_shut_down=True).should_shut_down
    assert world.image.brokers[2].fenced


def test_a_broker_alone_stops_and_comes_back_as_leader() -> None:
    for elr in (False, True):
        world = World(elr=elr)
        world.create("orders", partitions=2)
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        assert world.partition("orders").leader == NO_LEADER
        assert world.heartbeat(1, want_shut_down=True).should_shut_down
        world.start_broker(1, incarnation=2, clean=True)
        partition = world.partition("orders")
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
        assert partition.leader_recovery_state == 0


def test_a_controller_that_takes_over_goes_on_with_a_shutdown() -> None:
    world = World(brokers=2)
    world.create("orders", partitions=2, replication_factor=2)
    world.heartbeat(1, want_shut_down=True)
    world.controller.reset(world.image)
    world.controller.heartbeats.activate(world.image.brokers, 0)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    world.heartbeat(2)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_shuts_down_is_not_elected_and_gets_no_replicas() -> None:
    world = World(brokers=3)
    world.create("orders", partitions=3, replication_factor=3)
    world.heartbeat(1, want_shut_down=True)
    world.create("late", partitions=4, replication_factor=2)
    assert all(1 not in world.partition("late", index).replicas for index in range(4))
    partition = world.partition("orders")
    assert world.alter("orders", (*partition.isr, 1)).error_code == ErrorCode.INELIGIBLE_REPLICA


# -- directories -------------------------------------------------------------------------------------------------------


def with_two_disks(world: World) -> None:
    request = registration(2)
    request.log_dirs = [directory(2), directory(2, disk=1)]
    world.run(lambda controller: controller.register_broker(request))
    world.unfence(2)


def test_a_broken_disk_takes_its_replicas_out_of_sync() -> None:
    world = World(brokers=1)
    with_two_disks(world)
    world.assign("here", (2, 1))
    world.assign("there", (2, 1))
    for name, disk in (("here", 0), ("there", 1)):
        world.do(world.controller.assign_replicas_to_dirs(world.located(2, name, directory(2, disk))))
    response = world.heartbeat(2, offline_log_dirs=[directory(2)])
    assert not response.is_fenced
    assert world.image.brokers[2].directories == (directory(2, disk=1),)
    assert (world.partition("here").leader, world.partition("here").isr) == (1, (1,))
    assert (world.partition("there").leader, world.partition("there").isr) == (2, (2, 1))
    before = world.offset
    world.heartbeat(2, offline_log_dirs=[directory(2)])
    assert world.offset == before


def test_a_broker_without_any_disk_is_fenced() -> None:
    world = World(brokers=2)
    world.assign("orders", (2, 1))
    assert world.heartbeat(2, offline_log_dirs=[directory(2)]).is_fenced
    assert world.partition("orders").leader == 1


def test_cordoned_directories_are_written_down_once() -> None:
    world = World(brokers=2)
    world.heartbeat(2, cordoned_log_dirs=[directory(2)])
    assert world.image.brokers[2].cordoned
    before = world.offset
    world.heartbeat(2, cordoned_log_dirs=[directory(2)])
    world.heartbeat(2, cordoned_log_dirs=None)
    assert world.offset == before
    world.create("orders", partitions=2)
    assert all(world.partition("orders", index).replicas == (1,) for index in range(2))


# -- leaving for good --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
def test_unregistering_a_broker_takes_it_out_of_everything_but_the_replicas(elr: bool) -> None:
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=elr)
    world.assign("orders", (3, 1))
    world.fence(1)
    assert world.partition("orders").elr == ((1,) if elr else ())
    response = world.run(lambda controller: controller.unregister_broker(UnregisterBrokerRequest(broker_id=1)))
    assert response.error_code == 0 and 1 not in world.image.brokers
    partition = world.partition("orders")
    assert (partition.replicas, partition.isr, partition.elr) == ((3, 1), (3,), ())
    with pytest.raises(KafkaError) as caught:
        world.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
