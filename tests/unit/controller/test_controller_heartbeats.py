from __future__ import annotations

import pytest

from penstock.controller.heartbeats import BrokerSession, Heartbeats
from penstock.simulator.stories.controller_world import World

SESSION, REFUSED = 9000, 3000
ONE = BrokerSession(1, 10)


def heard_of(*broker_ids: int, now_ms: int = 0) -> Heartbeats:
    heartbeats = Heartbeats(SESSION, REFUSED)
    for broker_id in broker_ids:
        heartbeats.heartbeat(broker_id, 10 * broker_id, 100, now_ms)
    return heartbeats


def test_a_session_ends_when_nothing_is_heard() -> None:
    heartbeats = heard_of(1, 2)
    assert heartbeats.next_deadline_ms == SESSION
    heartbeats.heartbeat(2, 20, 100, 5000)
    assert heartbeats.overdue(SESSION - 1) == []
    assert heartbeats.session_alive(1, SESSION - 1) and not heartbeats.session_alive(1, SESSION)
    assert heartbeats.overdue(SESSION) == [(1, 10)]
    assert not heartbeats.session_alive(1, SESSION)
    assert heartbeats.overdue(SESSION) == []  # told once,
    assert heartbeats.overdue(2 * SESSION) == [(2, 20), (1, 10)]  # and again if nothing came of it
    heartbeats.fenced(1)
    assert heartbeats.overdue(3 * SESSION) == [(2, 20)]
    heartbeats.heartbeat(2, 20, 100, 3 * SESSION)
    assert heartbeats.session_alive(2, 3 * SESSION)
    heartbeats.forget(2)
    assert heartbeats.next_deadline_ms is None


def test_a_lost_connection_proves_nothing() -> None:
    heartbeats = heard_of(1, 2)
    heartbeats.contact_lost(1, 10)
    assert heartbeats.suspects == [ONE]
    assert heartbeats.next_deadline_ms == SESSION
    assert heartbeats.session_alive(1, SESSION - 1)
    assert heartbeats.overdue(SESSION - 1) == []


def test_a_process_that_is_gone_is_fenced_at_once_and_may_be_succeeded_at_once() -> None:
    heartbeats = heard_of(1, 2)
    heartbeats.contact_lost(1, 10)
    heartbeats.process_gone(ONE, 1000)
    assert not heartbeats.suspects
    assert not heartbeats.session_alive(1, 1000)
    assert heartbeats.next_deadline_ms == 1000
    assert heartbeats.overdue(1000) == [ONE]
    assert not heartbeats.session_alive(1, 1000)


def test_connections_refused_for_a_moment_prove_nothing() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10)
    for now_ms in range(1000, 1000 + REFUSED, 100):
        heartbeats.refused(ONE, now_ms)
    assert heartbeats.next_deadline_ms == SESSION
    # One answer, or silence, and it begins again.
    heartbeats.not_refused(ONE)
    heartbeats.refused(ONE, 1000 + REFUSED)
    assert heartbeats.next_deadline_ms == SESSION


def test_a_broker_whose_connections_stay_refused_is_fenced_but_another_with_its_id_waits_for_the_session() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10)
    heartbeats.refused(ONE, 1000)
    heartbeats.refused(ONE, 1000 + REFUSED)
    assert heartbeats.overdue(1000 + REFUSED) == [ONE]
    heartbeats.fenced(1)
    assert heartbeats.session_alive(1, SESSION - 1) and not heartbeats.session_alive(1, SESSION)
    # The same one is back: from then on it has a session again.
    heartbeats.heartbeat(1, 10, 100, SESSION - 1)
    assert heartbeats.session_alive(1, SESSION)


