"""A power loss may take the name of a log's first file and leave the next one's: the log then begins late."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic

VALUES = [f"{number}-{'x' * 60}" for number in range(12)]


def test_a_follower_that_lost_its_beginning_starts_over() -> None:
    """Were it taken for in sync with what it has, it could be elected, and the beginning would be gone for good."""
    quietly()

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"internal.segment.bytes": "500"})
        for value in VALUES:
            assert await topic.produce(value) == ErrorCode.NONE
        victim = topic.followers[0]
        victim.crash()
        victim.disk.remove(topic.log_path(0))
        victim.start()
        await topic.in_sync(1, 2, 3)
        assert topic.replica(victim).log.log_start_offset == 0
        for machine in (topic.leader, *topic.followers):
            if machine is not victim:
                machine.crash()
        await topic.world.until(lambda: topic.partition.leader == victim.node_id, "it leads")
        assert await topic.values(victim) == VALUES

    simulate(story)
