"""What a real broker does with bytes no client should send: Kafka's error or a closed connection, and no harm done."""

from __future__ import annotations

import random
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.codec import decode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.batch import read_header, seal
from penstock.records.builder import build_batch
from penstock.records.compression import Codec, compress
from penstock.testing.nodes import RunningNode, start_node

PRODUCE_VERSION = 9
FETCH_VERSION = 11


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {
        "socket.request.max.bytes": "2000000",
        "socket.listen.backlog.size": "1500",
        "max.connections.per.ip": "1200",
    }
    with start_node(tmp_path_factory.mktemp("bad-input"), properties=properties) as node:
        yield node


@contextmanager
def connected(node: RunningNode) -> Iterator[socket.socket]:
    with socket.create_connection((node.host, node.port), timeout=10) as connection:
        yield connection


def receive(connection: socket.socket) -> bytes | None:
    """One frame's payload, or None if the broker closed the connection."""
    data = b""
    try:
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            chunk = connection.recv(65536)
            if not chunk:
                return None
            data += chunk
    except ConnectionResetError:
        return None
    return data[4:]


def is_alive(node: RunningNode) -> bool:
    with connected(node) as connection:
        connection.sendall(
            encode_request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, 7, "t")
        )
        payload = receive(connection)
    assert payload is not None
    return struct.unpack_from(">i", payload) == (7,)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def create(node: RunningNode, name: str, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=_configs(configs))],
        timeout_ms=10_000,
    )
    with connected(node) as connection:
        connection.sendall(encode_request(request, 4, 1, "t"))
        payload = receive(connection)
    assert payload is not None
    response = decode(CreateTopicsResponse, payload, 4, 4)
    assert response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), response


def _configs(configs: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]


def produce(
    node: RunningNode, topic: str, records: bytes | bytearray | None, acks: int = -1
) -> PartitionProduceResponse:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    with connected(node) as connection:
        connection.sendall(encode_request(request, PRODUCE_VERSION, 1, "t"))
        payload = receive(connection)
    assert payload is not None, "the connection was closed"
    response = decode(ProduceResponse, payload, PRODUCE_VERSION, 5)
    return response.responses[0].partition_responses[0]


def fetch_frame(topic: str, max_wait_ms: int = 0, min_bytes: int = 0) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return bytes(encode_request(request, FETCH_VERSION, 1, "t"))


def end_of(node: RunningNode, topic: str) -> int:
    with connected(node) as connection:
        connection.sendall(fetch_frame(topic))
        payload = receive(connection)
    assert payload is not None
    return decode(FetchResponse, payload, FETCH_VERSION, 4).responses[0].partitions[0].high_watermark


