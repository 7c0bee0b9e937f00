"""Settings of groups and transactions in a broker that runs: what is set holds, from when on, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.codec import decode
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request
from penstock.protocol.messages import incremental_alter_configs as altering
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.produce import ProduceResponse
from penstock.settings.explain import Source
from penstock.simulator import requests
from penstock.simulator.client import Client
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from simulation.patience import patiently

# Correlation id and no tagged fields.
FLEXIBLE_HEADER = 5
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
GROUP, BROKER = ResourceType.GROUP, ResourceType.BROKER


def run(program: Callable[[BrokerWorld, Client], Coroutine[Any, Any, None]], **properties: str) -> None:
    quietly()

    async def story(loop: SimulatedLoop) -> None:
        loop.network.fragmented_rate = 0.0  # what is written together arrives together
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        one = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
        world = BrokerWorld(loop, 1, properties={**one, **settings})
        await world.start()
        async with world.client() as client:
            await client.create_topic("t")
            await program(world, client)

    simulate(story, 1)


async def alter(client: Client, kind: ResourceType, name: str, **values: str | None) -> tuple[int, str | None]:
    configs = [
        altering.AlterableConfig(name=key.replace("_", "."), value=value, config_operation=int(value is None))
        for key, value in values.items()
    ]
    resource = altering.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (result,) = (await client.ask(altering.IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return result.error_code, result.error_message


def beat(group: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
    if not epoch:  # it joins
        request.rebalance_timeout_ms = 1000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    return request


async def joined(client: Client, group: str) -> Callable[[], Coroutine[Any, Any, Any]]:
    """A function that sends the heartbeats of its only member."""
    await patiently(client, FindCoordinatorRequest(coordinator_keys=[group]))
    first = await patiently(client, beat(group, "m", 0))
    assert first.error_code == ErrorCode.NONE, first

    async def next_beat() -> Any:
        return await client.ask(beat(group, "m", first.member_epoch))

    return next_beat


async def described(client: Client, group: str) -> dict[str, tuple[str, str]]:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group)
    (result,) = (await client.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert result.error_code == ErrorCode.NONE
    return {entry.name: (entry.value, Source(entry.config_source).name) for entry in result.configs}


def test_a_live_group_hears_of_its_settings_with_the_next_heartbeat() -> None:
    async def program(world: BrokerWorld, client: Client) -> None:
        of_g, of_h = await joined(client, "g"), await joined(client, "h")
        assert (await of_g()).heartbeat_interval_ms == 5000
        values = {"consumer_heartbeat_interval_ms": "9000", "consumer_session_timeout_ms": "60000"}
        assert await alter(client, GROUP, "g", **values) == (0, None)
        assert [(await each()).heartbeat_interval_ms for each in (of_g, of_h)] == [9000, 5000]
        configs = await described(client, "g")
        assert {name: each for name, each in configs.items() if name.startswith("consumer.")} == {
            "consumer.assignment.interval.ms": ("1000", "DEFAULT_CONFIG"),
            HEARTBEAT: ("9000", "GROUP_CONFIG"),
            SESSION: ("60000", "GROUP_CONFIG"),
        }
        listing = ListConfigResourcesRequest(resource_types=[GROUP])
        assert [each.resource_name for each in (await client.ask(listing)).config_resources] == ["g"]
        await asyncio.sleep(50)
        assert (await of_h()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await of_g()).error_code == ErrorCode.NONE
        # Settings outlive the broker, and a group need not exist to have some.
        world.crash()
        assert await world.start()
        async with world.client() as another:
            assert (await described(another, "g"))[SESSION] == ("60000", "GROUP_CONFIG")
            assert (await (await joined(another, "g"))()).heartbeat_interval_ms == 9000
            assert await alter(another, GROUP, "g", consumer_heartbeat_interval_ms=None) == (0, None)
            assert (await (await joined(another, "g"))()).heartbeat_interval_ms == 5000
            code, message = await alter(another, GROUP, "i", consumer_session_timeout_ms="1")
            assert code == ErrorCode.INVALID_CONFIG
            assert message == "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."

    run(program)


def test_narrower_bounds_narrow_what_was_set_before() -> None:
    async def program(world: BrokerWorld, client: Client) -> None:
        assert (await alter(client, GROUP, "g", consumer_heartbeat_interval_ms="9000"))[0] == 0
        world.crash()
        world.properties["group.consumer.max.heartbeat.interval.ms"] = "7000"
        assert await world.start()
        async with world.client() as another:
            assert (await (await joined(another, "g"))()).heartbeat_interval_ms == 7000
            assert (await described(another, "g"))[HEARTBEAT] == ("9000", "GROUP_CONFIG")

    run(program)


def test_the_assignment_interval_of_all_groups_can_be_changed() -> None:
    async def program(world: BrokerWorld, client: Client) -> None:
        await joined(client, "g")
        for interval, expected in (("15000", 1), ("0", 3)):
            assert await alter(client, BROKER, "", group_consumer_assignment_interval_ms=interval) == (0, None)
            answer = await client.ask(beat("g", f"m{interval}", 0))
            # Who joins before the group is assigned anew begins with the assignment there is.
            assert answer.member_epoch == expected, answer

    run(program)


async def transaction(client: Client) -> tuple[int, int]:
    await patiently(client, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    answer = await patiently(client, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000))
    return answer.producer_id, answer.producer_epoch


def write(producer_id: int, epoch: int) -> Message:
    data = requests.batch(
        "v",
        timestamp=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    request = requests.produce_request("t", data)
    request.transactional_id = "x"
    return request


@pytest.mark.parametrize(("patience", "expected"), [("0", ErrorCode.CONCURRENT_TRANSACTIONS), ("100", ErrorCode.NONE)])
def test_how_long_the_next_transaction_waits_for_the_one_before(patience: str, expected: ErrorCode) -> None:
    async def program(world: BrokerWorld, client: Client) -> None:
        pair = await transaction(client)
        assert requests.only_partition(await client.ask(write(*pair), 12)).error_code == 0
        ending = EndTxnRequest(transactional_id="x", producer_id=pair[0], producer_epoch=pair[1], committed=True)
        # Both at once, so that no marker can be written in between.
        client.write(encode_request(ending, 5, 1, None) + encode_request(write(pair[0], pair[1] + 1), 12, 2, None))
        ended = decode(EndTxnResponse, await client.receive_frame(), 5, FLEXIBLE_HEADER)
        assert (ended.error_code, ended.producer_epoch) == (0, pair[1] + 1)
        written = decode(ProduceResponse, await client.receive_frame(), 12, FLEXIBLE_HEADER)
        assert ErrorCode(requests.only_partition(written).error_code) is expected

    run(program, add_partitions_to_txn_retry_backoff_max_ms=patience)


def test_idle_producers_are_forgotten_as_is_set_now() -> None:
    async def program(world: BrokerWorld, client: Client) -> None:
        taken = await client.ask(InitProducerIdRequest(transactional_id=None))
        data = requests.batch(
            "v", timestamp=world.now_ms, producer_id=taken.producer_id, producer_epoch=0, base_sequence=0
        )
        assert requests.only_partition(await client.ask(requests.produce_request("t", data), 12)).error_code == 0

        async def known() -> int:
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            return len((await client.ask(request)).topics[0].partitions[0].active_producers)

        await asyncio.sleep(30)
        assert await known() == 1
        assert await alter(client, BROKER, "", producer_id_expiration_ms="1000") == (0, None)
        await asyncio.sleep(10)
        assert await known() == 0

    run(program, producer_id_expiration_check_interval_ms="5000")
