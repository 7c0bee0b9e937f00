"""Connections of a broker with SASL, given any bytes in pieces of any size: the router sees no stranger."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable

import pytest

from penstock.broker.net.connection import Connection
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.principal import ANONYMOUS
from penstock.security.sasl.authentication import Authentication, PassOn, Step
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from properties.joined_connection import Peer

PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    ),
    "connections.max.reauth.ms": "2000",
}
RIGHT = b"\0alice\0secret"


class Stranger(AssertionError):
    """The router got a request of a client that was not authenticated."""


def frame(chance: random.Random) -> bytes:
    """A frame that somebody may send: mostly steps of a login, in any order."""
    number = chance.randrange(1 << 16)
    kind = chance.randrange(9)
    if kind == 0:
        return encode_request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, number, "x")
    if kind in (1, 2):
        mechanism = chance.choice(("PLAIN", "PLAIN", "PLAIN", "SCRAM-SHA-256", "GSSAPI"))
        return encode_request(SaslHandshakeRequest(mechanism=mechanism), chance.randrange(2), number, "x")
    if kind in (3, 4):
        token = chance.choice((RIGHT, RIGHT, b"\0alice\0wrong", b"n,,n=alice,r=x", b""))
        return encode_request(SaslAuthenticateRequest(auth_bytes=token), chance.randrange(3), number, "x")
    if kind == 5:
        return struct.pack(">i", len(RIGHT)) + RIGHT
    if kind == 6:
        return encode_request(MetadataRequest(topics=[]), 12, number, "x")
    if kind == 7:
        spec = API[chance.choice(list(API))]
        body = chance.randbytes(chance.randrange(40))
        return struct.pack(">ihhih", 10 + len(body), spec.key, chance.randint(0, spec.max_version), number, -1) + body
    junk = chance.randbytes(chance.randrange(60))
    return struct.pack(">i", len(junk)) + junk


def watch(connection: Connection, seen: list[int]) -> None:
    """Check what reaches the router."""
    listener = connection.listener
    handle: Callable[..., None] = listener.handle

    def watched(given: Connection, view: memoryview, start: int, end: int) -> None:
        (key,) = struct.unpack_from(">h", view, start)
        if given.principal == ANONYMOUS and key != ApiKey.API_VERSIONS:
            raise Stranger(f"API {key}")
        seen.append(key)
        handle(given, view, start, end)

    listener.handle = watched


async def play(loop: SimulatedLoop, seed: int, connections: int) -> list[int]:
    world = BrokerWorld(loop, seed, properties=PROPERTIES)
    await world.start()
    chance = random.Random(seed)
    seen: list[int] = []
    watch(Peer(world).connection, seen)
    for _ in range(connections):
        peer = Peer(world)
        stream = b"".join(frame(chance) for _ in range(chance.randrange(1, 9)))
        await peer.send(stream, chance)
        await asyncio.sleep(chance.choice((0, 0.2, 3.0)))
        peer.connection.close()
    await world.stop()
    return seen


def test_nobody_reaches_the_router_without_a_login() -> None:
    quietly()
    seen = simulate(lambda loop: play(loop, 1, 600), 1)
    assert ApiKey.METADATA in seen, "some have logged in"


def test_a_gate_that_lets_everybody_pass_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    quietly()
    monkeypatch.setattr(Authentication, "received", _pass)
    with pytest.raises(Stranger):
        simulate(lambda loop: play(loop, 1, 50), 1)


def _pass(self: Authentication, frame: object, now_ms: int) -> Step:
    return PassOn()
