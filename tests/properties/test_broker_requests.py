"""No request that can be parsed, whatever it asks for, finds a defect: every API in every version, fields by chance.

The values lean towards those that mean something here (topics that exist, settings, ids), so that the handlers get
past their first check. A handler that raises is caught by the router and logged; here that is a failure.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from typing import Any

import pytest

import wire as w
from penstock.broker.apis import BROKER_APIS
from penstock.broker.net.router import key_of
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.apis import API
from penstock.protocol.codec import decode, decode_from
from penstock.protocol.declaration import Message, TypedField
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.header import ResponseHeader
from penstock.protocol.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    UINT16,
    UUID,
    Scalar,
)
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from properties.joined_connection import Peer

STRINGS = (
    *("topic", "topic", "flushed", "rewritten", "new", "new.topic", "new_topic", "", "no such name", "x" * 300),
    *("1", "2", "-1", "retention.ms", "flush.messages", "cleanup.policy", "compact", "delete", "no.such.setting"),
    *("metadata.version", "kraft.version", "group.version", "transaction.version", "__cluster_metadata"),
    *("max.connections", "log.retention.ms", "message.max.bytes", "node.id", "größer"),
)
BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64, UINT16: 16}


class Requests:
    def __init__(self, chance: random.Random, ids: list[bytes], now_ms: int) -> None:
        self.chance = chance
        self.ids = [ZERO_UUID, *ids]
        self.now_ms = now_ms

    def make(self, cls: type[Message], version: int) -> Message:
        return cls(
            **{field.name: self._value(field, version) for field in cls.__schema__.fields if version in field.versions}
        )

    def _value(self, field: TypedField, version: int) -> Any:
        chance = self.chance
        if version in field.nullable and chance.random() < 0.2:
            return None
        if field.is_array:
            return [self._one(field, version) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
        if isinstance(field.type, type) and field.tag is not None and chance.random() < 0.7:
            return None
        return self._one(field, version)

    def _one(self, field: TypedField, version: int) -> Any:
        chance = self.chance
        if isinstance(field.type, type):
            return self.make(field.type, version)
        if field.type is RECORDS:
            return chance.choice((self._batch(), self._batch(), chance.randbytes(80), b""))
        if field.type is BYTES:
            return chance.randbytes(chance.choice((0, 3, 200)))
        if isinstance(field.type, Scalar):
            return self._scalar(field.type)
        return chance.choice(STRINGS)

    def _batch(self) -> bytearray:
        return w.batch("a", "b", key=self.chance.choice((None, b"k")), timestamp=self.now_ms)

    def _scalar(self, kind: Scalar) -> Any:
        chance = self.chance
        if kind is BOOLEAN:
            return chance.random() < 0.5
        if kind is UUID:
            return chance.choice((*self.ids, chance.randbytes(16)))
        if kind is FLOAT64:
            return chance.random()
        bits = BITS[kind]
        signed = kind is not UINT16
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        usual = chance.choice((0, 0, 1, 1, 2, 3, 4, 10, 100, -1 if signed else 0, -2 if signed else 0))
        return usual if chance.random() < 0.9 else chance.choice((low, high, chance.randint(low, high)))


class Defects(logging.Handler):
    """What the node has to say about itself."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.CRITICAL:
            self.found.append(self.format(record))


async def ask_anything(loop: SimulatedLoop, seed: int, count: int) -> None:
    world = BrokerWorld(loop, seed, properties={"transaction.two.phase.commit.enable": "true"})
    await world.start()
    chance = random.Random(f"{seed}/requests")
    defects = Defects()
    logger = logging.getLogger("penstock")
    logger.setLevel(logging.ERROR)
    logger.addHandler(defects)
    try:
        async with world.client() as client:
            for name, configs in (
                ("topic", {}),
                ("flushed", {"flush.messages": "1"}),
                ("rewritten", {"compression.type": "zstd"}),
            ):
                assert await client.create_topic(name, configs, partitions=2) is ErrorCode.NONE
            ids = list((await client.topics()).values())
        requests = Requests(chance, ids, world.now_ms)
        for number in range(count):
            module = chance.choice(BROKER_APIS)
            version = chance.randint(*module.VERSIONS)
            message = requests.make(API[key_of(module)].request, version)
            frame = bytes(encode_request(message, version, number, "anything"))
            peer = Peer(world)
            await peer.send(frame, chance)
            await asyncio.sleep(0.1)
            described = f"request {number} of seed {seed}: {message!r} in version {version}"
            assert not defects.found, f"{described}\n{defects.found[0]}"
            assert not world.failures, f"{described}\n{world.failures[0]}"
            check_reply(bytes(peer.pipe.written), key_of(module), version, number)
            peer.pipe.close()
        async with world.client() as client:
            await asyncio.sleep(10)  # the broker may have been unregistered a moment ago
            assert await client.create_topic("after-all") is ErrorCode.NONE
            answer = await client.produce("after-all", w.batch("x", timestamp=world.now_ms))
            assert answer.base_offset == 0
    finally:
        logger.removeHandler(defects)
    await world.stop()
    await world.start()


def check_reply(data: bytes, key: int, version: int, correlation_id: int) -> None:
    if not data:
        return  # it waits, or asked for no answer, or the connection was closed
    (size,) = struct.unpack_from(">i", data)
    assert len(data) == 4 + size
    header, position = decode_from(ResponseHeader, data, response_header_version(key, version), 4)
    assert header.correlation_id == correlation_id
    answer = decode(API[key].response, data, version, position)
    assert getattr(answer, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR, answer


@pytest.mark.parametrize("seed", range(4))
def test_no_request_finds_a_defect(seed: int) -> None:
    quietly()
    simulate(lambda loop: ask_anything(loop, seed, 300), seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_no_request_finds_a_defect_for_long(seed: int) -> None:
    quietly()
    simulate(lambda loop: ask_anything(loop, seed, 2000), seed)
