"""Each replica deletes old segments by itself. The leader has to know where a follower's log begins, also when nothing
is written any more: it would send consumers to a follower in their rack that has not what they ask for, for ever.
"""

from __future__ import annotations

import asyncio

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import TOPIC, TOPIC_RESOURCE, ReplicatedTopic


def test_a_leader_learns_what_its_followers_have_deleted() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(
            loop,
            replicas=(1, 2),
            configs={"segment.ms": "100"},
            properties={"log.retention.check.interval.ms": "1000"},
        )
        for number in range(10):
            assert await topic.produce(f"{number}" * 1000) == ErrorCode.NONE
            await asyncio.sleep(0.2)
        await topic.alter(TOPIC_RESOURCE, TOPIC, retention_bytes="3000")
        await asyncio.sleep(10)
        (follower,) = topic.followers
        log_start = topic.replica(follower).log.log_start_offset
        assert 0 < log_start == topic.replica(topic.leader).log.log_start_offset
        known = present(topic.replica(topic.leader).leader).followers[int(follower.name.removeprefix("broker-"))]
        assert known.log_start == log_start

    simulate(story)
