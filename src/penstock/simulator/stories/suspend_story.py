"""Transactions on a machine that sleeps now and then: all nodes and clients of it, for up to eight hours at a time.

The event loop's time stands still meanwhile, and the other clocks go on. Brokers die in between, so that coordinators
are followed by others that have just started, whose clocks never slept. Their transactions must not look old to these:
`FreshTransactionsLive`. What else is asked of transactions holds as well. (Groups are left out: sessions do end while a
machine sleeps.)
"""

from __future__ import annotations

from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.coordinator_story import CoordinatorStory
from penstock.simulator.story import StoryResult
from penstock.simulator.twins.loop import SimulatedLoop

ROUNDS = 8
EVENTS = ("suspends", "process crashes", "transactions committed", "transactions aborted", "committed records read")
MISFORTUNES = ("suspend", "suspend", "kill", "kill", "stop", "elect")


class SuspendStory(CoordinatorStory):
    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, rounds=ROUNDS, misfortunes=MISFORTUNES)
        self.groups = []


def play(seed: int) -> StoryResult:
    return play_on_loop(seed, lambda loop: SuspendStory(loop, seed))
