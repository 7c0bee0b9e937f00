"""Connections to other nodes: in order, in time, and exactly one outcome a request."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Any

from penstock.broker.net.peers import Peer, PeerFailed, Peers
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import read_request_header, response_parts
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.vote import VoteRequest
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from waiting import wait_until_async

PORT = 9092
Answer = Callable[[Message], Message | None]


class FakeNode(asyncio.Protocol):
    """Answers ApiVersions by itself, everything else with `answer`; None leaves a request unanswered."""

    def __init__(self, answer: Answer, *, greets: bool = True, api_versions_max: int = 4) -> None:
        self.answer = answer
        self.greets = greets
        self.api_versions_max = api_versions_max
        self.buffer = b""
        self.seen: list[tuple[str, int]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            (length,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < 4 + length:
                return
            frame, self.buffer = self.buffer[4 : 4 + length], self.buffer[4 + length :]
            self.frame(frame)

    def frame(self, frame: bytes) -> None:
        header, position = read_request_header(frame, 0)
        spec = API[header.api_key]
        version = header.api_version
        self.seen.append((spec.name, version))
        response: Message | None
        if header.api_key == ApiKey.API_VERSIONS:
            response = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=9),
                    ApiVersion(api_key=ApiKey.FETCH, min_version=4, max_version=99),
                ]
            )
            if version > self.api_versions_max:
                response.error_code = ErrorCode.UNSUPPORTED_VERSION
                version = 0
            if not self.greets:
                return
        else:
            message, _ = decode_from(spec.request, frame, version, position)
            response = self.answer(message)
        if response is not None:
            parts: list[Any] = []
            response_parts(header.api_key, version, header.correlation_id, response, parts)
            self.transport.write(b"".join(parts))


async def ask(peer: Peer, message: Message, timeout_s: float = 5.0) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peer.send(message, future.set_result, timeout=timeout_s)
    return await future


async def serve(loop: SimulatedLoop, host: str, node: Callable[[], FakeNode]) -> asyncio.AbstractServer:
    async def program() -> asyncio.AbstractServer:
        return await loop.create_server(node, "0.0.0.0", PORT)

    return await loop.start(host, program())


async def serve_after_a_silent_one(loop: SimulatedLoop) -> list[FakeNode]:
    """A node for each connection; the first does not answer."""
    nodes: list[FakeNode] = []

    def node() -> FakeNode:
        nodes.append(FakeNode(lambda message: None if len(nodes) == 1 else MetadataResponse(cluster_id="new")))
        return nodes[-1]

    await serve(loop, "b", node)
    return nodes


def test_requests_are_pipelined_in_the_highest_common_version() -> None:
    async def program(loop: SimulatedLoop) -> None:
        node = FakeNode(lambda message: MetadataResponse(cluster_id="c"))
        await serve(loop, "b", lambda: node)
        peers = Peers(loop, "test")
        answers = await asyncio.gather(*(ask(peers.at("b", PORT), MetadataRequest()) for _ in range(20)))
        assert [answer.cluster_id for answer in answers] == ["c"] * 20
        assert node.seen[1:] == [("Metadata", 9)] * 20
        assert peers.at("b", PORT).version(ApiKey.METADATA) == 9
        peers.close()

    simulate(program)


def test_a_node_that_knows_only_an_older_greeting_is_greeted_again() -> None:
    async def program(loop: SimulatedLoop) -> None:
        node = FakeNode(lambda message: MetadataResponse(cluster_id="c"), api_versions_max=0)
        await serve(loop, "b", lambda: node)
        peers = Peers(loop, "test")
        assert (await ask(peers.at("b", PORT), MetadataRequest())).cluster_id == "c"
        assert [version for name, version in node.seen if name == "ApiVersions"][1:] == [0]
        peers.close()

    simulate(program)


def test_records_arrive_whole_however_large() -> None:
    async def program(loop: SimulatedLoop) -> None:
        sizes = iter((10, 3_000_000, 20, 70_000))

        def fetched(message: Message) -> FetchResponse:
            size = next(sizes)
            partition = PartitionData(records=bytes([size % 251]) * size)
            return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])

        await serve(loop, "b", lambda: FakeNode(fetched))
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        seen: list[bytes] = []
        finished: asyncio.Future[None] = loop.create_future()

        def done(answer: FetchResponse | PeerFailed) -> None:
            assert isinstance(answer, FetchResponse)
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, bytes | bytearray | memoryview)
            seen.append(bytes(records))
            if len(seen) == 4:
                finished.set_result(None)

        for _ in range(4):
            peer.send(FetchRequest(), done, timeout=60)
        await finished
        assert [len(records) for records in seen] == [10, 3_000_000, 20, 70_000]
        assert all(set(records) == {len(records) % 251} for records in seen)
        peers.close()

    simulate(program)


def test_nobody_there_is_told_as_such_and_tried_again_ever_more_rarely() -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.add_host("b")
        peers = Peers(loop, "test")
        times: list[float] = []
        for _ in range(10):
            outcome = await ask(peers.at("b", PORT), MetadataRequest(), 30)
            assert isinstance(outcome, PeerFailed) and outcome.refused and not outcome.timed_out
            times.append(loop.time())
        waits = [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]
        assert waits[0] < 0.1 and waits[-1] == 1.0
        await serve(loop, "b", lambda: FakeNode(lambda message: MetadataResponse(cluster_id="back")))
        assert (await ask(peers.at("b", PORT), MetadataRequest(), 30)).cluster_id == "back"
        peers.close()

    simulate(program)


def test_an_overdue_request_loses_the_connection_and_all_that_wait_on_it() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve_after_a_silent_one(loop)
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        begin = loop.time()
        outcomes = await asyncio.gather(ask(peer, MetadataRequest(), 2), ask(peer, MetadataRequest(), 60))
        assert [isinstance(outcome, PeerFailed) and outcome.timed_out for outcome in outcomes] == [True, True]
        assert 2 <= loop.time() - begin < 2.5
        assert (await ask(peer, MetadataRequest())).cluster_id == "new"
        peers.close()

    simulate(program)


def test_a_host_that_does_not_answer_at_all_fails_each_request_in_its_time() -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.add_host("b")
        loop.network.power_off("b")
        peers = Peers(loop, "test")
        begin = loop.time()
        short, long = await asyncio.gather(
            ask(peers.at("b", PORT), MetadataRequest(), 1), ask(peers.at("b", PORT), MetadataRequest(), 3)
        )
        assert isinstance(short, PeerFailed) and short.timed_out and not short.refused
        assert isinstance(long, PeerFailed)
        assert loop.time() - begin < 3.5
        peers.close()

    simulate(program)


def test_a_connection_in_the_making_can_be_given_up() -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.add_host("b")
        loop.network.power_off("b")
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        asked = asyncio.ensure_future(ask(peer, MetadataRequest(), 60))
        await asyncio.sleep(1)
        peer.disconnect("somebody else is asked")
        begin = loop.time()
        outcome = await asked
        assert isinstance(outcome, PeerFailed) and outcome.message == "somebody else is asked"
        assert loop.time() - begin < 0.1
        loop.network.power_on("b")
        await serve(loop, "b", lambda: FakeNode(lambda message: MetadataResponse(cluster_id="back")))
        assert (await ask(peer, MetadataRequest())).cluster_id == "back"
        peers.close()

    simulate(program)


def test_a_host_that_is_back_is_found_by_the_attempt_after_the_first_that_was_late() -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.add_host("b")
        loop.network.power_off("b")
        peer = Peers(loop, "test").at("b", PORT)
        waiting = asyncio.ensure_future(ask(peer, MetadataRequest(), 600))
        late = asyncio.ensure_future(ask(peer, MetadataRequest(), 40))
        await asyncio.sleep(39)
        loop.network.power_on("b")
        await serve(loop, "b", lambda: FakeNode(lambda message: MetadataResponse(cluster_id="back")))
        assert isinstance(await late, PeerFailed)
        begin = loop.time()
        assert (await waiting).cluster_id == "back"
        assert loop.time() - begin < 0.1
        peer.close()

    simulate(program)


def test_a_lost_connection_fails_what_was_sent_and_the_next_request_connects_at_once() -> None:
    async def program(loop: SimulatedLoop) -> None:
        nodes = await serve_after_a_silent_one(loop)
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        asked = asyncio.ensure_future(ask(peer, MetadataRequest(), 60))
        await wait_until_async(lambda: nodes and len(nodes[0].seen) >= 2, "the request arrives")
        nodes[0].transport.abort()
        outcome = await asked
        assert isinstance(outcome, PeerFailed) and not outcome.timed_out
        begin = loop.time()
        assert (await ask(peer, MetadataRequest())).cluster_id == "new"
        assert loop.time() - begin < 0.1
        peers.close()

    simulate(program)


def test_what_the_other_side_does_not_serve_fails_alone() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, "b", lambda: FakeNode(lambda message: MetadataResponse(cluster_id="c")))
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        refused, answered = await asyncio.gather(ask(peer, VoteRequest()), ask(peer, MetadataRequest()))
        assert isinstance(refused, PeerFailed) and "Vote" in refused.message
        assert answered.cluster_id == "c"
        peers.close()

    simulate(program)


def test_channels_to_one_address_are_connections_of_their_own() -> None:
    async def program(loop: SimulatedLoop) -> None:
        nodes: list[FakeNode] = []

        def node() -> FakeNode:
            nodes.append(FakeNode(lambda message: MetadataResponse(cluster_id=str(len(nodes)))))
            return nodes[-1]

        await serve(loop, "b", node)
        peers = Peers(loop, "test")
        await ask(peers.at("b", PORT), MetadataRequest())
        await ask(peers.at("b", PORT, "heartbeat"), MetadataRequest())
        await ask(peers.at("b", PORT), MetadataRequest())
        assert len(nodes) == 2
        assert peers.at("b", PORT) is peers.at("b", PORT) is not peers.at("b", PORT, "heartbeat")
        peers.close()

    simulate(program)


def test_closing_fails_what_waits_and_what_comes_after() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, "b", lambda: FakeNode(lambda message: None))
        peers = Peers(loop, "test")
        peer = peers.at("b", PORT)
        asked = asyncio.ensure_future(ask(peer, MetadataRequest(), 60))
        await asyncio.sleep(1)
        peers.close()
        assert isinstance(await asked, PeerFailed)
        assert isinstance(await ask(peer, MetadataRequest()), PeerFailed)

    simulate(program)
