"""The hand-written ways through the broker answer as the general ones do, byte for byte, and store the same bytes.

Two nodes get the same stream of requests, cut at the same places: one as it is, one with its short cuts closed. The
streams hold what clients send and what they should not: every version, odd client ids, tags, bursts for one partition,
bad batches, idempotent producers, sessions, topics that are deleted and made again between two requests. In every third
stream, clients have quotas.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

import wire as w
from penstock.broker.apis.fetch_plain import PlainFetch
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.apis.produce_run import ProduceRun
from penstock.model.ids import ZERO_UUID
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.records.compression import Codec
from penstock.simulator.stories.broker_world import DATA, BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from properties.joined_connection import Peer

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "other": {"segment.bytes": "1048576"},
    "flushed": {"flush.messages": "1"},
    "flushed-by-three": {"flush.messages": "3"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip"},
    "keyed": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "200"},
    "l" + "o" * 150 + "ng": {},
}
CHANGES: list[dict[str, str | None]] = [
    {"flush.messages": "1"},
    {"flush.messages": None},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.type": None},
    {"max.message.bytes": "150"},
    {"max.message.bytes": None},
    {"compression.type": "lz4"},
    {"compression.type": None},
]
CLIENT_IDS = [None, "", "client", "ünïcode", "c" * 300]


class Stream:
    """Requests by chance; the same chance makes the same requests."""

    def __init__(self, chance: random.Random, ids: dict[str, bytes], now_ms: Callable[[], int]) -> None:
        self.chance = chance
        self.ids = ids
        self.now_ms = now_ms
        self.correlation_ids = iter(range(1 << 30))
        self.sequences: dict[tuple[int, str, int], int] = {}

    def burst(self) -> bytes:
        chance = self.chance
        if chance.random() < 0.4:
            make_fetch = self.plain_fetch if chance.random() < 0.6 else self.odd_fetch
            return b"".join(make_fetch() for _ in range(chance.choice((1, 1, 2, 5))))
        make = self.plain_produce() if chance.random() < 0.7 else self.odd_produce
        return b"".join(make() for _ in range(chance.choice((1, 1, 2, 5, 20, 100))))

    def frame(self, message: Message, version: int, client_id: str | None) -> bytes:
        frame = bytes(encode_request(message, version, next(self.correlation_ids), client_id))
        fate = self.chance.random()
        if fate < 0.01:  # bytes after the message
            frame = struct.pack(">i", len(frame) - 4 + 3) + frame[4:] + b"abc"
        elif fate < 0.015:  # something is wrong with it
            broken = bytearray(frame)
            broken[self.chance.randrange(8, len(broken))] ^= 1 << self.chance.randrange(8)
            frame = bytes(broken)
        elif fate < 0.017:
            frame = struct.pack(">i", len(frame) - 4 - 1) + frame[4:-1]
        return frame

    def batch(self, topic: str, partition: int) -> bytearray | bytes | None:
        chance = self.chance
        options: dict[str, Any] = {"codec": chance.choice((0, 0, 0, *Codec))}
        if chance.random() < 0.3:
            producer = chance.randrange(3)
            sequence = self.sequences.get((producer, topic, partition), 0)
            count = chance.randint(1, 3)
            options |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            if chance.random() < 0.8:  # else it is sent again
                self.sequences[producer, topic, partition] = sequence + count
        else:
            count = chance.randint(1, 4)
        if chance.random() < 0.02:
            options["transactional"] = True
        values = [chance.randbytes(chance.choice((0, 5, 100, 3000))) for _ in range(count)]
        key = chance.choice((None, b"key"))
        timestamp = self.now_ms() + chance.choice((0, 0, 0, -(10**6), 10**9, -1 - self.now_ms()))
        data = w.batch(*values, key=key, timestamp=timestamp, **options)
        fate = chance.random()
        if fate < 0.02:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif fate < 0.03:
            return None
        elif fate < 0.04:
            return b""
        elif fate < 0.05:
            return bytes(data[: chance.randrange(len(data))])
        elif fate < 0.06:
            return bytes(data + data)
        elif fate < 0.07:
            w.changed(data, count=7)
        return data

    def topic(self) -> str:
        return self.chance.choice((*TOPICS, "plain", "plain", "plain", "absent"))

    def plain_produce(self) -> Callable[[], bytes]:
        """A producer's requests: alike but for their records."""
        chance = self.chance
        topic, partition, version = self.topic(), chance.choice((0, 0, 0, 1, 9)), chance.randint(3, 13)
        acks, client_id = chance.choice((1, -1)), chance.choice(CLIENT_IDS)

        def make() -> bytes:
            request = w.produce_request(
                topic,
                self.batch(topic, partition),
                partition=partition,
                acks=acks,
                topic_id=self.ids.get(topic, b"\x12" * 16) if version >= 13 else ZERO_UUID,
            )
            return self.frame(request, version, client_id)

        return make

    def odd_produce(self) -> bytes:
        chance = self.chance
        version = chance.randint(3, 13)
        topics = [self.topic() for _ in range(chance.choice((0, 1, 1, 2)))]
        request = ProduceRequest(
            transactional_id=chance.choice((None, None, None, "t")),
            acks=chance.choice((1, -1, 1, -1, 0, 2)),
            timeout_ms=chance.choice((0, 1000, -5)),
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=self.ids.get(name, b"\x12" * 16) if version >= 13 else ZERO_UUID,
                    partition_data=[
                        PartitionProduceData(index=index, records=self.batch(name, index))
                        for index in chance.sample((0, 1, 9), chance.choice((0, 1, 1, 2)))
                    ],
                )
                for name in topics
            ],
        )
        if version >= 9 and chance.random() < 0.2:
            request.unknown_tags = {77: b"tag"}
        return self.frame(request, version, chance.choice(CLIENT_IDS))

    def plain_fetch(self) -> bytes:
        """As consumers send it: what the topics hold, by name or by id."""
        chance = self.chance
        version = chance.randint(12, 18)
        wanted = chance.sample(list(TOPICS), chance.choice((1, 1, 2, 3)))
        request = FetchRequest(
            max_wait_ms=chance.choice((0, 500)),
            min_bytes=1,
            max_bytes=chance.choice((100, 5000, 1 << 20)),
            isolation_level=chance.choice((0, 1)),
            topics=[
                FetchTopic(
                    topic=name if version < 13 else "",
                    topic_id=self.ids[name] if version >= 13 else ZERO_UUID,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=chance.choice((-1, 0)),
                            fetch_offset=chance.choice((0, 0, 0, 1, 7)),
                            partition_max_bytes=chance.choice((1, 500, 1 << 20)),
                        )
                        for index in range(chance.choice((1, 2)))
                    ],
                )
                for name in wanted
            ],
        )
        return self.frame(request, version, chance.choice(CLIENT_IDS))

    def odd_fetch(self) -> bytes:
        chance = self.chance
        version = chance.randint(4, 18)
        topics = [self.topic() for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
        request = FetchRequest(
            max_wait_ms=chance.choice((0, 0, 5, 50)),
            min_bytes=chance.choice((0, 1, 1, 10_000)),
            max_bytes=chance.choice((0, 1, 5000, 1 << 20)),
            isolation_level=chance.choice((0, 0, 1)),
            session_epoch=chance.choice((-1, -1, -1, 0, 1)) if version >= 7 else -1,
            session_id=chance.choice((0, 0, 0, 5)) if version >= 7 else 0,
            rack_id=chance.choice(("", "", "rack")) if version >= 11 else "",
            topics=[
                FetchTopic(
                    topic=name if version < 13 else "",
                    topic_id=self.ids.get(name, b"\x12" * 16) if version >= 13 else ZERO_UUID,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=chance.choice((-1, -1, 0, 0, 1)) if version >= 9 else -1,
                            fetch_offset=chance.choice((0, 1, 5, 50, 10**6)),
                            last_fetched_epoch=chance.choice((-1, -1, -1, 0, 3)) if version >= 12 else -1,
                            partition_max_bytes=chance.choice((0, 1, 500, 1 << 20)),
                        )
                        for index in chance.sample((0, 1, 9), chance.choice((0, 1, 1, 2)))
                    ],
                )
                for name in topics
            ],
        )
        if version < 15:
            request.replica_id = -1
        elif chance.random() < 0.1:
            request.replica_state = ReplicaState(replica_id=-1)
        return self.frame(request, version, chance.choice(CLIENT_IDS))


