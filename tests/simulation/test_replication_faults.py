"""Faults of the replicas of one partition, one by one: no client waits for ever, none gets a wrong answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from penstock.model.errors import ErrorCode
from penstock.simulator.client import Lost
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import TOPIC, TOPIC_RESOURCE, ReplicatedTopic


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


def others(topic: ReplicatedTopic, *machines: Machine) -> list[str]:
    """All other nodes; the client is none."""
    return [name for name, machine in topic.world.machines.items() if machine not in machines]


async def waits(topic: ReplicatedTopic, sent: asyncio.Task[ErrorCode], end: int) -> None:
    """Until the record is in the leader's log, up to `end`, and not acknowledged."""
    await topic.world.until(lambda: topic.replica(topic.leader).log.log_end_offset == end, "it is appended")
    assert not sent.done()


def test_a_producer_waits_on_when_its_leader_leads_in_a_new_epoch() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop)
        leader, epoch = topic.leader, topic.partition.leader_epoch
        loop.network.partition(["broker-3"], ["broker-1"])
        sent = asyncio.ensure_future(topic.produce("a", timeout_ms=60_000))
        await waits(topic, sent, end=1)
        await topic.reassign(1, 2)
        await topic.in_sync(1, 2)
        assert await sent == ErrorCode.NONE
        assert topic.leader is leader and topic.partition.leader_epoch > epoch
        assert await topic.values() == ["a"]

    simulate(story)


def test_a_producer_is_told_when_too_few_are_left_for_a_raised_minimum() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, replicas=(1, 2))
        loop.network.partition(["broker-2"], ["broker-1"])
        sent = asyncio.ensure_future(topic.produce("a", timeout_ms=60_000))
        await waits(topic, sent, end=1)
        await topic.alter(TOPIC_RESOURCE, TOPIC, min_insync_replicas="2")
        assert not sent.done()  # two are in sync, and one may still come
        assert await sent == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert topic.partition.isr == (1,)
        assert await topic.produce("b") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await topic.values() == []  # nothing is committed below the minimum
        loop.network.heal()
        await topic.in_sync(1, 2)
        assert await topic.produce("c") == ErrorCode.NONE
        assert await topic.values() == ["a", "c"]

    simulate(story)


def test_what_is_acknowledged_on_a_topic_that_flushes_is_on_every_disk() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"flush.messages": "1", "min.insync.replicas": "3"})
        for number in range(20):
            assert await topic.produce(f"{number}") == ErrorCode.NONE
            points = [topic.replica(machine).log.recovery_point for machine in topic.world.brokers]
            assert min(points) > number, points
        for machine in topic.world.brokers:
            machine.power_loss()
        await topic.world.start_all()
        await topic.in_sync(1, 2, 3)
        assert await topic.values() == [f"{number}" for number in range(20)]

    simulate(story)


def test_a_leader_that_only_clients_reach_acknowledges_nothing() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"min.insync.replicas": "2"})
        former = topic.leader
        loop.network.partition([former.name], others(topic, former))
        began = loop.time()
        assert await topic.produce("lost", at=former, timeout_ms=2000) == ErrorCode.REQUEST_TIMED_OUT
        assert 2.0 <= loop.time() - began < 2.5
        await topic.in_sync(2, 3)
        assert await topic.produce("kept") == ErrorCode.NONE
        with suppress(Lost):  # it may hang up instead
            assert await topic.produce("lost", at=former, timeout_ms=2000) == ErrorCode.REQUEST_TIMED_OUT
        loop.network.heal()
        await topic.in_sync(1, 2, 3)
        assert await topic.values() == ["kept"]
        assert topic.replica(former).log.log_end_offset == 1

    simulate(story)


def test_a_leader_that_slept_through_its_succession_says_so_to_all_who_wait() -> None:
    """As after SIGSTOP: nothing reaches it, nothing leaves it, and then everything does."""

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"min.insync.replicas": "2"})
        former = topic.leader
        # Its followers are gone first, so that what is sent waits.
        loop.network.partition([former.name], [each.name for each in topic.followers])
        sent = asyncio.ensure_future(topic.produce("a", at=former, timeout_ms=600_000))
        await waits(topic, sent, end=1)
        loop.network.isolate(former.name)
        await topic.in_sync(2, 3)
        assert await topic.produce("b") == ErrorCode.NONE
        loop.network.heal()
        assert await sent == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await topic.produce("c", at=former) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await topic.in_sync(1, 2, 3)
        assert await topic.values() == ["b"]
        assert topic.replica(former).log.log_end_offset == 1

    simulate(story)


def test_a_follower_that_may_lack_its_beginning_asks_until_it_knows() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"internal.segment.bytes": "500"})
        for number in range(12):
            assert await topic.produce(f"{number}-{'x' * 60}") == ErrorCode.NONE
        victim = topic.followers[0]
        victim.crash()
        victim.disk.remove(topic.log_path(0))
        loop.network.partition([victim.name], [topic.leader.name])
        victim.start()
        await topic.world.until(lambda: victim.is_ready, "it runs")
        await asyncio.sleep(8)  # the first question was in vain
        loop.network.heal()
        await topic.in_sync(1, 2, 3)
        assert topic.replica(victim).log.log_start_offset == 0

    simulate(story)
