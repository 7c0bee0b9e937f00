"""Somebody sets the clock of a broker: what is measured in a broker goes on by the time that passes."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic

HOUR_MS = 3_600_000


def test_a_follower_that_lags_is_left_out_though_the_clock_was_set_back() -> None:
    """A producer with acks=all waits for it until then."""

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"min.insync.replicas": "2"})
        lagging, other = topic.followers
        loop.network.partition([topic.leader.name], [lagging.name])
        assert await topic.produce("a", timeout_ms=1000) == ErrorCode.REQUEST_TIMED_OUT
        topic.leader.clock.jump(-HOUR_MS)
        begin = loop.time()
        while await topic.produce("b", timeout_ms=1000) != ErrorCode.NONE:
            assert loop.time() - begin < 20, "nothing can be written"
        assert sorted(topic.partition.isr) == sorted((topic.leader.node_id, other.node_id))

    simulate(story)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_nobody_is_left_out_because_the_clock_was_set(jump_ms: int) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(
            loop, configs={"min.insync.replicas": "2", "message.timestamp.after.max.ms": str(2 * HOUR_MS)}
        )
        over = False

        async def write() -> None:
            while not over:
                assert await topic.produce("x") == ErrorCode.NONE

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(1)
        epoch = topic.partition.partition_epoch
        topic.leader.clock.jump(jump_ms)
        await asyncio.sleep(10)
        over = True
        await writing
        assert topic.partition.partition_epoch == epoch

    simulate(story)
