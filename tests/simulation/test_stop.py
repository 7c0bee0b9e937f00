"""A node that stops while the metadata changes: it stops cleanly, and the next process acts on the change."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from penstock.simulator.client import Lost
from penstock.simulator.stories.broker_world import DATA, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

PARTITIONS = 3


@pytest.mark.parametrize("seed", range(6))  # it used to fail with seed 2
def test_a_topic_is_deleted_while_its_logs_are_closed(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, seed)
        loop.interleaves = True
        loop.executor_delay = lambda: world.chance.uniform(0.0, 0.02)
        await world.start()
        async with world.client() as client:
            await client.create_topic("t", partitions=PARTITIONS)

            async def delete() -> None:
                with suppress(Lost):
                    await client.delete_topic("t")

            asked = asyncio.create_task(delete())
            await asyncio.sleep(world.chance.uniform(0.0, 0.01))
            await world.stop()
            await asked
        assert not world.failures
        await world.start()
        async with world.client() as client:
            assert world.disk.exists(f"{DATA}/t-0") == ("t" in await client.topics())

    quietly()
    simulate(program, seed)
