"""Connections to nodes that ask for a login: both sides, on a simulated network."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from penstock.broker.net.peers import BACKOFF_MIN_S, PeerFailed, Peers
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.frames import read_request_header, response_parts
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.security.credentials import ScramMechanism, new_credential
from penstock.security.sasl.authentication import Authentication, Close, Mechanism, PassOn, Send
from penstock.security.sasl.logins import AnyLogin, password_login
from penstock.security.sasl.plain import PlainServer, known_users
from penstock.security.sasl.scram import ScramServer
from penstock.simulator.twins.loop import SimulatedLoop, simulate

PORT = 9092
SESSION_MS = 10_000
CREDENTIAL = new_credential(ScramMechanism.SCRAM_SHA_256, "secret", b"salt")


def mechanisms(max_session_ms: int) -> dict[str, Mechanism]:
    users = known_users({"node": "secret"})
    return {
        "PLAIN": Mechanism(lambda: PlainServer(users), max_session_ms),
        "SCRAM-SHA-256": Mechanism(
            lambda: ScramServer(
                ScramMechanism.SCRAM_SHA_256,
                credential=lambda name: CREDENTIAL if name == "node" else None,
                token=lambda _: None,
                nonce="server",
            ),
            max_session_ms,
        ),
    }


class SecureNode(asyncio.Protocol):
    """The server's state machine in front of a node that knows ApiVersions and Metadata."""

    def __init__(self, loop: SimulatedLoop, max_session_ms: int = 0) -> None:
        self.loop = loop
        self.authentication = Authentication(mechanisms(max_session_ms), wall_clock_ms=self.now_ms)
        self.buffer = b""
        self.seen: list[str] = []
        self.closed_because = ""

    def now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and not self.closed_because:
            (length,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < 4 + length:
                return
            frame, self.buffer = self.buffer[4 : 4 + length], self.buffer[4 + length :]
            self.frame(frame)

    def frame(self, frame: bytes) -> None:
        header, _ = read_request_header(frame, 0)
        self.seen.append(API[header.api_key].name)
        step = self.authentication.received(frame, self.now_ms())
        if isinstance(step, PassOn):
            response: Any = MetadataResponse(cluster_id="c")
            if header.api_key == ApiKey.API_VERSIONS:
                keys = (ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
                response = ApiVersionsResponse(
                    api_keys=[ApiVersion(api_key=key, max_version=API[key].max_version) for key in keys]
                )
            parts: list[Any] = []
            response_parts(header.api_key, header.api_version, header.correlation_id, response, parts)
            self.transport.write(b"".join(parts))
        elif isinstance(step, Send):
            self.transport.write(step.frame)
        else:
            assert isinstance(step, Close)
            self.closed_because = step.reason
            self.transport.write(step.reply)
            self.transport.close()


def login(mechanism: str, password: str = "secret") -> AnyLogin:
    return password_login(mechanism, "node", password, lambda: "client")


async def ask(peers: Peers) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peers.at("b", PORT).send(MetadataRequest(), future.set_result, timeout=5.0)
    return await future


async def serve(loop: SimulatedLoop, max_session_ms: int = 0) -> list[SecureNode]:
    nodes: list[SecureNode] = []

    def node() -> SecureNode:
        nodes.append(SecureNode(loop, max_session_ms))
        return nodes[-1]

    async def program() -> asyncio.AbstractServer:
        return await loop.create_server(node, "0.0.0.0", PORT)

    await loop.start("b", program())
    return nodes


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_node_logs_in_before_its_first_request(mechanism: str) -> None:
    async def program(loop: SimulatedLoop) -> None:
        nodes = await serve(loop)
        peers = Peers(loop, "test", login=login(mechanism))
        answers = await asyncio.gather(*(ask(peers) for _ in range(5)))
        assert [answer.cluster_id for answer in answers] == ["c"] * 5
        (node,) = nodes
        assert node.seen[:2] == ["ApiVersions", "SaslHandshake"]
        assert node.seen[-5:] == ["Metadata"] * 5
        peers.close()

    simulate(program)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_fails_every_request_and_is_not_sent_in_a_hurry(mechanism: str) -> None:
    async def program(loop: SimulatedLoop) -> None:
        nodes = await serve(loop)
        peers = Peers(loop, "test", login=login(mechanism, "wrong"))
        start = loop.time()
        for _ in range(4):
            outcome = await ask(peers)
            assert isinstance(outcome, PeerFailed)
            assert "Authentication failed" in outcome.message
        assert loop.time() - start > BACKOFF_MIN_S * (1 + 2 + 4), "each attempt waits longer than the one before"
        assert len(nodes) == 4
        peers.close()

    simulate(program)


def test_a_mechanism_that_is_not_enabled() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop)
        peers = Peers(loop, "test", login=login("SCRAM-SHA-512"))
        outcome = await ask(peers)
        assert isinstance(outcome, PeerFailed)
        assert "SCRAM-SHA-512 is not enabled: PLAIN, SCRAM-SHA-256" in outcome.message
        peers.close()

    simulate(program)


def test_a_node_without_a_login_is_refused() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop)
        peers = Peers(loop, "test")
        assert isinstance(await ask(peers), PeerFailed)
        peers.close()

    simulate(program)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_node_authenticates_again_before_its_session_ends(mechanism: str) -> None:
    """For a minute, with ten requests at a time: one connection, no failure, six sessions."""

    async def program(loop: SimulatedLoop) -> None:
        nodes = await serve(loop, SESSION_MS)
        peers = Peers(loop, "test", login=login(mechanism))
        end = loop.time() + 60
        while loop.time() < end:
            answers = await asyncio.gather(*(ask(peers) for _ in range(10)))
            assert not [answer for answer in answers if isinstance(answer, PeerFailed)]
            await asyncio.sleep(0.7)
        (node,) = nodes
        assert not node.closed_because
        assert 6 <= node.seen.count("SaslHandshake") <= 8
        peers.close()

    simulate(program)


def test_an_idle_connection_survives_the_end_of_its_session() -> None:
    async def program(loop: SimulatedLoop) -> None:
        nodes = await serve(loop, SESSION_MS)
        peers = Peers(loop, "test", login=login("PLAIN"))
        await ask(peers)
        await asyncio.sleep(100)
        assert (await ask(peers)).cluster_id == "c"
        assert len(nodes) == 1
        peers.close()

    simulate(program)
