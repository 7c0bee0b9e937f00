"""A machine sleeps: what its clocks make of that, and who is caught that uses the wrong one."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.coordinators import coordinators
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.io.clock import Clock
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.stories.cluster_world import ClusterWorld
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
        assert lifecycle.may_be_replaced
        await world.until(lambda: lifecycle.is_surely_alive, "it was heard of again")

    quietly()
    simulate(story, 1)
