"""Transactions are ended while no controller answers: only who needs a new producer id has to wait for one."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
NAME = "p"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_a_transaction_ends_though_no_producer_id_is_at_hand(version: int, committed: bool) -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, 1, controllers=1, brokers=1, properties=PROPERTIES)
        await world.start_all()
        async with world.client("broker-1") as client:
            await client.create_topic("t")
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
            await patiently(client, find, 4)
            init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
            producer = await patiently(client, init, 4)
            announce = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            await client.ask(announce, 3)
        # The block of ids that the broker had is lost with it; and then no controller can give it another.
        broker = world.machines["broker-1"]
        await broker.stop()
        broker.start()
        await world.until(lambda: broker.is_ready, "the broker is back")
        world.machines["controller-1"].crash()
        end = EndTxnRequest(
            transactional_id=NAME,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        begun = loop.time()
        async with world.client("broker-1") as client:
            await patiently(client, end, version)
        assert loop.time() < begun + 5.0

    quietly()
    simulate(story, 1)


def test_nobody_is_told_that_a_transaction_ended_for_want_of_an_id() -> None:
    """An InitProducerId of a new producer does need one, and gets a retriable error."""

    async def story(loop: SimulatedLoop) -> None:
        world = ClusterWorld(loop, 1, controllers=1, brokers=1, properties=PROPERTIES)
        await world.start_all()
        async with world.client("broker-1") as client:
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
            await patiently(client, find, 4)
            world.machines["controller-1"].crash()
            init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
            answer = await client.ask(init, 4)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    quietly()
    simulate(story, 1)
