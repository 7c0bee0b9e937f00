"""Unclean elections wait for whoever may be back."""

from __future__ import annotations

import pytest

from penstock.controller.heartbeats import BrokerSession
from penstock.metadata.partition import NO_LEADER
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.testing.simulation.controller_world import World

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
    """What whoever watches sessions does."""
    for session in world.controller.heartbeats.overdue(now_ms):
        world.do(world.controller.fence_broker(*session))
    if world.controller.heartbeats.give_up_awaited(now_ms):
        world.do(world.controller.elect_unclean_leaders())


@pytest.mark.parametrize("elr", [True, False])
def test_a_death_that_is_found_early_is_no_reason_for_an_unclean_election(elr: bool) -> None:
    world = world_with_one_in_sync(elr=elr)
    world.heartbeat(1)
    heartbeats = world.controller.heartbeats
    session = BrokerSession(1, world.epoch(1))
    heartbeats.contact_lost(*session)
    heartbeats.process_gone(session, 100)
    end(world, 100)
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
    world.heartbeat(1)
    heartbeats = world.controller.heartbeats
    session = BrokerSession(1, world.epoch(1))
    heartbeats.contact_lost(*session)
    heartbeats.process_gone(session, 100)
    end(world, 100)
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
    world.heartbeat(1)
    heartbeats = world.controller.heartbeats
    session = BrokerSession(1, world.epoch(1))
    heartbeats.contact_lost(*session)
    heartbeats.process_gone(session, 100)
    end(world, 100)
    world.do(world.controller.unregister_broker(UnregisterBrokerRequest(broker_id=1)))
    assert world.partition("t").leader == 2
