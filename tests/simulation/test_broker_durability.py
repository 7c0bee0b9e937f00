"""What a node promised is kept, whatever befalls it: seeded stories on a simulated disk, clock and network.

Many more seeds: `python -m penstock.simulator --story node`.
"""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.stories.node_story import play
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_long_stories(seed: int) -> None:
    assert play(seed, rounds=40).violation is None


def test_a_node_that_was_killed_does_not_wait_for_itself() -> None:
    """Its broker is still alive in the metadata, and so for a session, if others were to judge."""
    quietly()

    async def program(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1)
        await world.start()
        world.crash()
        began = loop.time()
        assert await world.start()
        assert loop.time() - began < 5.0

    simulate(program, 1)


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
