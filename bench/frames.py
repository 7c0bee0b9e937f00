"""Requests built once, and where in the replies to look.

A load generator that encodes and decodes would measure itself. Here a connection's requests are a *ring*: frames of
one size, laid end to end twice over, frame `i` with correlation id `i`. The next `k` requests are one slice of it,
whatever `k`, and what must come back is known by position: the correlation id and the error codes of a reply stand at
fixed places as long as topic names and sizes do not change.

Produce v9 and Fetch v12 are used: the first flexible versions with topic names, which every Kafka since 2.7 serves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from penstock.model.errors import ErrorCode
from penstock.protocol.codec import decode, encode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.records.batch import HEADER_SIZE, check_crc, iterate_headers
from penstock.records.builder import build_batch

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CLIENT_ID = "bench"
RECORD_VALUE_SIZE = 1000
MAX_RING = 256
# Everything before the body of a reply: length, correlation id, and the tagged fields of a flexible header.
REPLY_HEADER_SIZE = 9


class BadReply(Exception):
    """The server answered something else than the load asked for: no figure can be given."""


@dataclass(frozen=True)
class Ring:
    frames: bytes
    """`count` frames, twice."""
    frame_size: int
    count: int
    payload_offset: int
    """Where in a frame its records begin; the frame's size for requests without records."""


def single_record_batch(value_size: int) -> bytes:
    return bytes(build_batch([(_now_ms(), None, b"v" * value_size, ())]))


def batch_of_size(size: int) -> bytes:
    """A batch of exactly `size` bytes, in records of about `RECORD_VALUE_SIZE`, uncompressed."""
    now = _now_ms()
    count = max(1, (size - HEADER_SIZE) // (RECORD_VALUE_SIZE + 12))
    last = RECORD_VALUE_SIZE
    while True:
        values = [b"v" * RECORD_VALUE_SIZE] * (count - 1) + [b"v" * last]
        batch = build_batch([(now, None, value, ()) for value in values])
        missing = size - len(batch)
        if missing == 0:
            return bytes(batch)
        if last + missing < 0:
            raise ValueError(f"no batch of {size} bytes")
        last += missing


def produce_ring(topic: str, partition: int, batch: bytes, count: int, acks: int = 1) -> Ring:
    def frame(correlation_id: int) -> bytes:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
            ],
        )
        return encode_request(request, PRODUCE_VERSION, correlation_id, CLIENT_ID)

    return _ring([frame(index) for index in range(count)], batch)


def fetch_ring(topic: str, partition: int, offsets: list[int], max_bytes: int) -> Ring:
    def frame(correlation_id: int, offset: int) -> bytes:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=max_bytes,
                        )
                    ],
                )
            ],
        )
        return encode_request(request, FETCH_VERSION, correlation_id, CLIENT_ID)

    return _ring([frame(index, offset) for index, offset in enumerate(offsets)], None)


def _ring(frames: list[bytes], payload: bytes | None) -> Ring:
    size = len(frames[0])
    if len(frames) > MAX_RING or any(len(frame) != size for frame in frames):
        raise ValueError(f"a ring takes up to {MAX_RING} frames of one size")
    offset = size if payload is None else frames[0].index(payload)
    return Ring(b"".join(frames) * 2, size, len(frames), offset)


def produce_error_position(topic: str) -> int:
    """Header, topic count, name, partition count, partition index; then the error code."""
    return REPLY_HEADER_SIZE + 1 + _name_size(topic) + 1 + 4


def fetch_error_positions(topic: str) -> tuple[int, int]:
    """Throttle time, then the request's error code; session id, topic count, name, partition count, index, then the
    partition's error code."""
    whole = REPLY_HEADER_SIZE + 4
    return whole, whole + 2 + 4 + 1 + _name_size(topic) + 1 + 4


def produce_reply_size(topic: str) -> int:
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[PartitionProduceResponse()])]
    )
    return REPLY_HEADER_SIZE + len(encode(response, PRODUCE_VERSION))


def fetch_reply_overhead(topic: str, data_size: int) -> int:
    """Bytes of a Fetch reply of one partition beside its records."""
    records_length = _unsigned_varint_size(data_size + 1)
    before_records = fetch_error_positions(topic)[1] + 2 + 8 + 8 + 8 + 1 + 4
    return before_records + records_length + 3


def check_produce_reply(body: memoryview, topic: str) -> None:
    """The whole reply, decoded: done for the first one of each connection."""
    response = decode(ProduceResponse, body, PRODUCE_VERSION)
    for topic_response in response.responses:
        for partition in topic_response.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise BadReply(f"Produce to {topic}-{partition.index}: {_error_name(partition.error_code)}")
            if topic_response.name == topic:
                return
    raise BadReply(f"a Produce reply without {topic}")


def check_fetch_reply(body: memoryview, topic: str, offset: int, size: int) -> None:
    """As above; the records must be whole batches with good checksums from `offset` on, `size` bytes of them."""
    response = decode(FetchResponse, body, FETCH_VERSION)
    if response.error_code != ErrorCode.NONE:
        raise BadReply(f"Fetch: {_error_name(response.error_code)}")
    [topic_response] = response.responses
    [partition] = topic_response.partitions
    if topic_response.topic != topic or partition.error_code != ErrorCode.NONE:
        raise BadReply(f"Fetch from {topic_response.topic}: {_error_name(partition.error_code)}")
    assert isinstance(partition.records, memoryview)
    records = partition.records
    expected = offset
    whole = 0
    for position, header in iterate_headers(records):
        check_crc(records, position, header)
        if header.base_offset != expected:
            raise BadReply(f"Fetch from {topic} at {offset}: offset {header.base_offset} where {expected} should be")
        expected = header.next_offset
        whole += header.size
    if whole != size or len(records) != size:
        raise BadReply(f"Fetch from {topic} at {offset}: {whole} of {len(records)} bytes in whole batches, not {size}")


def _error_name(code: int) -> str:
    return next((error.name for error in ErrorCode if error == code), str(code))


def _name_size(topic: str) -> int:
    return _unsigned_varint_size(len(topic) + 1) + len(topic.encode())


def _unsigned_varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _now_ms() -> int:
    return int(time.time() * 1000)
