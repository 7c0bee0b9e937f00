"""What befalls the replicas of one partition, fault by fault: nobody waits for ever, nobody is told what is not so."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.testing.simulated_loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic


def test_a_follower_fenced_for_a_moment_is_in_sync_again_though_nothing_is_written() -> None:
    """With too few replicas in sync nothing can be written, so that nothing new makes the follower name the
    partition in a fetch; its fetches must count all the same."""

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"min.insync.replicas": "2"}, replicas=(1, 2))
        assert await topic.produce("a") == ErrorCode.NONE
        epoch = topic.partition.leader_epoch
        controller = topic.world.active_controller()
        assert controller is not None
        loop.network.partition([topic.followers[0].name], [controller.name])
        await topic.in_sync(1)
        assert await topic.produce("b") == ErrorCode.NOT_ENOUGH_REPLICAS
        loop.network.heal()
        await topic.in_sync(1, 2, patience_s=10)
        assert topic.partition.leader_epoch == epoch
        assert await topic.produce("c") == ErrorCode.NONE
        assert await topic.values() == ["a", "c"]

    simulate(story)
