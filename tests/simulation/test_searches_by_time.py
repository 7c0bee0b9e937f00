"""ListOffsets by time looks into batches: on a thread, one search after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.broker.partitions.searches import Search, Searches
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.records.compression import Codec
from penstock.simulator import requests
from penstock.simulator.client import Client
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

TOPIC = "t"
MAX_TIMESTAMP = -3
SEARCH_S = 2.0


async def list_offsets(client: Client, *timestamps: int) -> list[Any]:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in enumerate(timestamps)
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    ((*answers,),) = (topic.partitions for topic in (await client.ask(request)).topics)
    found: list[Any] = answers
    return found


def test_others_are_answered_while_a_log_is_searched() -> None:
    async def story(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1, properties={"socket.request.max.bytes": str(1 << 20)})
        await world.start()
        now_ms = world.now_ms
        async with world.client() as client, world.client() as other:
            assert await client.create_topic(TOPIC, partitions=3) == ErrorCode.NONE
            small = requests.batch("a", "b", timestamp=now_ms, codec=Codec.ZSTD)
            assert (await client.produce(TOPIC, small)).error_code == ErrorCode.NONE
            # Two records, of which the second begins behind more than any batch may decompress to.
            large = requests.batch(bytes(2 << 20), "b", timestamp=now_ms, codec=Codec.ZSTD)
            request = requests.produce_request(TOPIC, large, partition=1)
            assert requests.only_partition(await client.ask(request, 12)).error_code == ErrorCode.NONE

            loop.executor_delay = lambda: SEARCH_S
            searching = asyncio.create_task(list_offsets(client, now_ms, now_ms, -2))
            await asyncio.sleep(SEARCH_S / 2)
            await other.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4)
            assert not searching.done()
            first, second, earliest = await searching
            assert (first.offset, first.timestamp, first.leader_epoch) == (0, now_ms, 0)
            assert (second.offset, second.timestamp) == (0, now_ms)
            assert earliest.offset == 0
            first, second, nothing = await list_offsets(client, MAX_TIMESTAMP, now_ms + 1, now_ms)
            assert (first.offset, first.timestamp) == (0, now_ms)
            assert (second.error_code, second.offset) == (ErrorCode.NONE, -1)
            assert (nothing.error_code, nothing.offset) == (ErrorCode.NONE, -1)
        await world.stop()

    quietly()
    simulate(story)


def test_requests_take_turns() -> None:
    async def story(loop: SimulatedLoop) -> None:
        searches = Searches(loop)
        told: list[str] = []

        def search(name: str) -> Search[str]:
            def work() -> str:
                if name == "b1":
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
                return name

            def done(found: str | KafkaError) -> None:
                told.append(found if isinstance(found, str) else found.code.name)
                if name == "b1":
                    give_up()  # the rest of a's

            return Search(work, done)

        def run(*names: str) -> Callable[[], None]:
            return searches.run([search(name) for name in names], lambda: told.append("done"), _never)

        give_up = run("a1", "a2", "a3")
        run("b1", "b2")
        run("c1")
        await asyncio.sleep(1)
        assert told == ["a1", "CORRUPT_MESSAGE", "c1", "done", "b2", "done"]
        run("d1")
        await asyncio.sleep(1)
        assert told[-2:] == ["d1", "done"]

    simulate(story)


def _never(error: BaseException) -> None:
    raise AssertionError(error)
