"""The frames of replication, written and read by hand: a follower's request, and the leader's response.

Both name every partition that has news, so their cost is that of a partition, several times per record batch. The codec
makes the same bytes and reads them likewise; it is used for everything unusual: older versions, forgotten partitions,
errors, diverging epochs, tags.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.broker.partitions.follower_sessions import FetchPosition, Found
from penstock.io.files import Buffer
from penstock.protocol.apis import ApiKey
from penstock.protocol.codec import decode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.protocol.primitives import MalformedMessage, read_uvarint, uvarint

REPLICA_STATE_SINCE = 15
TOPIC_IDS_SINCE = 13
COPIED_BYTES_MAX = 4096  # copying this much is cheaper than a longer writev

_size = lru_cache(1024)(uvarint)  # the batches of a producer have few sizes

# -- requests: API key, version, correlation id
_header = struct.Struct(">hhi").pack
# Tags of the header, max wait, min bytes, max bytes, isolation level, session id and epoch.
_request_start = struct.Struct(">Biiibii").pack
# Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, tags.
_request_partition = struct.Struct(">iiqiqiB").pack
# No forgotten topics, no rack, one tag: 1, of 13 bytes: the follower and its epoch, without tags.
_request_end = struct.Struct(">BBBBBiqB").pack
_length = struct.Struct(">i").pack_into
# -- responses: length, correlation id, tags, throttle time, error code, session id
_response_start = struct.Struct(">iiBihi").pack
_read_response_start = struct.Struct(">ihi").unpack_from
# Partition, error code, high watermark, last stable offset, log start offset, aborted transactions, preferred replica.
_response_partition = struct.Struct(">ihqqqBi")

ByTopic = dict[bytes, list[tuple[int, Found]]]


class ReplicaFetch:
    """A request of a follower; `asked` are the partitions that it names, by topic id."""

    __slots__ = ("_asked", "message")

    def __init__(self, message: FetchRequest, asked: list[FetchPosition]) -> None:
        self.message = message
        self._asked = asked

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        message = self.message
        by_topic: dict[bytes, list[FetchPosition]] = {}
        for asked in self._asked:
            topic_id = asked[0][0]
            assert isinstance(topic_id, bytes)
            by_topic.setdefault(topic_id, []).append(asked)
        state = message.replica_state
        if version < REPLICA_STATE_SINCE or message.forgotten_topics_data or state is None:
            message.topics = [_topic(topic_id, partitions) for topic_id, partitions in by_topic.items()]
            return encode_request(message, version, correlation_id, client_id)
        name = client_id.encode()
        out = bytearray(4)
        out += _header(ApiKey.FETCH, version, correlation_id)
        out += len(name).to_bytes(2, "big")
        out += name
        out += _request_start(
            0,
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            message.isolation_level,
            message.session_id,
            message.session_epoch,
        )
        out += uvarint(len(by_topic) + 1)
        for topic_id, partitions in by_topic.items():
            out += topic_id
            out += uvarint(len(partitions) + 1)
            for (_, index), epoch, offset, last_epoch, log_start, max_bytes in partitions:
                out += _request_partition(index, epoch, offset, last_epoch, log_start, max_bytes, 0)
            out += b"\x00"
        out += _request_end(1, 1, 1, 1, 13, state.replica_id, state.replica_epoch, 0)
        _length(out, 0, len(out) - 4)
        return bytes(out)

    @staticmethod
    def decode(frame: Buffer, version: int, position: int) -> Any:
        return read_response(frame, version, position)


def _topic(topic_id: bytes, partitions: list[FetchPosition]) -> FetchTopic:
    return FetchTopic(
        topic_id=topic_id,
        partitions=[
            FetchPartition(
                partition=index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=max_bytes,
            )
            for (_, index), epoch, offset, last_epoch, log_start, max_bytes in partitions
        ],
    )


class Answer(NamedTuple):
    """The leader's response."""

    error_code: int
    session_id: int
    partitions: list[tuple[tuple[bytes, int], Found | PartitionData]]


def read_response(frame: Buffer, version: int, position: int) -> Answer:
    """Read a response from `position` on. The records are views of the frame."""
    answer = _read_plain(memoryview(frame), position) if version >= TOPIC_IDS_SINCE else None
    if answer is not None:
        return answer
    response = decode(FetchResponse, frame, version, position)
    partitions: list[tuple[tuple[bytes, int], Found | PartitionData]] = [
        ((topic.topic_id, data.partition_index), data) for topic in response.responses for data in topic.partitions
    ]
    return Answer(response.error_code, response.session_id, partitions)


def _read_plain(view: memoryview, position: int) -> Answer | None:
    """None if there is an error or a tag in it, or if it is malformed: the codec then says how."""
    try:
        return _read_found(view, position)
    except (struct.error, IndexError, MalformedMessage):
        return None


def _read_found(view: memoryview, position: int) -> Answer | None:
    _, error_code, session_id = _read_response_start(view, position)
    if error_code:
        return None
    topics, position = read_uvarint(view, position + 10)
    found: list[tuple[tuple[bytes, int], Found | PartitionData]] = []
    unpack, partition_size = _response_partition.unpack_from, _response_partition.size
    end = len(view)
    for _ in range(topics - 1):
        topic_id = bytes(view[position : position + 16])
        partitions, position = read_uvarint(view, position + 16)
        for _ in range(partitions - 1):
            index, error_code, high_watermark, _, log_start_offset, aborted, _ = unpack(view, position)
            if error_code or aborted > 1:
                return None
            size, position = read_uvarint(view, position + partition_size)
            following = position + max(size - 1, 0)
            if following >= end or view[following]:
                return None
            found.append(((topic_id, index), Found(high_watermark, log_start_offset, view[position:following])))
            position = following + 1
        if view[position]:
            return None
        position += 1
    return Answer(0, session_id, found) if topics and not view[position] and position + 1 == end else None


def encode_response(correlation_id: int, session_id: int, by_topic: ByTopic) -> list[Buffer]:
    """The frame of a response from version 13 on, for a follower without errors."""
    parts: list[Buffer] = []
    pending = bytearray(_response_start(0, correlation_id, 0, 0, 0, session_id) + uvarint(len(by_topic) + 1))
    first = pending
    size = 0
    pack = _response_partition.pack
    for topic_id, partitions in by_topic.items():
        pending += topic_id
        pending += uvarint(len(partitions) + 1)
        for index, (high_watermark, log_start_offset, records) in partitions:
            pending += pack(index, 0, high_watermark, high_watermark, log_start_offset, 0, -1)
            length = len(records)
            pending += _size(length + 1)
            if length <= COPIED_BYTES_MAX:
                pending += records
            else:
                size += len(pending) + length
                parts += (pending, records)
                pending = bytearray()
            pending += b"\x00"
        pending += b"\x00"
    pending += b"\x00"
    parts.append(pending)
    _length(first, 0, size + len(pending) - 4)
    return parts
