"""What a node promised is kept, whatever befalls it: seeded stories on a simulated disk, clock and network.

A failure names its seed; `STORY_SEED=<seed> pytest tests/simulation/test_broker_durability.py -k replay` runs it again.
"""

from __future__ import annotations

import os

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.testing.simulated_loop import SimulatedLoop, simulate
from penstock.testing.simulation.broker_world import BrokerWorld
from penstock.testing.simulation.node_story import Story
from penstock.testing.simulation.story import quietly


def tell(seed: int, rounds: int) -> Story:
    quietly()

    async def program(loop: SimulatedLoop) -> Story:
        story = Story(loop, seed, rounds=rounds)
        await story.run()
        return story

    return simulate(program, seed)


@pytest.mark.parametrize("seed", range(8))
def test_short_stories(seed: int) -> None:
    tell(seed, rounds=12)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_long_stories(seed: int) -> None:
    tell(seed, rounds=40)


@pytest.mark.skipif("STORY_SEED" not in os.environ, reason="only to replay a story")
def test_replay() -> None:
    tell(int(os.environ["STORY_SEED"]), rounds=int(os.environ.get("STORY_ROUNDS", "12")))


@pytest.mark.parametrize("changes", range(0, 60, 3))
def test_a_first_start_may_be_killed_anywhere(changes: int) -> None:
    """Whatever half of the formatting is there, the next start makes a node of it, with the same cluster ever after."""
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, changes)
        await world.start(die_after=changes)
        if changes % 4:
            world.power_loss()
        else:
            world.crash()
        assert await world.start()
        async with world.client() as client:
            assert await client.create_topic("t") is ErrorCode.NONE
            cluster = (await client.ask(MetadataRequest(topics=[]))).cluster_id
        world.power_loss()
        assert await world.start()
        async with world.client() as client:
            assert list(await client.topics()) == ["t"]
            assert (await client.ask(MetadataRequest(topics=[]))).cluster_id == cluster

    simulate(program, changes)
