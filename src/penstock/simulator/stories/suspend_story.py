"""Story: transactions on a machine that sleeps now and then, with all nodes and clients, for up to eight hours.

The event loop's time stops meanwhile, and the other clocks continue. Brokers die in between, so that other coordinators
take over that have just started, and whose clocks never slept. These must not consider the transactions old:
`FreshTransactionsLive`. The other laws of transactions hold as well. (Groups are left out: sessions do end while a
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
