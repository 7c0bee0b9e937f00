"""The client's connection against peers that misbehave, and against a broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.client.errors import BadResponse, ClientError, TimedOut, Unreachable, UnsupportedApi
from penstock.client.wire.cluster import Cluster, parse_bootstrap
from penstock.client.wire.connection import Connection
from penstock.local.ports import free_ports
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import encode, join
from penstock.protocol.conversation import GREETING_VERSION
from penstock.protocol.frames import read_request_header, response_parts
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.primitives import Part
from penstock.testing.nodes import RunningNode

Answer = Callable[[bytes], bytes | None]


@contextmanager
def peer(answer: Answer) -> Iterator[int]:
    """A server that answers each frame with bytes, or closes the connection for None; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def receive(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    while True:
                        (size,) = struct.unpack(">i", receive(connection, 4))
                        reply = answer(receive(connection, size))
                        if reply is None:
                            break
                        connection.sendall(reply)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def api_versions_reply(frame: bytes, apis: dict[int, tuple[int, int]], error_code: int = 0) -> bytes:
    header, _ = read_request_header(frame, 0)
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in apis.items()]
    body = ApiVersionsResponse(error_code=error_code, api_keys=keys)
    if error_code:  # the answer to a version that is not known has the form of version 0
        payload = struct.pack(">i", header.correlation_id) + encode(body, 0)
        return struct.pack(">i", len(payload)) + payload
    out: list[Part] = []
    response_parts(ApiKey.API_VERSIONS, header.api_version, header.correlation_id, body, out)
    return join(out)


def test_greets_and_asks_a_real_broker(broker: RunningNode) -> None:
    with Connection(broker.host, broker.port) as connection:
        assert connection.supports(ApiKey.PRODUCE)
        response = connection.request(MetadataRequest(topics=[]), MetadataResponse)
        assert [(node.host, node.port) for node in response.brokers] == [(broker.host, broker.port)]
        assert connection.version(ApiKey.METADATA) == API[ApiKey.METADATA].max_version


def test_an_older_broker_is_greeted_again_in_version_0() -> None:
    versions: list[int] = []

    def answer(frame: bytes) -> bytes:
        version = read_request_header(frame, 0)[0].api_version
        versions.append(version)
        return api_versions_reply(frame, {18: (0, 2), 3: (0, 5)}, error_code=35 if version > 2 else 0)

    with peer(answer) as port, Connection("127.0.0.1", port) as connection:
        assert connection.version(ApiKey.METADATA) == 5
    assert versions == [GREETING_VERSION, 0]


def test_an_api_the_broker_lacks_is_said() -> None:
    with (
        peer(lambda frame: api_versions_reply(frame, {18: (0, 4), 3: (90, 99)})) as port,
        Connection("127.0.0.1", port) as connection,
    ):
        assert not connection.supports(ApiKey.METADATA)
        with pytest.raises(UnsupportedApi, match="does not serve DescribeQuorum"):
            connection.request(DescribeQuorumRequest(), DescribeQuorumResponse)


def test_nobody_listens() -> None:
    port = free_ports(1)[0]
    with pytest.raises(Unreachable, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        Connection("127.0.0.1", port)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (None, Unreachable),  # closes the connection
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", BadResponse),  # as a length this is a gigabyte
        (struct.pack(">i", -1), BadResponse),
        (struct.pack(">i", 4) + struct.pack(">i", 4711), BadResponse),  # an answer to another question
        (struct.pack(">i", 10) + struct.pack(">i", 1) + b"\xff" * 6, BadResponse),
    ],
)
def test_peers_that_are_no_brokers(reply: bytes | None, error: type[ClientError]) -> None:
    with peer(lambda frame: reply) as port, pytest.raises(error) as caught:
        Connection("127.0.0.1", port)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_silent_peer_times_out() -> None:
    with peer(lambda frame: b"") as port, pytest.raises(TimedOut, match=r"does not answer ApiVersions within 0.1 s"):
        Connection("127.0.0.1", port, timeout=0.1)


def test_any_bootstrap_address_will_do(broker: RunningNode) -> None:
    dead = free_ports(1)[0]
    with Cluster(f"127.0.0.1:{dead},{broker.bootstrap}") as cluster:
        assert [node.node_id for node in cluster.metadata([]).brokers] == [broker.node_id]
    with Cluster(f"127.0.0.1:{dead}") as cluster, pytest.raises(Unreachable, match="Connection refused"):
        cluster.metadata([])


def test_bootstrap_addresses() -> None:
    assert parse_bootstrap("one:1,two, [::1]:3,[::2]") == [("one", 1), ("two", 9092), ("::1", 3), ("::2", 9092)]
    assert parse_bootstrap("PLAINTEXT://host:7") == [("host", 7)]
    for text in ("", "host:", "host:x", ":1", "host:0", "host:65536"):
        with pytest.raises(ClientError):
            parse_bootstrap(text)
