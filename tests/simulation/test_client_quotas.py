"""Quotas of clients, on virtual time: who is throttled, for how long, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.broker.apis.produce_run import ProduceRun
from penstock.broker.net import throttling
from penstock.broker.net.connection import Connection
from penstock.broker.net.throttling import Throttling
from penstock.model.errors import ErrorCode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from penstock.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.quotas.client_quotas import ClientLimits
from penstock.simulator.client import Client, Lost
from penstock.simulator.requests import batch, fetch_request, only_partition, produce_request
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import ReplicatedTopic
from waiting import wait_until_async

Entity = dict[str, str | None]
Story = Callable[[BrokerWorld, SimulatedLoop], Awaitable[None]]

RATE = 1000  # bytes a second; a window has ten of them
PLAIN = 12  # the version of Produce


def records_of(size: int) -> bytearray:
    return batch("x" * size, timestamp=1_000_000_000_000)


def play(story: Story) -> None:
    async def run(loop: SimulatedLoop) -> None:
        world = BrokerWorld(loop, 1)
        await world.start()
        async with world.client() as client:
            assert await client.create_topic("t", {"retention.ms": "-1"}, partitions=2) == ErrorCode.NONE
        await story(world, loop)
        await world.stop()

    simulate(run)


async def set_quota(client: Client, entity: Entity, **values: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (answer,) = (await client.ask(AlterClientQuotasRequest(entries=[entry]))).entries
    assert answer.error_code == ErrorCode.NONE, answer


async def timed(loop: SimulatedLoop, answer: Awaitable[Any]) -> tuple[Any, float]:
    began = loop.time()
    return await answer, loop.time() - began


async def produce(client: Client, size: int, **options: Any) -> Any:
    response = await client.ask(produce_request("t", records_of(size), **options), PLAIN)
    assert only_partition(response).error_code == ErrorCode.NONE
    return response


@pytest.mark.parametrize("several", [False, True], ids=["plain", "general"])
def test_a_producer_above_its_quota_is_told_and_muted(several: bool) -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="slow", patience=60) as slow, world.client(client_id="other") as other:
            await set_quota(other, {"client-id": "slow"}, producer_byte_rate=RATE)
            request = produce_request("t", records_of(20_000))
            if several:
                (partition,) = request.topic_data[0].partition_data
                request.topic_data[0].partition_data.append(type(partition)(index=1, records=partition.records))
            response, seconds = await timed(loop, slow.ask(request, PLAIN))
            excess_s = response.throttle_time_ms / 1000
            sent = 40_000 if several else 20_000
            assert seconds < 1, "the answer comes at once"
            assert (sent - 10_000) / RATE <= excess_s <= (sent - 9_000) / RATE
            # Others are served meanwhile, also from the same host.
            assert (await timed(loop, produce(other, 100_000)))[1] < 1
            answered, seconds = await timed(loop, produce(slow, 100))
            assert excess_s - 1 < seconds < excess_s + 1
            # After ten seconds the first sample still counts, as in Kafka; after thirty, it is forgotten.
            assert bool(answered.throttle_time_ms) == (not several)
            await set_quota(other, {"client-id": "slow"}, producer_byte_rate=None)
            assert (await produce(slow, 100_000)).throttle_time_ms == 0, "muted for the throttle time, and then free"
            assert (await timed(loop, produce(slow, 100_000)))[1] < 1

    play(story)


def test_the_smallest_quota_throttles_and_breaks_nothing() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="slow", patience=60) as slow, world.client(client_id="other") as other:
            tiny = 5e-324
            await set_quota(other, {"client-id": "slow"}, request_percentage=tiny, controller_mutation_rate=tiny)
            assert (await slow.ask(MetadataRequest(topics=[]), 12)).throttle_time_ms == 1000
            answers = []
            for name in ("more", "again"):
                topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                answers.append(await slow.ask(CreateTopicsRequest(topics=[topic])))
            first, second = answers
            assert first.topics[0].error_code == ErrorCode.NONE, "one request may overdraw the account"
            assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert second.throttle_time_ms == 2**31 - 1

    play(story)


def test_a_refusal_that_quotes_a_long_name_is_sent() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client() as client:
            entity = [EntityData(entity_type="x" * 32_767, entity_name="name")]
            entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[OpData(key="request_percentage", value=1.0)])
            (answer,) = (await client.ask(AlterClientQuotasRequest(entries=[entry]))).entries
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message.startswith("Unhandled client quota entity type: xxx")
            user = UserName(name="x" * 32_767)
            (answer,) = (await client.ask(DescribeUserScramCredentialsRequest(users=[user]))).results
            assert answer.error_code == ErrorCode.RESOURCE_NOT_FOUND

    play(story)


def test_acks_0_is_muted_without_an_answer() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="slow") as slow:
            await set_quota(slow, {"client-id": None}, producer_byte_rate=RATE)
            slow.write(unanswered(produce_request("t", records_of(20_000), acks=0)))
            _, seconds = await timed(loop, slow.topics())
            assert 9 < seconds < 12

    play(story)


def test_a_client_that_has_posed_as_a_follower_is_metered_as_before() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="slow", patience=60) as slow:
            await set_quota(slow, {"client-id": "slow"}, producer_byte_rate=RATE)
            posing = fetch_request("t", 0, max_wait_ms=0)
            posing.replica_id = 7
            await slow.ask(posing, 12)
            assert (await produce(slow, 20_000)).throttle_time_ms > 9000

    play(story)


def unanswered(request: Any) -> bytes:
    return bytes(encode_request(request, PLAIN, 77, "slow"))


def test_connections_of_one_client_share_its_quota_and_users_come_before_clients() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="a") as one, world.client(client_id="a") as two:
            await set_quota(one, {"client-id": "a"}, producer_byte_rate=RATE)
            assert (await produce(one, 7_000)).throttle_time_ms == 0
            assert (await produce(two, 7_000)).throttle_time_ms > 3000
        async with world.client(client_id="b") as one:
            await set_quota(one, {"user": "ANONYMOUS"}, producer_byte_rate=10 * RATE)
            await set_quota(one, {"client-id": "b"}, producer_byte_rate=1)
            assert (await produce(one, 50_000)).throttle_time_ms == 0

    play(story)


def test_a_pipelining_producer_is_metered_from_the_moment_the_quota_is_set() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="fast") as fast, world.client() as admin:
            frames = b"".join(
                unanswered(produce_request("t", records_of(500), acks=1)).replace(b"slow", b"fast") for _ in range(50)
            )

            async def burst() -> float:
                began = loop.time()
                fast.write(frames)
                for _ in range(50):
                    await fast.receive_frame()
                return loop.time() - began

            assert await burst() < 1
            await set_quota(admin, {"client-id": "fast"}, producer_byte_rate=RATE)
            assert 15 < await burst() < 30  # 28,000 bytes, of which 10,000 are free

    play(story)


class QuotaIsKept(Exception):
    """The law: however a client sends, it gets its rate over any long time, and a window in advance, and no more."""


def busy_producer(world: BrokerWorld, loop: SimulatedLoop) -> Awaitable[None]:
    """Sends twenty requests at once, whenever the last ones are answered, also before it has a quota."""

    async def story() -> None:
        frames = b"".join(
            unanswered(produce_request("t", records_of(500), acks=1)).replace(b"slow", b"busy") for _ in range(20)
        )

        async def burst(client: Client) -> int:
            client.write(frames)
            for _ in range(20):
                await client.receive_frame()
            return len(frames)

        async with world.client(client_id="busy", patience=120) as busy, world.client() as admin:
            await burst(busy)
            await set_quota(admin, {"user": None}, producer_byte_rate=RATE)
            sent, began = 0, loop.time()
            while loop.time() - began < 60 and sent < 1_000_000:
                sent += await burst(busy)
            # The window in advance, and the last burst may have just begun.
            if sent > RATE * (loop.time() - began + 11) + len(frames):
                raise QuotaIsKept(f"{sent} bytes in {loop.time() - began:.0f} s")
            assert sent > 0.4 * RATE * 60, "and it is not starved"

    return story()


def test_what_a_busy_producer_gets_is_its_quota() -> None:
    play(busy_producer)


def unmetered_runs(patch: pytest.MonkeyPatch) -> None:
    original = ProduceRun.handle

    def handle(self: ProduceRun, connection: Connection, *arguments: Any) -> int:
        metered, connection.metered = connection.metered, None
        try:
            return original(self, connection, *arguments)
        finally:
            connection.metered = metered

    patch.setattr(ProduceRun, "handle", handle)


def not_muted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "throttle", lambda self, throttle_ms: None)


def limits_ignored(patch: pytest.MonkeyPatch) -> None:
    original = Throttling.limits_of

    def limits_of(self: Throttling, connection: Connection, frame: memoryview) -> Any:
        original(self, connection, frame)
        return ClientLimits(None, None, None)

    patch.setattr(Throttling, "limits_of", limits_of)


@pytest.mark.parametrize("sabotage", [unmetered_runs, not_muted, limits_ignored])
def test_a_broken_broker_breaks_the_law(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(QuotaIsKept):
        play(busy_producer)


def test_a_throttled_fetch_is_empty_and_costs_nothing() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="reader") as reader, world.client(client_id="writer") as writer:
            for _ in range(12):
                await produce(writer, 2_000)
            await set_quota(writer, {"client-id": "reader"}, consumer_byte_rate=RATE)
            offset, times, empty = 0, [], 0
            while offset < 12:
                response, seconds = await timed(
                    loop, reader.ask(fetch_request("t", offset, max_wait_ms=0, min_bytes=1), 12)
                )
                times.append(seconds)
                if response.throttle_time_ms:
                    assert response.responses == []
                    empty += 1
                    continue
                ((answer,),) = (each.partitions for each in response.responses)
                assert len(answer.records) <= 10_000, "no more than the window holds"
                offset += max(1, len(answer.records) // 2_000)
            assert empty, "24,000 bytes are more than a window holds"
            assert 10 < sum(times) < 40
            # The writer is not concerned.
            assert not (await writer.ask(fetch_request("t", 0, max_wait_ms=0), 12)).throttle_time_ms

    play(story)


def test_a_throttled_full_fetch_leaves_no_session_and_an_incremental_one_keeps_it() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="reader", patience=300) as reader, world.client(client_id="w") as writer:
            for _ in range(4):
                await produce(writer, 9_000)
            await set_quota(writer, {"client-id": "reader"}, consumer_byte_rate=RATE)
            first = await reader.ask(fetch_request("t", 0, max_wait_ms=0, session_id=0, session_epoch=0), 12)
            assert first.session_id and first.throttle_time_ms == 0
            request = fetch_request("t", 1, max_wait_ms=0, session_id=first.session_id, session_epoch=1)
            second = await reader.ask(request, 12)
            assert second.throttle_time_ms and second.responses == []
            assert second.session_id == first.session_id
            request = fetch_request("t", 1, max_wait_ms=0, session_id=first.session_id, session_epoch=2)
            third = await reader.ask(request, 12)
            assert third.error_code == ErrorCode.NONE
            assert third.responses or third.throttle_time_ms
            full = await reader.ask(fetch_request("t", 2, max_wait_ms=0, session_id=0, session_epoch=0), 12)
            while not full.throttle_time_ms:
                full = await reader.ask(fetch_request("t", 2, max_wait_ms=0, session_id=0, session_epoch=0), 12)
            assert full.session_id == 0 and full.responses == []

    play(story)


def test_the_time_of_requests_is_limited_and_a_client_waits_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**15, 50_000_000))  # every look at the clock is 50 ms later
    monkeypatch.setattr(throttling, "now_ns", lambda: next(ticks))

    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="a") as client, world.client(client_id="b") as other:
            await set_quota(other, {"client-id": "a"}, request_percentage=1)
            responses = []
            # Each request takes 50 ms: 0.5 % of a window of ten seconds. The third is above the quota.
            for _ in range(3):
                response, seconds = await timed(loop, client.ask(MetadataRequest(topics=None)))
                assert seconds < 1
                responses.append(response.throttle_time_ms)
            assert responses[:2] == [0, 0] and responses[2] == 1000
            response, seconds = await timed(loop, client.ask(MetadataRequest(topics=None)))
            assert 0.9 < seconds < 1.5
            # Produce and fetch count, too, and a throttled fetch is empty.
            assert (await produce(client, 10)).throttle_time_ms == 1000
            fetched = await client.ask(fetch_request("t", 0, max_wait_ms=100), 12)
            assert fetched.throttle_time_ms == 1000 and fetched.responses == []
            assert (await other.ask(MetadataRequest(topics=None))).throttle_time_ms == 0

    play(story)


def topics_request(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000)


def test_controller_mutations_newer_clients_are_refused() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="a") as client:
            await set_quota(client, {"user": "ANONYMOUS"}, controller_mutation_rate=1)
            # The bucket has 11 tokens; one request may overdraw it, and the rest of it is refused.
            response = await client.ask(topics_request("a", "b", partitions=20))
            assert [each.error_code for each in response.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
            assert response.throttle_time_ms == 9000
            response, seconds = await timed(loop, client.ask(topics_request("b")))
            assert 8.5 < seconds < 10
            assert response.topics[0].error_code == ErrorCode.NONE and response.throttle_time_ms == 0
            more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="b", count=30, assignments=None)])
            response = await client.ask(more, 3)
            assert response.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED, "overdrawn by less than one"
            assert 0 < response.throttle_time_ms <= 1000
            assert (await client.ask(more, 3)).results[0].error_code == ErrorCode.NONE
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
            response = await client.ask(gone)
            assert response.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 20_000 < response.throttle_time_ms < 30_000
            # Others have tokens of their own only if they are other users.
            await set_quota(client, {"user": "ANONYMOUS"}, controller_mutation_rate=None)
            assert (await client.ask(gone)).responses[0].error_code == ErrorCode.NONE

    play(story)


def test_controller_mutations_older_clients_are_only_throttled() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="a") as client:
            await set_quota(client, {"client-id": None}, controller_mutation_rate=1)
            response, seconds = await timed(loop, client.ask(topics_request("a", "b", partitions=10), 5))
            assert [each.error_code for each in response.topics] == [0, 0]
            assert response.throttle_time_ms == 9000 and seconds < 1
            assert 8.5 < (await timed(loop, client.topics()))[1] < 10

    play(story)


def test_connections_above_the_rate_of_their_address_are_held_and_closed() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client() as client:
            await set_quota(client, {"ip": None}, connection_creation_rate=1)
            open_clients = [world.client(patience=5) for _ in range(10)]
            for each in open_clients:
                await (await each.__aenter__()).topics()
            began = loop.time()
            with pytest.raises(Lost):
                async with world.client(patience=5) as refused:
                    await refused.topics()
            assert 0.05 < loop.time() - began < 1.5, "held, and then closed"
            assert await client.topics(), "connections that are open stay open"
            await asyncio.sleep(12)
            async with world.client(patience=5) as accepted:
                assert await accepted.topics()
            for each in open_clients:
                await each.__aexit__(None, None, None)

    play(story)


def test_quotas_survive_a_restart_and_are_described() -> None:
    async def story(world: BrokerWorld, loop: SimulatedLoop) -> None:
        async with world.client(client_id="slow") as client:
            await set_quota(client, {"client-id": "slow"}, producer_byte_rate=RATE)
        await world.stop()
        await world.start()
        async with world.client(client_id="slow") as client:
            everything = ComponentData(entity_type="client-id", match_type=2, match=None)
            for version in (0, 1):
                answer = await client.ask(DescribeClientQuotasRequest(components=[everything]), version)
                (entry,) = answer.entries
                assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("client-id", "slow")]
                assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", RATE)]
            unknown = ComponentData(entity_type="group", match_type=2, match=None)
            answer = await client.ask(DescribeClientQuotasRequest(components=[unknown]))
            assert (answer.error_code, answer.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)
            assert (await produce(client, 30_000)).throttle_time_ms > 19_000

    play(story)


def test_in_a_cluster_brokers_throttle_for_the_controller_and_followers_are_free() -> None:
    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop)
        world = topic.world
        async with world.client("broker-1", client_id="a") as client:
            # Everything is limited for everybody; nodes are ANONYMOUS, too.
            await set_quota(
                client, {"user": None}, consumer_byte_rate=1, request_percentage=0.000001, controller_mutation_rate=1
            )
            nodes = [world.machines[f"broker-{number}"].node for number in (1, 2, 3)]
            await wait_until_async(lambda: all(node is not None and node.image.client_quotas for node in nodes))
            for _ in range(10):
                assert await topic.produce("x" * 1000) == ErrorCode.NONE
            await topic.in_sync(1, 2, 3)
        async with world.client("broker-2", client_id="b") as client:
            response = await client.ask(topics_request("many", partitions=21), 5)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert response.throttle_time_ms == 10_000, "the controller's throttle time, which is the longer one"
            assert 9 < (await timed(loop, client.topics()))[1] < 11, "and the broker has muted its client"

    simulate(story)
