"""Fast path for plain produce requests: one batch for one partition, no transaction, answered at once.

Nearly every produce request on a busy broker is like this, and passing it directly from the frame to the replica and
back costs half of the general path (see docs/benchmarks.md). The requests of one producer differ only in correlation id
and records. The meaning of the rest is kept with the connection (a `Target`), and looked up again when a request begins
differently, or when ACLs have changed. If a request is not plain, `handle` returns False before it has changed
anything, and the general path in `produce.py` handles the request from the start. So this file only affects speed. A
test runs both paths on the same requests and compares the bytes.

An append patches the receive buffer: it writes base offset and leader epoch into the frame in place, then the kernel
copies the frame once. If the write fails, `handle` restores both before the general path reads the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.net.connection import Connection
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.io.clock import Clock
from penstock.model.errors import KafkaError
from penstock.model.topics import INTERNAL_TOPICS
from penstock.records.batch import TRANSACTIONAL, read_header, set_base_offset
from penstock.records.validation import validate_produce
from penstock.security.authorizer import Authorizer, Operation

FLEXIBLE_SINCE = 9
RECORD_ERRORS_SINCE = 8
LOG_START_SINCE = 5
TOPIC_IDS_SINCE = 13
NULL_CLIENT_ID = 0xFFFF
AFTER_CORRELATION_ID = 8

# Flexible request: header tags, transactional id, acks, timeout, topics. Plain: 0, 0 (null), 1 or -1, any, 2 (one).
_flexible_start = struct.Struct(">BBhiB").unpack_from
# Older request: transactional id (-1: null), acks, timeout, topics, length of the name.
_classic_start = struct.Struct(">hhiih").unpack_from
_flexible_partition = struct.Struct(">Bi").unpack_from  # partitions (2: one), index
_classic_partition = struct.Struct(">ii").unpack_from  # partitions, index
_classic_size = struct.Struct(">i").unpack_from

_flexible_reply_end = struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # record errors, message, tags, tags, throttle, tags
_classic_reply_end = struct.pack(">ihi", 0, -1, 0)  # record errors, message, throttle
_oldest_reply_end = struct.pack(">i", 0)  # throttle


class Target(NamedTuple):
    """The decoded beginning of a connection's produce requests."""

    version: int
    prefix: bytes
    """The bytes of the frame from the client id to the partition index."""
    prefix_end: int
    replica: Replica
    pack_reply: Callable[..., bytes]
    """Packs length, correlation id, `reply_middle`, base offset, append time, log start (if sent), `reply_end`."""
    reply_length: int
    reply_middle: bytes
    reply_end: bytes
    allowed_in: int
    """The authorizer's version in which the client was allowed to write to the topic."""


