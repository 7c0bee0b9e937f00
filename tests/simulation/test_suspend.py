"""A machine sleeps: what its clocks make of that, and who is caught that uses the wrong one."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.coordinators import coordinators
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.io.clock import Clock
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

NAME = "p"
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Awake:
    """The clocks of a machine, without the one that goes on while it sleeps."""

    def __init__(self, clock: Clock) -> None:
        assert isinstance(clock, SimulatedClock)
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def boottime_ms(self) -> int:
        return self._clock.boottime_ms() - self._clock.suspended_ms


def end_after_coordinator_was_replaced() -> ErrorCode:
    """What becomes of a transaction that begins after a suspend, when its coordinator is started anew meanwhile."""

    async def story(loop: SimulatedLoop) -> ErrorCode:
        world = ClusterWorld(loop, 1, controllers=1, brokers=1, properties=PROPERTIES)
        await world.start_all()
        broker = world.machines["broker-1"]
        async with world.client("broker-1") as client:
            await client.create_topic("t")
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
            await patiently(client, find, 4)
            for machine in world.machines.values():
                machine.clock.suspend(8 * 3_600_000)
            init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
            producer = await patiently(client, init, 4)
            announce = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            await client.ask(announce, 3)
        await broker.stop()
        broker.start()
        await world.until(lambda: broker.is_ready, "the broker is back")
        await asyncio.sleep(15.0)  # in which it looks for transactions that have timed out
        end = EndTxnRequest(
            transactional_id=NAME,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        async with world.client("broker-1") as client:
            return ErrorCode((await client.ask(end, 4)).error_code)

    quietly()
    return simulate(story, 1)


def test_a_transaction_that_begins_after_a_suspend_is_not_old_to_the_next_coordinator() -> None:
    assert end_after_coordinator_was_replaced() is ErrorCode.NONE


def test_a_coordinator_whose_clock_lags_after_a_suspend_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "SteadyClock", lambda clock: SteadyClock(Awake(clock)))
    assert end_after_coordinator_was_replaced() is not ErrorCode.NONE


def test_a_broker_that_was_asleep_is_not_sure_to_be_alive() -> None:
    """Its session has ended meanwhile, and others may lead what it led."""

    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, 1, controllers=1, brokers=1)
        await world.start_all()
        broker = world.machines["broker-1"]
        assert broker.broker is not None
        lifecycle = broker.broker.lifecycle
        await world.until(lambda: lifecycle.is_surely_alive, "it was heard of")
        broker.clock.suspend(3_600_000)
        assert not lifecycle.is_surely_alive
        await world.until(lambda: lifecycle.is_surely_alive, "it was heard of again")

    quietly()
    simulate(story, 1)


def delay_replay(machine: Machine, seconds: float) -> None:
    """Its disk or its processor is slow: what is committed enters the image so much later."""
    assert machine.node is not None
    quorum = machine.node.quorum
    committed = quorum.committed
    quorum.committed = lambda offset: machine.world.loop.call_later(seconds, committed, offset)  # type: ignore[assignment, method-assign]


def is_sure_of_what_it_lost() -> bool:
    """Whether a leader that was silent, replaced, and is heard again is ever sure to lead what another leads."""

    async def story(loop: SimulatedLoop) -> bool:
        world = ClusterWorld(loop, 1, controllers=1, brokers=2)
        await world.start_all()
        async with world.client("broker-1") as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))

        def leader() -> int:
            partition = world.controllers[0].image.topics.partition("t", 0)
            return -1 if partition is None else partition.leader

        await world.until(lambda: leader() >= 0, "there is a leader")
        old = world.machines[f"broker-{leader()}"]
        assert old.broker is not None
        lifecycle = old.broker.lifecycle
        await world.until(lambda: old.replicas.get("t", 0) is not None, "it knows")
        replica = old.replicas.get("t", 0)
        assert replica is not None
        await world.until(lambda: replica.leader is not None and lifecycle.is_surely_alive, "it leads")
        loop.network.isolate(old.name)
        await world.until(lambda: leader() not in (-1, old.node_id), "it is replaced")
        delay_replay(old, 5.0)  # longer than it takes until the next heartbeat is answered
        loop.network.heal()
        while replica.leader is not None:
            if lifecycle.is_surely_alive:
                return True
            await asyncio.sleep(0.0005)
        await world.until(lambda: lifecycle.is_surely_alive, "it is sure again, of other things")
        return False

    quietly()
    return simulate(story, 1)


def test_a_replaced_leader_is_not_sure_until_it_knows() -> None:
    """The controller welcomes a broker again before the broker has the metadata that tells who leads now."""
    assert not is_sure_of_what_it_lost()


def test_a_leader_that_believes_any_answer_is_sure_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataQuorum, "has_all_of", lambda quorum, moment: True)
    assert is_sure_of_what_it_lost()
