"""What tests of whole clusters share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.model.errors import ErrorCode
from penstock.simulator.client import Lost
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.twins.loop import SimulatedLoop, simulate


def in_world(story: Callable[[ClusterWorld], Awaitable[None]], seed: int | str = 0, **options: object) -> None:
    async def program(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, seed, **options)  # type: ignore[arg-type]
        await story(world)
        assert not world.failures, world.failures

    simulate(program, seed)


async def create(world: ClusterWorld, broker: str, name: str) -> bool | None:
    """Whether it was created; None if no response said."""
    try:
        async with world.client(broker, patience=20) as client:
            error = await client.create_topic(name)
    except Lost:
        return None
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return None
    # Asked twice on the way, as the controller changed: somebody has created it.
    return error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
