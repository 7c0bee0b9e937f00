from __future__ import annotations

from penstock.controller.heartbeats import Heartbeats
from penstock.testing.simulation.controller_world import World

SESSION, GRACE = 9000, 500


def heard_of(*broker_ids: int, now_ms: int = 0) -> Heartbeats:
    heartbeats = Heartbeats(SESSION, GRACE)
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


def test_a_lost_connection_leaves_only_a_short_grace() -> None:
    heartbeats = heard_of(1, 2)
    heartbeats.contact_lost(1, 10, 1000)
    assert not heartbeats.session_alive(1, 1000)  # another process with its id may well be its successor
    heartbeats.contact_lost(1, 10, 1400)  # another of its connections: the first one counts
    assert heartbeats.next_deadline_ms == 1000 + GRACE
    assert heartbeats.overdue(1000 + GRACE) == [(1, 10)]


def test_a_broker_that_is_back_within_the_grace_has_a_whole_session() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10, 1000)
    heartbeats.heartbeat(1, 10, 100, 1200)
    assert heartbeats.session_alive(1, 1200)
    assert heartbeats.overdue(1000 + GRACE) == []
    assert heartbeats.next_deadline_ms == 1200 + SESSION


def test_the_grace_never_makes_a_session_longer() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 10, SESSION - 1)
    assert heartbeats.next_deadline_ms == SESSION


def test_the_connection_of_an_earlier_incarnation_does_not_matter() -> None:
    heartbeats = heard_of(1)
    heartbeats.contact_lost(1, 9, 1000)
    heartbeats.contact_lost(7, 70, 1000)
    assert heartbeats.session_alive(1, 1000)


def test_the_longest_overdue_come_first() -> None:
    heartbeats = heard_of(1, 2, 3)
    heartbeats.heartbeat(1, 10, 100, 300)
    heartbeats.contact_lost(3, 30, 100)
    assert [session.broker_id for session in heartbeats.overdue(SESSION + 300)] == [3, 2, 1]


def test_a_controller_that_takes_over_gives_everyone_in_use_a_whole_session() -> None:
    world = World(brokers=2)
    world.register(3)
    heartbeats = Heartbeats(SESSION, GRACE)
    heartbeats.activate(world.image.brokers, 1000)
    assert heartbeats.session_alive(1, 1000) and heartbeats.session_alive(2, 1000)
    assert not heartbeats.session_alive(3, 1000)
    assert [session.broker_id for session in heartbeats.unheard] == [1, 2]
    heartbeats.heartbeat(1, world.image.brokers[1].epoch, 0, 1000)
    assert [session.broker_id for session in heartbeats.unheard] == [2]
    assert len(heartbeats.overdue(1000 + SESSION)) == 2
    assert not heartbeats.unheard


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
