"""Fast path for plain produce requests: one batch for one partition, appended as it is.

Nearly every produce request on a busy broker is like this: with acks=1 or acks=all, on partitions with and without
followers, of producers with and without sequence numbers, and of transactions after their first batch in a partition.
Passing it directly from the frame to the replica and back costs a fraction of the general path (see
docs/benchmarks.md). The requests of one producer differ only in correlation id and records. The meaning of the rest is
kept with the connection (a `Target`), and looked up again when a request begins differently, or when ACLs have changed.
If a request is not plain, `handle` returns False before it has changed anything, and the general path in `produce.py`
handles the request from the start. So this file only affects speed. A test runs both paths on the same requests and
compares the bytes.

An append patches the receive buffer: it writes base offset and leader epoch into the frame in place, then the kernel
copies the frame once. If the write fails, `handle` restores both before the general path reads the frame. A reply that
has to wait, for followers or for a flush, is made at once and parked (`produce_acks`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.broker.apis.produce_acks import Acknowledgement, Answered
from penstock.broker.apis.services import ProduceServices
from penstock.broker.net.connection import Connection
from penstock.broker.partitions.replica import Replica
from penstock.model.errors import KafkaError
from penstock.model.topics import INTERNAL_TOPICS
from penstock.records.batch import TRANSACTIONAL, read_header, set_base_offset
from penstock.records.validation import validate_produce
from penstock.replication.partition import LeaderState
from penstock.security.acl_authorizer import AuthorizerNotReady
from penstock.security.authorizer import Authorizer, Operation, transactional_id_resource

FLEXIBLE_SINCE = 9
RECORD_ERRORS_SINCE = 8
LOG_START_SINCE = 5
TOPIC_IDS_SINCE = 13
NULL_CLIENT_ID = 0xFFFF
AFTER_CORRELATION_ID = 8
ALL_ACKS = -1
TARGETS_MAX = 64  # of a connection

# After the transactional id: acks, timeout, topics (flexible: plus one).
_flexible_start = struct.Struct(">hiB").unpack_from
_classic_start = struct.Struct(">hiih").unpack_from  # and the length of the name
_classic_string = struct.Struct(">h").unpack_from  # its length
_flexible_partition = struct.Struct(">Bi").unpack_from  # partitions (2: one), index
_classic_partition = struct.Struct(">ii").unpack_from  # partitions, index
_classic_size = struct.Struct(">i").unpack_from

_flexible_reply_end = struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)  # record errors, message, tags, tags, throttle, tags
_classic_reply_end = struct.pack(">ihi", 0, -1, 0)  # record errors, message, throttle
_oldest_reply_end = struct.pack(">i", 0)  # throttle


class Target:
    """The decoded beginning of a connection's produce requests."""

    __slots__ = (
        "_end", "_middle", "_pack", "_size", "allowed_in", "index", "is_transactional", "prefix", "prefix_end",
        "replica", "timeout_s", "topic", "topic_id", "version", "wants_all",
    )  # fmt: skip

    def __init__(self, start: RequestStart, replica: Replica, frame: memoryview, version: int, allowed_in: int) -> None:
        """`allowed_in`: the authorizer's version in which the client was allowed to write to the topic."""
        self.version = version
        self.replica = replica
        self.allowed_in = allowed_in
        self.topic, self.index = replica.topic_partition
        self.topic_id = replica.topic_id
        self.is_transactional = start.transactional_id is not None
        self.wants_all = start.acks == ALL_ACKS
        self.timeout_s = max(0, start.timeout_ms) / 1000
        # The bytes of the frame from the client id to the partition index.
        self.prefix = bytes(frame[AFTER_CORRELATION_ID : start.end])
        self.prefix_end = start.end
        # A reply is: length, correlation id, `_middle`, base offset, append time, log start (if sent), `_end`.
        named = bytes(frame[start.name_start : start.end])
        if version >= FLEXIBLE_SINCE:
            self._middle = b"\x00\x02" + named + b"\x00\x00"
            self._end = _flexible_reply_end
        else:
            self._middle = b"\x00\x00\x00\x01" + named + b"\x00\x00"
            self._end = _classic_reply_end if version >= RECORD_ERRORS_SINCE else _oldest_reply_end
        offsets = "qqq" if version >= LOG_START_SINCE else "qq"
        reply = struct.Struct(f">ii{len(self._middle)}s{offsets}{len(self._end)}s")
        self._pack = reply.pack
        self._size = reply.size - 4

    def reply(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The records keep their timestamps, so the append time is unknown."""
        if self.version >= LOG_START_SINCE:
            return self._pack(self._size, correlation_id, self._middle, base_offset, -1, log_start_offset, self._end)
        return self._pack(self._size, correlation_id, self._middle, base_offset, -1, self._end)


class RequestStart(NamedTuple):
    """The fields of a request for one partition up to its index, and where they lie in the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str | None
    """None if the topic id is unknown."""
    partition: int
    name_start: int
    end: int


class PlainProduce:
    def __init__(self, services: ProduceServices, authorizer: Authorizer) -> None:
        self._services = services
        self._replicas = services.replicas
        self._handover = services.handover
        self._now_ms = services.clock.now_ms
        self._authorizer = authorizer

    def handle(self, connection: Connection, frame: memoryview, version: int, correlation_id: int) -> bool:
        """True if the request was plain and has been answered, or will be; otherwise the frame is unchanged."""
        target: Target | None = connection.produce_target  # type: ignore[assignment]  # set here alone
        try:
            if (
                target is None
                or target.version != version
                or frame[AFTER_CORRELATION_ID : target.prefix_end] != target.prefix
            ):
                target = connection.produce_target = self._switch_target(connection, target, frame, version)
                if target is None:
                    return False
            start, end = records_span(frame, target.prefix_end, len(frame), version >= FLEXIBLE_SINCE)
        except (struct.error, IndexError, UnicodeDecodeError, AuthorizerNotReady):
            return False  # the general path makes the error response, or closes the connection

        replica = target.replica
        leader = replica.leader
        if leader is None or not self.may_append(target):
            if leader is None or target.allowed_in != self._authorizer.version:
                # The topic may be deleted, and recreated under the same name; or the client may no longer write to it.
                connection.produce_target = None
            return False
        batch = frame[start:end]
        now_ms = self._now_ms()
        try:
            header = read_header(batch)
            if (
                header.attributes & TRANSACTIONAL
                and not (target.is_transactional and replica.log.producers.is_in_transaction(header))
            ) or validate_produce(batch, header, replica.log.settings, now_ms, api_version=version) is None:
                return False
        except KafkaError:
            return False  # the general path fails likewise, and reports the error
        try:
            base_offset, last_offset, _, log_start_offset, _ = replica.append(batch, header, now_ms)
        except KafkaError:
            set_base_offset(batch, 0, header.base_offset, header.leader_epoch)
            return False
        reply = target.reply(correlation_id, base_offset, log_start_offset)
        if leader.commits_at_once or not must_wait(target, leader, last_offset + 1):
            connection.answer_plainly(reply)
        else:
            answered: list[Answered] = [(correlation_id, last_offset + 1, reply)]
            self.acknowledge_later(connection, target, leader, answered, log_start_offset)
        return True

    def may_append(self, target: Target) -> bool:
        replica = target.replica
        return (
            target.allowed_in == self._authorizer.version
            and replica.appends_plainly
            and self._handover.is_idle
            and (not target.wants_all or replica.leader is None or replica.leader.has_enough_replicas)
        )

    def acknowledge_later(
        self,
        connection: Connection,
        target: Target,
        leader: LeaderState,
        answered: list[Answered],
        log_start_offset: int,
    ) -> None:
        Acknowledgement(self._services, connection, target, leader, answered, log_start_offset)

    def _switch_target(
        self, connection: Connection, former: Target | None, frame: memoryview, version: int
    ) -> Target | None:
        """The target of a request that begins differently than the last one: partitions take turns on a connection."""
        targets = connection.produce_targets
        if former is None or len(targets) >= TARGETS_MAX:
            targets.clear()
        else:
            known: Target | None = targets.get(bytes(frame[AFTER_CORRELATION_ID : former.prefix_end]))  # type: ignore[assignment]
            if known is not None and known.version == version:
                return known
        target = self._find_target(connection, frame, version)
        if target is not None:
            targets[target.prefix] = target
        return target

    def _find_target(self, connection: Connection, frame: memoryview, version: int) -> Target | None:
        start = self._read_start(frame, version)
        if start is None or start.topic is None or start.topic in INTERNAL_TOPICS:
            return None
        replica = self._replicas.get(start.topic, start.partition)
        if replica is None or (start.acks != 1 and start.acks != ALL_ACKS):
            return None
        authorizer = self._authorizer
        client = (connection.principal, connection.peer_host, Operation.WRITE)
        if not authorizer.authorize(*client, replica.resource):
            return None
        transactional_id = start.transactional_id
        if transactional_id is not None and not authorizer.authorize(
            *client, transactional_id_resource(transactional_id)
        ):
            return None
        return Target(start, replica, frame, version, authorizer.version)

    def _read_start(self, frame: memoryview, version: int) -> RequestStart | None:
        """None if the request is not for exactly one partition."""
        size = frame[8] << 8 | frame[9]
        position = 10 if size == NULL_CLIENT_ID else 10 + size
        transactional_id = None
        if version >= FLEXIBLE_SINCE:
            tags, size = frame[position], frame[position + 1]
            position += 2
            if tags or size >= 0x80:
                return None
            if size:
                transactional_id = str(frame[position : position + size - 1], "utf-8")
                position += size - 1
            acks, timeout_ms, topics = _flexible_start(frame, position)
            name_start = position + 7
            if topics != 2:
                return None
            name: str | None
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
            end = name_end + 5
            is_single = partitions == 2
        else:
            (size,) = _classic_string(frame, position)
            position += 2
            if size < -1:
                return None
            if size >= 0:
                transactional_id = str(frame[position : position + size], "utf-8")
                position += size
            acks, timeout_ms, topics, size = _classic_start(frame, position)
            if topics != 1 or size <= 0:
                return None
            name_start = position + 10
            name_end = name_start + 2 + size
            name = str(frame[name_start + 2 : name_end], "utf-8")
            partitions, index = _classic_partition(frame, name_end)
            end = name_end + 8
            is_single = partitions == 1
        return RequestStart(transactional_id, acks, timeout_ms, name, index, name_start, end) if is_single else None


def must_wait(target: Target, leader: LeaderState, end: int) -> bool:
    """Whether records up to `end` are not acknowledged yet."""
    if target.wants_all:
        return end > leader.high_watermark
    return leader.counts_flushed and end > leader.flushed


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
