"""Unclean elections wait for brokers that may return."""

from __future__ import annotations

import pytest

from penstock.controller.heartbeats import BrokerSession
from penstock.metadata.partition import NO_LEADER
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.simulator.stories.controller_world import World, directory

SESSION_MS = 9000


def world_with_one_in_sync(*, elr: bool) -> World:
    world = World(brokers=2, elr=elr)
    world.assign("t", [1, 2])
    world.set_config("t", "unclean.leader.election.enable", "true")
    world.fence(2)
    world.unfence(2)
    assert world.partition("t").isr == (1,)
    return world


def end(world: World, now_ms: int) -> None:
    """What the watch over sessions does."""
    for session in world.controller.heartbeats.overdue(now_ms):
        world.do(world.controller.fence_broker(*session))
    if world.controller.heartbeats.give_up_awaited(now_ms):
        world.do(world.controller.elect_unclean_leaders())


def die_early(world: World, broker_id: int) -> None:
    """The process is found to be gone, long before its session would have ended."""
    world.heartbeat(broker_id)
    heartbeats = world.controller.heartbeats
    session = BrokerSession(broker_id, world.epoch(broker_id))
    heartbeats.contact_lost(*session)
    heartbeats.process_gone(session, 100)
    end(world, 100)


@pytest.mark.parametrize("elr", [True, False])
def test_a_death_that_is_found_early_is_no_reason_for_an_unclean_election(elr: bool) -> None:
    world = world_with_one_in_sync(elr=elr)
    die_early(world, 1)
    assert world.image.brokers[1].fenced
    assert world.partition("t").leader == NO_LEADER
    world.do(world.controller.elect_unclean_leaders())  # as it is held once in a while
    world.do(world.controller.activate([]))
    end(world, SESSION_MS - 1)
    assert world.partition("t").leader == NO_LEADER
    end(world, SESSION_MS)
    assert world.partition("t").leader == 2


@pytest.mark.parametrize("elr", [True, False])
def test_a_broker_that_is_back_in_time_leads_with_all_it_had(elr: bool) -> None:
    world = world_with_one_in_sync(elr=elr)
    die_early(world, 1)
    world.register(1, incarnation=2)
    world.unfence(1)
    assert world.partition("t").leader == 1
    end(world, SESSION_MS)
    assert world.partition("t").leader == 1


def test_after_a_whole_session_there_is_nobody_to_wait_for() -> None:
    world = world_with_one_in_sync(elr=True)
    world.heartbeat(1)
    end(world, SESSION_MS)
    assert world.partition("t").leader == 2


def test_a_controller_that_takes_over_waits_for_those_it_finds_fenced() -> None:
    world = world_with_one_in_sync(elr=True)
    world.set_config("t", "unclean.leader.election.enable", "false")
    world.fence(1)
    world.set_config("t", "unclean.leader.election.enable", "true")
    world.controller.heartbeats.activate(world.image.brokers, 0)
    world.do(world.controller.activate([]))
    assert world.partition("t").leader == NO_LEADER
    world.now_ms = 100
    world.heartbeat(2)
    end(world, SESSION_MS)
    assert world.partition("t").leader == 2


def test_nobody_waits_for_a_broker_that_is_unregistered() -> None:
    world = world_with_one_in_sync(elr=True)
    die_early(world, 1)
    world.do(world.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1)))
    assert world.partition("t").leader == 2


def world_that_waits_for_a_disk(*, elr: bool) -> World:
    """Broker 1, alone in sync, has died early in its session, and is back with another disk."""
    world = world_with_one_in_sync(elr=elr)
    die_early(world, 1)
    world.register(1, incarnation=2, disk=1)
    assert world.partition("t").leader == NO_LEADER
    return world


@pytest.mark.parametrize("elr", [True, False])
def test_nobody_waits_for_a_replica_that_was_made_anew(elr: bool) -> None:
    world = world_that_waits_for_a_disk(elr=elr)
    world.do(world.controller.assign_replicas_to_dirs(world.located(1, "t", directory(1, disk=1))))
    assert world.partition("t").leader == 2


@pytest.mark.parametrize("elr", [True, False])
def test_a_directory_that_is_missing_is_waited_for_until_the_session_ends(elr: bool) -> None:
    world = world_that_waits_for_a_disk(elr=elr)
    world.unfence(1)
    assert world.partition("t").leader == NO_LEADER
    world.now_ms = 100
    world.heartbeat(2)
    end(world, SESSION_MS)
    assert world.partition("t").leader == 2


def test_nobody_waits_for_a_crashed_replica_while_another_is_eligible() -> None:
    """One that has crashed is not eligible any more; the other was fenced at its own wish."""
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("t", [1, 2, 3])
    world.set_config("t", "unclean.leader.election.enable", "true")
    world.alter("t", [1, 2])
    die_early(world, 2)
    world.heartbeat(1, want_fence=True)
    assert (world.partition("t").leader, set(world.partition("t").elr)) == (NO_LEADER, {1, 2})
    world.register(2, incarnation=2)
    assert world.partition("t").leader == 3


def test_cancelling_a_reassignment_is_no_reason_for_an_unclean_election() -> None:
    world = World(brokers=3, elr=True)
    world.assign("t", [1, 2])
    world.set_config("t", "unclean.leader.election.enable", "true")
    world.alter("t", [1])
    world.reassign("t", [1, 3])
    die_early(world, 1)
    assert world.partition("t").leader == NO_LEADER
    world.reassign("t", None)
    assert (world.partition("t").leader, world.partition("t").replicas) == (NO_LEADER, (1, 2))
    world.register(1, incarnation=2)
    world.unfence(1)
    assert world.partition("t").leader == 1


def test_nobody_waits_for_an_unregistered_broker_that_led_last() -> None:
    world = world_with_one_in_sync(elr=True)
    die_early(world, 1)
    world.register(1, incarnation=2)
    partition = world.partition("t")
    assert (partition.leader, partition.elr, partition.last_known_elr) == (NO_LEADER, (), (1,))
    world.do(world.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1)))
    assert world.partition("t").leader == 2


@pytest.mark.parametrize("elr", [True, False])
def test_a_restart_that_nobody_noticed_is_no_reason_for_an_unclean_election(elr: bool) -> None:
    """The next process registers before the one before it was fenced."""
    world = world_with_one_in_sync(elr=elr)
    world.heartbeat(1)
    world.register(1, incarnation=2)
    assert world.partition("t").leader == NO_LEADER
    world.unfence(1)
    assert world.partition("t").leader == 1


def test_a_restart_that_nobody_noticed_is_waited_for_until_the_session_ends() -> None:
    world = world_with_one_in_sync(elr=True)
    world.heartbeat(1)
    world.register(1, incarnation=2)
    world.now_ms = 100
    world.heartbeat(2)
    end(world, SESSION_MS - 1)
    assert world.partition("t").leader == NO_LEADER
    end(world, SESSION_MS)
    assert world.partition("t").leader == 2