def close_short_cuts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlainProduce, "handle", lambda *_: False)
    patch.setattr(PlainFetch, "handle", lambda *_: False)
    patch.setattr(ProduceRun, "handle", lambda self, connection, view, position, received: position)


class Outcome:
    def __init__(self) -> None:
        self.replies: list[bytes] = []
        self.ended: list[bool] = []
        self.logs: dict[str, bytes] = {}


async def play(loop: SimulatedLoop, seed: int, bursts: int) -> Outcome:
    world = BrokerWorld(loop, seed)
    loop.executor_delay = lambda: 0.001
    await world.start()
    outcome = Outcome()
    chance = random.Random(f"{seed}/requests")
    cuts = random.Random(f"{seed}/cuts")
    quotas = random.Random(f"{seed}/quotas") if seed % 3 == 0 else None
    ids: dict[str, bytes] = {}
    async with world.client() as admin:

        async def create(name: str) -> None:
            topic = CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in TOPICS[name].items()],
            )
            (result,) = (await admin.ask(CreateTopicsRequest(topics=[topic]))).topics
            assert result.error_code == 0, result
            ids[name] = result.topic_id

        for name in TOPICS:
            await create(name)
        stream = Stream(chance, ids, lambda: world.now_ms)
        peer = Peer(world)
        for _ in range(bursts):
            if peer.pipe.is_ended or chance.random() < 0.05:
                outcome.ended.append(peer.pipe.is_ended)
                outcome.replies.append(bytes(peer.pipe.written))
                peer.pipe.close()
                peer = Peer(world)
            await peer.send(stream.burst(), cuts)
            if chance.random() < 0.1:
                name = chance.choice((*TOPICS, "plain", "plain"))
                await admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
                await create(name)
            if chance.random() < 0.1:
                await alter(admin, chance.choice((*TOPICS, "plain", "plain")), chance.choice(CHANGES))
            if quotas is not None and quotas.random() < 0.1:
                await set_quota(admin, quotas)
        await asyncio.sleep(30)
        outcome.ended.append(peer.pipe.is_ended)
        outcome.replies.append(bytes(peer.pipe.written))
    await world.stop()
    assert not world.failures
    for directory in world.disk.list(DATA):
        if directory.rpartition("-")[0] in TOPICS:
            for name in world.disk.list(f"{DATA}/{directory}"):
                if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
                    path = f"{DATA}/{directory}/{name}"
                    file = world.disk.open(path, read_only=True)
                    outcome.logs[path] = file.pread(world.disk.size(path), 0)
                    file.close()
    return outcome


