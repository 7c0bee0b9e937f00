"""Held fetches of followers: answered in the first turn of the loop that brings nothing more."""

from __future__ import annotations

import asyncio

from penstock.broker.partitions.wakeups import HELD_TURNS_MAX, Wakeups
from penstock.simulator.twins.loop import SimulatedLoop, simulate


class Fetch:
    def __init__(self) -> None:
        self.woken = 0

    def data_arrived(self, size: int) -> bool:
        return True

    def wake(self) -> None:
        self.woken += 1


def test_a_fetch_is_answered_in_the_first_turn_without_more() -> None:
    async def story(loop: SimulatedLoop) -> None:
        wakeups, fetch = Wakeups(loop), Fetch()
        for _ in range(3):
            wakeups.hold(fetch)
            await asyncio.sleep(0)
            assert not fetch.woken
        before = loop.time()
        for _ in range(2):
            await asyncio.sleep(0)
        assert fetch.woken == 1
        assert loop.time() == before

    simulate(story)


def test_a_fetch_is_not_held_for_long() -> None:
    async def story(loop: SimulatedLoop) -> None:
        wakeups, fetch = Wakeups(loop), Fetch()
        turns = 0
        while not fetch.woken:
            wakeups.hold(fetch)
            await asyncio.sleep(0)
            turns += 1
        assert 2 < turns <= HELD_TURNS_MAX + 2

    simulate(story)


def test_a_slow_turn_is_the_last() -> None:
    async def story(loop: SimulatedLoop) -> None:
        wakeups, fetch = Wakeups(loop), Fetch()
        wakeups.hold(fetch)
        await asyncio.sleep(0.001)
        wakeups.hold(fetch)
        await asyncio.sleep(0)
        assert fetch.woken

    simulate(story)


def test_a_fetch_that_is_due_at_once_is_not_held() -> None:
    async def story(loop: SimulatedLoop) -> None:
        wakeups, held, due = Wakeups(loop), Fetch(), Fetch()
        wakeups.hold(held)
        wakeups.add(due)
        wakeups.run()
        assert (held.woken, due.woken) == (0, 1)

    simulate(story)
