"""Replicated topics of whole clusters under faults: seeded stories.

A failure names its seed; `STORY_SEED=<seed> pytest tests/simulation/test_replication_cluster.py -k replay` runs it
again.
"""

from __future__ import annotations

import os

import pytest

from penstock.testing.simulated_loop import SimulatedLoop, simulate
from penstock.testing.simulation.cluster_story import ReplicationStory
from penstock.testing.simulation.story import quietly


def tell(seed: int, rounds: int) -> ReplicationStory:
    quietly()

    async def program(loop: SimulatedLoop) -> ReplicationStory:
        story = ReplicationStory(loop, seed, rounds=rounds)
        await story.run()
        return story

    try:
        return simulate(program, seed)
    except BaseException as error:
        error.add_note(f"again: STORY_SEED={seed} STORY_ROUNDS={rounds}")
        raise


@pytest.mark.parametrize("seed", range(6))
def test_short_stories(seed: int) -> None:
    tell(seed, rounds=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_long_stories(seed: int) -> None:
    tell(seed, rounds=12)


@pytest.mark.skipif("STORY_SEED" not in os.environ, reason="only to replay a story")
def test_replay() -> None:
    tell(int(os.environ["STORY_SEED"]), rounds=int(os.environ.get("STORY_ROUNDS", "5")))
