"""A throttled reassignment takes the time that its rate says, and leaves those that are in sync alone."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import BROKER_RESOURCE, TOPIC, TOPIC_RESOURCE, ReplicatedTopic

BATCHES, BATCH_BYTES = 120, 5000
RATE = 50_000
# What may be fetched at once before anybody is held back, and what one fetch may take beyond.
BURST_BYTES, FETCH_BYTES = RATE, 20_000
LEADING = {"leader_replication_throttled_rate": str(RATE)}
FOLLOWING = {"follower_replication_throttled_rate": str(RATE)}


async def moved_in(topic: ReplicatedTopic, throttles: dict[int, dict[str, str]]) -> float:
    """How long it takes to bring a third replica in sync, while the topic is written to."""
    loop = topic.world.loop
    for broker_id, configs in throttles.items():
        await topic.alter(BROKER_RESOURCE, str(broker_id), **configs)
    began = loop.time()
    await topic.reassign(1, 2, 3)
    arrived = asyncio.ensure_future(topic.in_sync(1, 2, 3, patience_s=120))
    while not arrived.done():
        sent = loop.time()
        assert await topic.produce("x" * 100) == ErrorCode.NONE
        # A throttle holds back for seconds; the network for 0.2 s now and then, also twice in a row.
        assert loop.time() - sent < 0.7, "one that is in sync was held back"
        await asyncio.sleep(0.1)
    await arrived
    return loop.time() - began


@pytest.mark.parametrize(
    ("throttles", "named"),
    [
        pytest.param({1: LEADING}, "0:1,0:2,0:3", id="leader"),
        pytest.param({3: FOLLOWING}, "0:1,0:2,0:3", id="follower"),
        pytest.param({1: LEADING, 2: FOLLOWING, 3: FOLLOWING}, "*", id="both, and a follower in sync"),
    ],
)
def test_the_rate_is_kept(throttles: dict[int, dict[str, str]], named: str) -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(
            loop, replicas=(1, 2), properties={"replica.fetch.max.bytes": str(FETCH_BYTES)}
        )
        for _ in range(BATCHES):
            assert await topic.produce("x" * BATCH_BYTES) == ErrorCode.NONE
        await topic.alter(
            TOPIC_RESOURCE,
            TOPIC,
            leader_replication_throttled_replicas=named,
            follower_replication_throttled_replicas=named,
        )
        seconds = await moved_in(topic, throttles)
        size = topic.replica(topic.leader).log.size
        slowest = size / RATE * 1.25
        fastest = (BATCHES * BATCH_BYTES - BURST_BYTES - FETCH_BYTES) / RATE
        assert fastest <= seconds <= slowest + 1, (fastest, seconds, slowest)

    simulate(story)


def test_replicas_that_are_not_named_are_not_held_back() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(
            loop, replicas=(1, 2), properties={"replica.fetch.max.bytes": str(FETCH_BYTES)}
        )
        for _ in range(BATCHES):
            assert await topic.produce("x" * BATCH_BYTES) == ErrorCode.NONE
        await topic.alter(
            TOPIC_RESOURCE,
            TOPIC,
            leader_replication_throttled_replicas="0:2",
            follower_replication_throttled_replicas="0:1,0:2",
        )
        assert await moved_in(topic, {1: LEADING, 3: FOLLOWING}) < 3

    simulate(story)
