"""A batch of a transaction whose records are rewritten in a thread: the transaction may be over when that is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records.compression import Codec
from penstock.simulator import requests
from penstock.simulator.client import Client
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

TOPIC, NAME = "t", "writer"
BEFORE_TV2 = 11
TRANSACTIONS = 1  # the key type of FindCoordinator
REWRITING_S = 3.0

# Why the records have to be rewritten, and how the producer compresses them.
REASONS = {
    "another codec": ({"compression.type": "gzip"}, Codec.NONE),
    "compacted": ({"cleanup.policy": "compact"}, Codec.LZ4),
}


class Writer:
    """A producer that announces the partitions it will write to."""

    def __init__(self, client: Client, now_ms: Callable[[], int], codec: Codec) -> None:
        self._client = client
        self._now_ms = now_ms
        self._codec = codec
        self._producer = (-1, -1)

    async def initialize(self) -> None:
        found = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=[NAME])
        await patiently(self._client, found, 4)
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
        answer = await patiently(self._client, request, 4)
        self._producer = answer.producer_id, answer.producer_epoch

    async def begin(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        await patiently(
            self._client,
            request,
            3,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    async def end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=NAME,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )
        await patiently(self._client, request, 4)

    async def produce(self, connection: Client, sequence: int) -> ErrorCode:
        data = requests.batch(
            f"value {sequence}",
            key=b"k",
            timestamp=self._now_ms(),
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            transactional=True,
            codec=self._codec,
        )
        request = requests.produce_request(TOPIC, data)
        request.transactional_id = NAME
        return ErrorCode(requests.only_partition(await connection.ask(request, BEFORE_TV2)).error_code)


@pytest.mark.parametrize("verifies", [True, False], ids=["verified", "not verified"])
@pytest.mark.parametrize("written_before", [0, 1])
@pytest.mark.parametrize("reason", REASONS)
def test_a_batch_is_not_appended_after_its_transaction(reason: str, written_before: int, verifies: bool) -> None:
    """Whether it would have been the first of its transaction in the partition, or one had been there; and whether the
    coordinator is asked about the first one, or its producer is taken at its word."""
    configs, codec = REASONS[reason]

    async def story(loop: SimulatedLoop) -> None:
        properties = {
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.partition.verification.enable": str(verifies).lower(),
        }
        world = BrokerWorld(loop, 1, properties=properties)
        await world.start()
        async with world.client() as asking, world.client() as producing:
            assert await asking.create_topic(TOPIC, configs) == ErrorCode.NONE
            writer = Writer(asking, lambda: world.now_ms, codec)
            await writer.initialize()
            await writer.begin()
            for sequence in range(written_before):
                assert await writer.produce(producing, sequence) == ErrorCode.NONE

            ordinary = loop.executor_delay
            loop.executor_delay = lambda: REWRITING_S
            late = asyncio.create_task(writer.produce(producing, written_before))
            await asyncio.sleep(REWRITING_S / 10)
            loop.executor_delay = ordinary
            await writer.end(commits=False)
            await asyncio.sleep(REWRITING_S / 10)  # for the marker
            assert not late.done()
            assert await late == ErrorCode.INVALID_TXN_STATE

            answer = await asking.fetch(TOPIC, 0, isolation_level=1)
            assert answer.last_stable_offset == answer.high_watermark  # nothing is left open
            # Nor does the next transaction commit what belonged to the last.
            await writer.begin()
            assert await writer.produce(producing, written_before) == ErrorCode.NONE
            await writer.end(commits=True)
            await asyncio.sleep(1.0)
            answer = await asking.fetch(TOPIC, 0, isolation_level=1)
            assert answer.last_stable_offset == answer.high_watermark
            values = [record.value for record in await asking.read_all(TOPIC) if record.key == b"k"]
            assert values == [f"value {sequence}".encode() for sequence in range(written_before + 1)]
        await world.stop()

    quietly()
    simulate(story)