class PlainProduce:
    def __init__(self, replicas: Replicas, clock: Clock, authorizer: Authorizer) -> None:
        self._replicas = replicas
        self._now_ms = clock.now_ms
        self._authorizer = authorizer

    def handle(self, connection: Connection, frame: memoryview, version: int, correlation_id: int) -> bool:
        """True if the request was plain and has been answered; otherwise the frame is unchanged."""
        target: Target | None = connection.produce_target  # type: ignore[assignment]  # set here alone
        try:
            if (
                target is None
                or target.version != version
                or frame[AFTER_CORRELATION_ID : target.prefix_end] != target.prefix
            ):
                target = connection.produce_target = self._find_target(connection, frame, version)
                if target is None:
                    return False
            start, end = records_span(frame, target.prefix_end, len(frame), version >= FLEXIBLE_SINCE)
        except (struct.error, IndexError, UnicodeDecodeError):
            return False  # the general path makes the error response

        replica = target.replica
        if not self.may_append(target):
            # The topic may be deleted, and recreated under the same name; or the client may no longer write to it.
            connection.produce_target = None
            return False
        batch = frame[start:end]
        now_ms = self._now_ms()
        settings = replica.log.settings
        try:
            header = read_header(batch)
            if (
                header.attributes & TRANSACTIONAL
                or validate_produce(batch, header, settings, now_ms, api_version=version) is None
            ):
                return False
        except KafkaError:
            return False  # the general path fails likewise, and reports the error
        try:
            base_offset, _, log_append_time, log_start_offset, _ = replica.append(batch, header, now_ms)
        except KafkaError:
            set_base_offset(batch, 0, header.base_offset, header.leader_epoch)
            return False

        _, _, _, _, pack_reply, length, middle, last, _ = target
        if version >= LOG_START_SINCE:
            reply = pack_reply(length, correlation_id, middle, base_offset, log_append_time, log_start_offset, last)
        else:
            reply = pack_reply(length, correlation_id, middle, base_offset, log_append_time, last)
        connection.answer_plainly(reply)
        return True

    def may_append(self, target: Target) -> bool:
        return target.allowed_in == self._authorizer.version and target.replica.appends_plainly

    def _find_target(self, connection: Connection, frame: memoryview, version: int) -> Target | None:
        size = frame[8] << 8 | frame[9]
        position = 10 if size == NULL_CLIENT_ID else 10 + size
        if version >= FLEXIBLE_SINCE:
            tags, transactional_id, acks, _, topics = _flexible_start(frame, position)
            if tags or transactional_id or topics != 2:
                return None
            name_start = position + 9
            if version >= TOPIC_IDS_SINCE:
                name_end = name_start + 16
                name = self._replicas.name_of(bytes(frame[name_start:name_end]))
            else:
                size = frame[name_start]
                if not 1 < size < 128:
                    return None
                name_end = name_start + size
                name = str(frame[name_start + 1 : name_end], "utf-8")
            partitions, index = _flexible_partition(frame, name_end)
            prefix_end = name_end + 5
            is_single = partitions == 2
            middle = b"\x00\x02" + bytes(frame[name_start:prefix_end]) + b"\x00\x00"
            last = _flexible_reply_end
        else:
            transactional_id, acks, _, topics, size = _classic_start(frame, position)
            if transactional_id != -1 or topics != 1 or size <= 0:
                return None
            name_start = position + 12
            name_end = name_start + 2 + size
            name = str(frame[name_start + 2 : name_end], "utf-8")
            partitions, index = _classic_partition(frame, name_end)
            prefix_end = name_end + 8
            is_single = partitions == 1
            middle = b"\x00\x00\x00\x01" + bytes(frame[name_start:prefix_end]) + b"\x00\x00"
            last = _classic_reply_end if version >= RECORD_ERRORS_SINCE else _oldest_reply_end
        if name is None or not is_single or (acks != 1 and acks != -1) or name in INTERNAL_TOPICS:
            return None
        replica = self._replicas.get(name, index)
        authorizer = self._authorizer
        if replica is None or not authorizer.authorize(
            connection.principal, connection.peer_host, Operation.WRITE, replica.resource
        ):
            return None
        offsets = "qqq" if version >= LOG_START_SINCE else "qq"
        reply = struct.Struct(f">ii{len(middle)}s{offsets}{len(last)}s")
        prefix = bytes(frame[AFTER_CORRELATION_ID:prefix_end])
        return Target(
            version, prefix, prefix_end, replica, reply.pack, reply.size - 4, middle, last, authorizer.version
        )


def records_span(buffer: memoryview, position: int, frame_end: int, is_flexible: bool) -> tuple[int, int]:
    """Start and end of the records whose size is at `position`; IndexError if anything follows them."""
    if is_flexible:
        size = buffer[position]
        start = position + 1
        if size >= 0x80:
            high = buffer[start]
            if high < 0x80:
                size += (high - 1) << 7
                start += 1
            else:
                start, size = _read_uvarint(buffer, position)
        end = start + size - 1
        if size < 2 or end + 3 != frame_end or buffer[end] or buffer[end + 1] or buffer[end + 2]:
            raise IndexError("more than one partition or topic, or tags")
    else:
        (size,) = _classic_size(buffer, position)
        start = position + 4
        end = start + size
        if size <= 0 or end != frame_end:
            raise IndexError("more than one partition or topic")
    return start, end


def _read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The position after the number, and the number."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return position, value
        shift += 7
        if shift > 28:
            raise IndexError("a length of more than five bytes")
