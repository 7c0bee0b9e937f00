"""Fast path for plain fetch requests: no session, and all requested data is here and readable at once.

Consumers that lag behind send such requests, and for small responses decoding and encoding take most of the time (see
docs/benchmarks.md). If a request is not plain (a session, an error, a follower, data outside of the page cache, too
little data), `handle` returns False and has changed nothing, and the general path in `fetch.py` handles the request
from the start. So this file only affects speed. A test runs both paths on the same requests and compares the bytes.
"""

from __future__ import annotations

import struct
from typing import cast

from penstock.broker.net.connection import Connection
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.model.errors import KafkaError
from penstock.protocol.primitives import Part
from penstock.security.acl_authorizer import AuthorizerNotReady
from penstock.security.authorizer import Authorizer, Operation, topic_resource
from penstock.settings.live import LiveSettings

VERSIONS = (12, 18)  # those with flexible encoding

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
NULL_CLIENT_ID = 0xFFFF
CONSUMER = -1
NO_EPOCH = -1
NO_SESSION = 0
SESSIONLESS_EPOCH = -1

# Header tags, replica id (later a tag), max wait, min bytes, max bytes, isolation, session id and epoch, topics.
_start_with_replica_id = struct.Struct(">BiiiibiiB").unpack_from
_start = struct.Struct(">BiiibiiB").unpack_from
# Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, tags.
_partition = struct.Struct(">iiqiqiB").unpack_from
PARTITION_SIZE = 33
_END = b"\x01\x01\x00"  # no forgotten topics, no rack, no tags

# Length, correlation id, tags, throttle time, error code, session id, topics.
_reply_start = struct.Struct(">iiBihiB").pack
# Partition, error code, high watermark, last stable offset, log start offset, aborted transactions, preferred replica.
_reply_partition = struct.Struct(">ihqqqBi").pack


class PlainFetch:
    def __init__(self, replicas: Replicas, settings: LiveSettings, authorizer: Authorizer) -> None:
        self._replicas = replicas
        self._settings = settings
        self._authorize = authorizer.authorize

    def handle(self, connection: Connection, frame: memoryview, version: int, correlation_id: int) -> bool:  # noqa: C901
        """True if the request was plain and has been answered."""
        try:
            size = frame[8] << 8 | frame[9]
            position = 10 if size == NULL_CLIENT_ID else 10 + size
            if version >= REPLICA_STATE_SINCE:
                tags, max_wait, min_bytes, left, isolation, session, epoch, topics = _start(frame, position)
                position += 23
            else:
                tags, replica_id, max_wait, min_bytes, left, isolation, session, epoch, topics = _start_with_replica_id(
                    frame, position
                )
                if replica_id != CONSUMER:
                    return False
                position += 27
            if tags or session != NO_SESSION or epoch != SESSIONLESS_EPOCH or not 1 < topics < 128:
                return False
            left = min(left, self._settings.now.fetch_max_bytes)
            parts: list[Part] = []
            pending = b""  # the bytes before the next records
            found = 0
            sent: list[tuple[Replica, int, int]] = []
            names = set()
            for _ in range(topics - 1):
                if version >= TOPIC_IDS_SINCE:
                    name_end = position + 16
                    name = self._replicas.name_of(bytes(frame[position:name_end]))
                    if name is None:
                        return False
                else:
                    size = frame[position]
                    if not 1 < size < 128:
                        return False
                    name_end = position + size
                    name = str(frame[position + 1 : name_end], "utf-8")
                if name in names or not self._authorize(
                    connection.principal, connection.peer_host, Operation.READ, topic_resource(name)
                ):
                    return False
                names.add(name)
                partitions = frame[name_end]
                if not 1 < partitions < 128:
                    return False
                pending += bytes(frame[position : name_end + 1])
                position = name_end + 1
                for _ in range(partitions - 1):
                    index, leader_epoch, offset, fetched_epoch, _, max_bytes, tags = _partition(frame, position)
                    position += PARTITION_SIZE
                    replica = self._replicas.get(name, index)
                    if replica is None or tags or fetched_epoch != NO_EPOCH:
                        return False
                    leader = replica.leader
                    if leader is None or (leader_epoch != NO_EPOCH and leader_epoch != leader.leader_epoch):
                        return False
                    read = replica.read_cached(
                        offset,
                        min(max_bytes, left),
                        committed=isolation == 1,
                        at_least_one=not found,
                        takes_ranges=connection.sends_files,
                    )
                    if read is None:
                        return False
                    stable = replica.last_stable_offset
                    if isolation == 1 and replica.log.aborted_transactions(offset, stable):
                        return False
                    data = read.content
                    size = len(data)
                    pending += _reply_partition(
                        index, 0, leader.high_watermark, stable, replica.log.log_start_offset, isolation == 1, -1
                    ) + _uvarint(size + 1)
                    if size:
                        found += size
                        left -= size
                        sent.append((replica, size, read.next_offset - max(offset, read.first_offset)))
                        parts.append(pending)
                        parts.append(data)
                        pending = b""
                    pending += b"\x00"
                if frame[position]:
                    return False
                position += 1
                pending += b"\x00"
            if frame[position:] != _END or (found < min_bytes and max_wait > 0):
                return False
        except (struct.error, IndexError, UnicodeDecodeError, KafkaError, AuthorizerNotReady):
            return False  # the general path makes the error response, or closes the connection
        parts.append(pending + b"\x00")
        length = sum(map(len, parts)) + 16
        parts[0] = _reply_start(length, correlation_id, 0, 0, 0, 0, topics) + cast(bytes, parts[0])
        connection.send(parts)
        for replica, size, messages in sent:
            replica.sent(size, messages)
        return True


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + _uvarint(value >> 7)