@pytest.mark.parametrize("is_proven", [True, False])
def test_whoever_was_fenced_early_is_awaited_until_its_session_would_have_ended(is_proven: bool) -> None:
    heartbeats = heard_of(1, 2)
    heartbeats.heartbeat(2, 20, 100, SESSION)
    heartbeats.contact_lost(1, 10)
    if is_proven:
        heartbeats.process_gone(ONE, 1000)
    else:
        heartbeats.refused(ONE, 1000 - REFUSED)
        heartbeats.refused(ONE, 1000)
    assert heartbeats.overdue(1000) == [ONE]
    heartbeats.fenced(1)
    assert [*heartbeats.awaited] == [1]
    assert heartbeats.next_deadline_ms == SESSION
    heartbeats.forget(1)  # its successor registers: that it is not unfenced yet is no reason to elect another
    assert not heartbeats.give_up_awaited(SESSION - 1) and [*heartbeats.awaited] == [1]
    assert heartbeats.give_up_awaited(SESSION) and not heartbeats.awaited
    assert not heartbeats.give_up_awaited(SESSION)


def test_nobody_is_awaited_after_a_whole_session() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10)
    assert heartbeats.overdue(SESSION) == [ONE]
    assert not heartbeats.awaited


def test_a_broker_that_is_back_has_a_whole_session() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10)
    heartbeats.refused(ONE, 1000)
    heartbeats.heartbeat(1, 10, 100, 1200)
    assert not heartbeats.suspects
    heartbeats.refused(ONE, 1000 + REFUSED)  # what was found of it before it was back
    heartbeats.process_gone(ONE, 1000 + REFUSED)
    assert heartbeats.session_alive(1, 1000 + REFUSED)
    assert heartbeats.next_deadline_ms == 1200 + SESSION


def test_what_is_found_never_makes_a_session_longer() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10)
    heartbeats.process_gone(ONE, SESSION + 1)
    assert heartbeats.next_deadline_ms == SESSION


def test_an_earlier_incarnation_does_not_matter() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 9)
    heartbeats.contact_lost(7, 70)
    assert not heartbeats.suspects
    heartbeats.contact_lost(1, 10)
    heartbeats.process_gone(BrokerSession(1, 9), 1000)
    assert heartbeats.session_alive(1, 1000)


def test_the_longest_overdue_come_first() -> None:
    heartbeats = heard_of(1, 2, 3)
    heartbeats.heartbeat(1, 10, 100, 300)
    heartbeats.contact_lost(3, 30)
    heartbeats.process_gone(BrokerSession(3, 30), 100)
    assert [session.broker_id for session in heartbeats.overdue(SESSION + 300)] == [3, 2, 1]


def test_a_controller_that_takes_over_gives_everyone_in_use_a_whole_session() -> None:
    world = World(brokers=2)
    world.register(3)
    heartbeats = Heartbeats(SESSION, REFUSED)
    heartbeats.activate(world.image.brokers, 1000)
    assert heartbeats.session_alive(1, 1000) and heartbeats.session_alive(2, 1000)
    assert not heartbeats.session_alive(3, 1000)
    assert [*heartbeats.awaited] == [3]  # fenced: a moment ago, perhaps
    assert [session.broker_id for session in heartbeats.suspects] == [1, 2]
    heartbeats.heartbeat(1, world.image.brokers[1].epoch, 0, 1000)
    assert [session.broker_id for session in heartbeats.suspects] == [2]
    assert len(heartbeats.overdue(1000 + SESSION)) == 2
    assert not heartbeats.suspects


def test_a_broker_may_stop_when_all_others_know() -> None:
    heartbeats = heard_of(1, 2, 3)
    assert not heartbeats.may_stop(1, [2, 3])  # nothing is known of a shutdown
    heartbeats.shutting_down(1, 120)
    assert heartbeats.is_shutting_down(1)
    heartbeats.heartbeat(2, 20, 120, 0)
    assert not heartbeats.may_stop(1, [2, 3])
    assert not heartbeats.may_stop(1, [2, 9])  # never heard of since this controller took over
    heartbeats.heartbeat(3, 30, 130, 0)
    assert heartbeats.may_stop(1, [2, 3])
    assert heartbeats.may_stop(1, [])