def good_batch(count: int = 3, **options: object) -> bytearray:
    return build_batch([(0, b"k%d" % index, b"v" * 50, ()) for index in range(count)], **options)  # type: ignore[arg-type]


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields, and a CRC that fits them."""
    from penstock.records.batch import pack_header_into

    pack_header_into(batch, 0, read_header(batch)._replace(**fields))
    seal(batch, 0)
    return batch


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2_000_001),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        frame(struct.pack(">hhi", 999, 0, 1) + struct.pack(">h", -1)),
        frame(struct.pack(">hhi", -5, 0, 1) + struct.pack(">h", -1)),
        frame(struct.pack(">hhi", ApiKey.METADATA, 999, 1) + struct.pack(">h", -1)),
        frame(struct.pack(">hhi", ApiKey.PRODUCE, 2, 1) + struct.pack(">h", -1)),
        frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", 2**31 - 1)),
        frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", -7)),
        frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 500)),
        frame(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        frame(struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\x00" + b"\xff" * 12),
        frame(struct.pack(">hhih", ApiKey.FETCH, 11, 1, -1) + random.Random(7).randbytes(60)),
    ],
    ids=lambda data: data[:24].hex(),
)  # fmt: skip
def test_nonsense_closes_the_connection(node: RunningNode, data: bytes) -> None:
    with connected(node) as connection:
        connection.sendall(data)
        assert receive(connection) is None
    assert is_alive(node)


def test_an_unknown_api_versions_version_is_answered_in_the_oldest_form(node: RunningNode) -> None:
    with connected(node) as connection:
        connection.sendall(frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 42, -1)))
        payload = receive(connection)
        assert payload is not None
        assert struct.unpack_from(">i", payload) == (42,)
        response = decode(ApiVersionsResponse, payload, 0, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {key.api_key for key in response.api_keys} >= {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS}
        # The connection is still good.
        connection.sendall(encode_request(ApiVersionsRequest(), 0, 43, "t"))
        assert receive(connection) is not None


def test_a_frame_that_arrives_byte_by_byte_is_served(node: RunningNode) -> None:
    request = encode_request(ApiVersionsRequest(), 0, 5, "slow")
    with connected(node) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(request)):
            connection.send(request[position : position + 1])
        assert receive(connection) is not None


def test_silent_connections_are_closed_as_idle_and_waiting_ones_are_not(tmp_path: Path) -> None:
    with start_node(tmp_path, properties={"connections.max.idle.ms": "800"}) as node:
        create(node, "awaited")
        with connected(node) as halfway, connected(node) as silent, connected(node) as waiting:
            halfway.sendall(struct.pack(">i", 100) + b"half")
            waiting.sendall(fetch_frame("awaited", max_wait_ms=60_000, min_bytes=1))
            assert halfway.recv(10) == b""
            assert silent.recv(10) == b""
            # This one has said nothing for as long, but the broker owes it an answer.
            assert produce(node, "awaited", good_batch()).error_code == 0
            assert receive(waiting) is not None


def test_a_length_alone_claims_no_memory(broker: RunningNode) -> None:
    before = resident_bytes(broker)
    with ExitStack() as stack:
        claimants = [stack.enter_context(connected(broker)) for _ in range(50)]
        for claimant in claimants:  # five gigabytes of produce requests are on their way, or so they say
            claimant.sendall(struct.pack(">ihhi", 100_000_000, ApiKey.PRODUCE, PRODUCE_VERSION, 1))
        assert is_alive(broker)
        assert resident_bytes(broker) - before < 300_000_000


def test_a_large_frame_is_received_however_it_is_cut(broker: RunningNode) -> None:
    """Longer than what the broker makes room for at once; the batch is too large for the topic, and said to be so."""
    request = encode_request(
        ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(
                    name="unknown",
                    partition_data=[PartitionProduceData(index=0, records=bytes(20_000_000))],
                )
            ],
        ),
        PRODUCE_VERSION,
        9,
        "large",
    )
    rng = random.Random(1)
    with connected(broker) as connection:
        position = 0
        while position < len(request):
            size = rng.choice((1, 100, 5000, 70_000, 3_000_000))
            connection.sendall(request[position : position + size])
            position += size
        payload = receive(connection)
        assert payload is not None
        answer = decode(ProduceResponse, payload, PRODUCE_VERSION, 5).responses[0].partition_responses[0]
        assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_every_kind_of_bad_batch_is_refused_and_the_log_untouched(node: RunningNode) -> None:
    create(node, "refused")
    flipped = good_batch()
    flipped[80] ^= 1
    unknown_codec = changed(good_batch(), attributes=6)
    cases: list[tuple[bytes | bytearray | None, ErrorCode]] = [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.CORRUPT_MESSAGE),
        (flipped, ErrorCode.CORRUPT_MESSAGE),
        (good_batch()[:-5], ErrorCode.INVALID_RECORD),
        (good_batch() + good_batch(), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), magic=1), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), magic=77), ErrorCode.CORRUPT_MESSAGE),
        (_with_length(-4), ErrorCode.CORRUPT_MESSAGE),
        (changed(good_batch(), count=0), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), count=-1), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), count=2**31 - 1), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), last_offset_delta=9), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), last_offset_delta=-9), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), base_offset=4), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), attributes=0x20), ErrorCode.INVALID_RECORD),
        (changed(good_batch(), max_timestamp=2**62, base_timestamp=0), ErrorCode.INVALID_TIMESTAMP),
        (changed(good_batch(), producer_id=5, producer_epoch=-1, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ]
    for records, expected in cases:
        answer = produce(node, "refused", records)
        assert ErrorCode(answer.error_code) is expected, (records, answer)
        assert answer.base_offset == -1
    assert ErrorCode(produce(node, "refused", unknown_codec).error_code) in (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD,
    )  # fmt: skip
    assert ErrorCode(produce(node, "refused", good_batch(), acks=5).error_code) is ErrorCode.INVALID_REQUIRED_ACKS
    assert ErrorCode(produce(node, "not-there", good_batch()).error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert end_of(node, "refused") == 0
    assert produce(node, "refused", good_batch()).base_offset == 0
    assert end_of(node, "refused") == 3


def _with_length(length: int) -> bytearray:
    batch = good_batch()
    struct.pack_into(">i", batch, 8, length)
    return batch


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused_in_bounded_memory(node: RunningNode, codec: Codec) -> None:
    create(node, "compacted", cleanup_policy="compact")
    bomb = compress(codec, bytes(30_000_000))
    batch = bytearray(good_batch(1)[:61]) + bomb
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    if len(batch) > 1_000_000:
        batch = batch[:900_000]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    changed(batch, attributes=int(codec))
    answer = produce(node, "compacted", batch)
    assert answer.error_code != ErrorCode.NONE
    assert end_of(node, "compacted") == 0
    assert resident_bytes(node) < 300_000_000
    assert is_alive(node)


def test_records_without_keys_are_named_one_by_one_on_a_compacted_topic(node: RunningNode) -> None:
    create(node, "keyed", cleanup_policy="compact")
    batch = build_batch([(0, b"k", b"v", ()), (0, None, b"v", ()), (0, b"k", b"v", ()), (0, None, b"v", ())])
    answer = produce(node, "keyed", batch)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert end_of(node, "keyed") == 0


def test_random_bytes_and_broken_requests_never_harm_the_broker(node: RunningNode) -> None:
    seed = 20
    rng = random.Random(seed)
    create(node, "fuzzed")
    partition = PartitionProduceData(index=0, records=good_batch())
    message = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="fuzzed", partition_data=[partition])]
    )
    request = encode_request(message, PRODUCE_VERSION, 1, "fuzz")
    for _ in range(300):
        if rng.random() < 0.4:
            payload = frame(rng.randbytes(rng.randrange(8, 200)))
        else:
            broken = bytearray(request)
            for _ in range(rng.randrange(1, 4)):
                broken[rng.randrange(4, len(broken))] = rng.randrange(256)
            payload = bytes(broken)
        with connected(node) as connection:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not connection.recv(65536):
                        break
                except ConnectionResetError:
                    break
    assert is_alive(node)
    assert node.running
    produce(node, "fuzzed", good_batch())
    assert "Traceback" not in node.log_text()


def test_a_thousand_connections_and_a_limit(node: RunningNode) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    connections: list[socket.socket] = []
    try:
        connections += [socket.create_connection((node.host, node.port), timeout=10) for _ in range(1000)]
        request = encode_request(ApiVersionsRequest(), 0, 5, "many")
        for connection in connections:
            connection.sendall(request)
        assert all(receive(connection) is not None for connection in connections)
        assert resident_bytes(node) < 200_000_000
        # Beyond max.connections.per.ip:
        connections += [socket.create_connection((node.host, node.port), timeout=10) for _ in range(300)]
        closed = 0
        for connection in connections[1000:]:
            try:
                connection.sendall(request)
                closed += receive(connection) is None
            except (ConnectionResetError, BrokenPipeError):
                closed += 1
        assert closed >= 90
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_does_not_read_its_replies_is_not_read_from(node: RunningNode) -> None:
    create(node, "unread")
    assert produce(node, "unread", build_batch([(0, None, b"x" * 500_000, ())])).error_code == 0
    request = fetch_frame("unread")
    with connected(node) as connection:
        connection.settimeout(2)
        for _ in range(2000):  # would be a gigabyte of replies
            try:
                connection.sendall(request)
            except TimeoutError:
                break
        assert is_alive(node)
        assert resident_bytes(node) < 200_000_000


def resident_bytes(node: RunningNode) -> int:
    with open(f"/proc/{node.pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
