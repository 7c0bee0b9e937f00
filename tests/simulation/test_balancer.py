"""A cluster that balances itself, under the misfortunes and the laws of the story `cluster`."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock.broker.partitions.balancer import Balancer
from penstock.controller.balance import Move
from penstock.simulator.program import interleaves, play_on_loop
from penstock.simulator.stories.cluster_story import PROPERTIES, ClusterStory
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop

SEEDS = (1, 4, 6, 7, 13, 16)  # where something is left to be balanced between the misfortunes
MISFORTUNES = ("reassign", "reassign", "reassign", "kill", "stop", "cut", "lose_controller", "aim")


class BalancedStory(ClusterStory):
    properties = {
        **PROPERTIES,
        "penstock.balance.enable": "true",
        "penstock.balance.interval.seconds": "1",
        "penstock.balance.max.moves": "1",
    }

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, misfortunes=MISFORTUNES)

    async def pause(self) -> None:
        """Nothing is balanced before all is in sync, so misfortunes are further apart than in the story."""
        await asyncio.sleep(10 * self.chance.random())


def test_moves_of_the_balancer_keep_every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    quietly()
    moves: Counter[int] = Counter()
    original = Balancer._move

    async def move(self: Balancer, planned: list[Move]) -> None:
        await original(self, planned)
        moves[seed] += len(planned)

    monkeypatch.setattr(Balancer, "_move", move)
    for seed in SEEDS:
        found = play_on_loop(seed, lambda loop: BalancedStory(loop, seed), interleaves=interleaves(seed))  # noqa: B023
        assert found.violation is None, f"seed {seed}: {found.violation}"
    assert len(moves) > len(SEEDS) / 2, moves