async def alter(admin: Any, topic: str, changes: dict[str, str | None]) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=w.TOPIC_RESOURCE,
                resource_name=topic,
                configs=[
                    AlterableConfig(name=key, value=value, config_operation=w.DELETE if value is None else w.SET)
                    for key, value in changes.items()
                ],
            )
        ]
    )
    (result,) = (await admin.ask(request)).responses
    assert result.error_code == 0, result


async def set_quota(admin: Any, chance: random.Random) -> None:
    """Not on the time of requests: that is real."""
    value = chance.choice((0.0, 20_000.0, 200_000.0, 1e12))
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=chance.choice((None, "client", "ünïcode")))],
        ops=[
            OpData(key=key, value=value, remove=not value)
            for key in chance.sample(("producer_byte_rate", "consumer_byte_rate"), chance.choice((1, 2)))
        ],
    )
    (result,) = (await admin.ask(AlterClientQuotasRequest(entries=[entry]))).entries
    assert result.error_code == 0, result


def compare(seed: int, bursts: int) -> None:
    quietly()
    fast = simulate(lambda loop: play(loop, seed, bursts), seed)
    with pytest.MonkeyPatch.context() as patch:
        close_short_cuts(patch)
        general = simulate(lambda loop: play(loop, seed, bursts), seed)
    assert fast.ended == general.ended
    assert len(fast.replies) == len(general.replies)
    for number, (one, other) in enumerate(zip(fast.replies, general.replies, strict=True)):
        assert frames(one) == frames(other), f"connection {number} of seed {seed}"
    assert fast.logs.keys() == general.logs.keys()
    for path, content in fast.logs.items():
        assert content == general.logs[path], f"{path} of seed {seed}"
    assert sum(map(len, fast.replies)) > 1000


def frames(data: bytes) -> list[bytes]:
    found = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        found.append(data[position : position + 4 + size])
        position += 4 + size
    assert position == len(data)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_both_ways_answer_alike(seed: int) -> None:
    compare(seed, bursts=40)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_both_ways_answer_alike_for_long(seed: int) -> None:
    compare(seed, bursts=200)


def test_the_short_cuts_are_taken() -> None:
    """Else there would be nothing to compare."""
    taken = {"plain": 0, "run": 0, "fetch": 0}

    def counting(kind: str, original: Callable[..., Any], is_taken: Callable[..., bool]) -> Callable[..., Any]:
        def handle(*arguments: Any) -> Any:
            result = original(*arguments)
            taken[kind] += is_taken(result, arguments)
            return result

        return handle

    quietly()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainProduce, "handle", counting("plain", PlainProduce.handle, lambda r, _: r))
        patch.setattr(PlainFetch, "handle", counting("fetch", PlainFetch.handle, lambda r, _: r))
        patch.setattr(ProduceRun, "handle", counting("run", ProduceRun.handle, lambda r, a: r > a[3]))
        simulate(lambda loop: play(loop, 3, 60), 3)
    assert all(count > 5 for count in taken.values()), taken
