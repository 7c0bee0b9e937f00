"""The wire, for tests that ask what no client library would: any request in any version, pipelined, malformed, by hand.

with Wire(broker) as wire:
    create_topic(wire, "orders")
    assert produce(wire, "orders", batch("a", "b")).base_offset == 0
    wire.send(first); wire.send(second)
    wire.receive(); wire.receive()      # in the order of the requests, or the test fails
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiSpec
from penstock.protocol.codec import decode, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.fetch import PartitionData
from penstock.protocol.messages.header import ResponseHeader
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from penstock.protocol.messages.produce import (
    PartitionProduceResponse,
)
from penstock.records.batch import BatchHeader, iterate_headers, pack_header_into, read_header, seal
from penstock.records.record import Record
from penstock.simulator.requests import batch as batch  # tests take all of them from here
from penstock.simulator.requests import fetch_request as fetch_request
from penstock.simulator.requests import now_ms as now_ms
from penstock.simulator.requests import only_partition as only_partition
from penstock.simulator.requests import produce_request as produce_request
from penstock.simulator.requests import records as records

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
SET, DELETE, APPEND, SUBTRACT = range(4)

_SPECS: dict[type[Any], ApiSpec] = {spec.request: spec for spec in API.values()}


class Closed(Exception):
    """The broker closed the connection."""


class Address(Protocol):
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Wire:
    """One connection. Answers are expected in the order of the requests."""

    def __init__(self, broker: Address | tuple[str, int], *, timeout: float = 20.0, client_id: str | None = "wire"):
        address = broker if isinstance(broker, tuple) else (broker.host, broker.port)
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._unanswered: deque[tuple[ApiSpec, int, int]] = deque()
        self._received = bytearray()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def encode(self, message: Message, version: int | None = None, *, answered: bool = True) -> bytes:
        """The frame of a request, whose answer `receive` will then expect."""
        spec = _SPECS[type(message)]
        version = spec.max_version if version is None else version
        correlation_id = next(self._correlation_ids)
        if answered:
            self._unanswered.append((spec, version, correlation_id))
        return bytes(encode_request(message, version, correlation_id, self._client_id))

    def send(self, message: Message, version: int | None = None, *, answered: bool = True) -> None:
        self.socket.sendall(self.encode(message, version, answered=answered))

    def receive(self) -> Any:
        """The answer to the oldest request without one."""
        spec, version, correlation_id = self._unanswered.popleft()
        frame = self.receive_frame()
        header, position = decode_from(ResponseHeader, frame, response_header_version(spec.key, version), 0)
        assert header.correlation_id == correlation_id, "answers out of order"
        return decode(spec.response, frame, version, position)

    def ask(self, message: Message, version: int | None = None) -> Any:
        self.send(message, version)
        return self.receive()

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def is_closed(self) -> bool:
        """Waits for the broker to close it; false if something else arrives."""
        try:
            return not self._received and not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """True if nothing arrives: the one thing that takes a time to see."""
        if self._received:
            return False
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self._received += self.socket.recv(65536)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                chunk = self.socket.recv(1 << 20)
            except ConnectionResetError as error:
                raise Closed from error
            if not chunk:
                raise Closed
            self._received += chunk
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


# -- batches


def changed(data: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields, and a CRC that fits them."""
    pack_header_into(data, 0, read_header(data)._replace(**fields))
    seal(data, 0)
    return data


def headers(data: Any) -> list[BatchHeader]:
    return [header for _, header in iterate_headers(memoryview(data))]


def values(data: Any) -> list[bytes | None]:
    return [record.value for record in records(data)]


# -- the requests every test needs


def create_topic(
    wire: Wire, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None, expect: int = ErrorCode.NONE
) -> bytes:
    """The topic's id. It can be used at once: creation is answered when the broker leads it."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
            )
        ]
    )
    (result,) = wire.ask(request).topics
    assert result.error_code == expect, result
    topic_id: bytes = result.topic_id
    return topic_id


def alter_configs(
    wire: Wire,
    kind: int,
    name: str,
    changes: Mapping[str, str | None],
    *,
    operation: int | None = None,
    validate_only: bool = False,
) -> ErrorCode:
    """Set what has a value, and delete what has none."""
    request = IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=key,
                        value=value,
                        config_operation=(DELETE if value is None else SET) if operation is None else operation,
                    )
                    for key, value in changes.items()
                ],
            )
        ],
    )
    (result,) = wire.ask(request).responses
    return ErrorCode(result.error_code)


def producer_id(wire: Wire) -> int:
    answer = wire.ask(InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_epoch == 0
    taken: int = answer.producer_id
    return taken


def produce(
    wire: Wire, topic: str, data: Any, *, partition: int = 0, acks: int = -1, version: int = 12
) -> PartitionProduceResponse:
    return only_partition(wire.ask(produce_request(topic, data, partition=partition, acks=acks), version))


def refused(wire: Wire, topic: str, data: Any, **options: Any) -> ErrorCode:
    """The error of a produce request that must not have changed anything."""
    answer = produce(wire, topic, data, **options)
    assert answer.base_offset == -1
    return ErrorCode(answer.error_code)


def fetch(wire: Wire, topic: str | bytes, offset: int = 0, *, version: int | None = None, **options: Any) -> Any:
    """The only partition of a full fetch."""
    if version is None:
        version = 12 if isinstance(topic, str) else 18
    response = wire.ask(fetch_request(topic, offset, **options), version)
    assert response.error_code == ErrorCode.NONE
    ((answer,),) = (each.partitions for each in response.responses)
    assert isinstance(answer, PartitionData)
    return answer


def read_all(wire: Wire, topic: str, *, partition: int = 0, offset: int = 0) -> list[Record]:
    """Every record from `offset` to the end."""
    found: list[Record] = []
    while True:
        answer = fetch(wire, topic, offset, partition=partition)
        assert answer.error_code == ErrorCode.NONE, answer
        some = [record for record in records(answer.records) if record.offset >= offset]
        if not some:
            assert offset == answer.high_watermark
            return found
        found += some
        offset = some[-1].offset + 1


def list_offset(wire: Wire, topic: str, timestamp: int, *, version: int | None = None, **options: Any) -> Any:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=options.pop("isolation_level", 0),
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)]
            )
        ],
    )
    ((answer,),) = (each.partitions for each in wire.ask(request, version).topics)
    return answer


def end_offset(wire: Wire, topic: str) -> int:
    answer = list_offset(wire, topic, -1)
    assert answer.error_code == ErrorCode.NONE, answer
    offset: int = answer.offset
    return offset


def metadata_of(wire: Wire, topic: str, *, create: bool = False) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    (found,) = wire.ask(request).topics
    assert isinstance(found, MetadataResponseTopic)
    return found


@contextlib.contextmanager
def broker_config(wire: Wire, node_id: int, name: str, value: str) -> Iterator[None]:
    """A dynamic broker setting, for as long as the block lasts."""
    assert alter_configs(wire, BROKER_RESOURCE, str(node_id), {name: value}) is ErrorCode.NONE
    try:
        yield
    finally:
        assert alter_configs(wire, BROKER_RESOURCE, str(node_id), {name: None}) is ErrorCode.NONE
