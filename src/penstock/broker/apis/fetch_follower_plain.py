"""Fast path for the fetches of followers that continue a session.

A follower names a partition in nearly every request: the one whose records it has just appended. Decoding the names
into messages costs more than the work that they ask for, so they are read by hand here. A request with anything else in
it (a new session, forgotten partitions, tags) is left to the general path, and so is one that must be refused.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.broker.net.connection import Connection
from penstock.broker.net.request import Request
from penstock.broker.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from penstock.broker.partitions.follower_fetch import FollowerFetches
from penstock.broker.partitions.follower_sessions import FetchPosition
from penstock.model.errors import KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.primitives import MalformedMessage, read_uvarint
from penstock.security.acl_authorizer import AuthorizerNotReady
from penstock.security.authorizer import CLUSTER, Authorizer, Operation

VERSIONS = (15, 18)  # those in which a tag names the follower

NULL_CLIENT_ID = 0xFFFF
PARTITION_SIZE = 33
TOPIC_ID_SIZE = 16

# Header tags, max wait, min bytes, max bytes, isolation level, session id and epoch.
_start = struct.Struct(">Biiibii").unpack_from
START_SIZE = 22
# Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, tags.
_partition = struct.Struct(">iiqiqiB").unpack_from
# No forgotten topics, no rack, one tag: 1, of 13 bytes: the follower and its epoch, without tags.
_end = struct.Struct(">BBBBBiqB").unpack_from
END_SIZE = 18


class Read(NamedTuple):
    message: FetchRequest
    """Without the partitions."""
    asked: list[FetchPosition]
    broker_id: int
    broker_epoch: int


class PlainFollowerFetch:
    def __init__(self, followers: FollowerFetches, authorizer: Authorizer) -> None:
        self._followers = followers
        self._authorizer = authorizer

    def handle(self, connection: Connection, frame: memoryview, version: int, correlation_id: int) -> bool:
        """True if the request was plain and will be answered."""
        read = read_request(frame)
        if read is None:
            return False
        try:
            if not self._authorizer.authorize(
                connection.principal, connection.peer_host, Operation.CLUSTER_ACTION, CLUSTER
            ):
                return False
            session = self._followers.sessions.open(read.message, version, read.broker_id, read.broker_epoch)
        except (AuthorizerNotReady, KafkaError):
            return False  # the general path makes the error response, or closes the connection
        connection.latency = self._followers.latency
        request = Request(
            connection,
            ApiKey.FETCH,
            version,
            correlation_id,
            None,
            connection.principal,
            self._authorizer,
            client_host=connection.peer_host,
        )
        response = self._followers.begin(request, read.message, session, read.asked)
        if response is not None:
            connection.send(request.parts(response))
        return True


def read_request(frame: memoryview) -> Read | None:
    """None if the request is not plain, or malformed."""
    try:
        return _read_request(frame)
    except (struct.error, IndexError, MalformedMessage):
        return None


def _read_request(frame: memoryview) -> Read | None:
    size = frame[8] << 8 | frame[9]
    position = 10 if size == NULL_CLIENT_ID else 10 + size
    tags, max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = _start(frame, position)
    if tags or session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return None
    topics, position = read_uvarint(frame, position + START_SIZE)
    asked: list[FetchPosition] = []
    for _ in range(topics - 1):
        topic_id = bytes(frame[position : position + TOPIC_ID_SIZE])
        partitions, position = read_uvarint(frame, position + TOPIC_ID_SIZE)
        for _ in range(partitions - 1):
            index, epoch, offset, last_epoch, log_start, partition_max_bytes, tags = _partition(frame, position)
            if tags:
                return None
            position += PARTITION_SIZE
            asked.append(((topic_id, index), epoch, offset, last_epoch, log_start, partition_max_bytes))
        if frame[position]:
            return None
        position += 1
    forgotten, rack, tags, tag, size, broker_id, broker_epoch, inner_tags = _end(frame, position)
    if (forgotten, rack, tags, tag, size, inner_tags) != (1, 1, 1, 1, 13, 0) or position + END_SIZE != len(frame):
        return None
    if not topics or broker_id < 0:
        return None
    message = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
    )
    return Read(message, asked, broker_id, broker_epoch)
