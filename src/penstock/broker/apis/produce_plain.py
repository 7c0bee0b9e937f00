"""The plain produce request, by hand: one batch for one partition, no transaction, to be answered at once.

That is what nearly every produce request on a busy broker looks like, and taking it straight from the frame to the
replica and back costs half of what the general way does (see docs/benchmarks.md). Whatever is not plain makes `handle`
return False before it has changed anything, and the general way in `produce.py` takes the request from the start;
so this file only ever makes things faster. A test runs both on the same requests and compares the bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from penstock.broker.connection import Connection
from penstock.model.errors import KafkaError
from penstock.records.batch import read_header, set_base_offset
from penstock.records.validation import validate_produce
from penstock.security.authorizer import Operation
from penstock.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from penstock.broker.node import Node

FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
NULL_CLIENT_ID = 0xFFFF

# Request, flexible: header tags, transactional id, acks, time-out, topics. Plain has 0, 0 (null), 1 or -1, _, 2 (one).
_flexible_start = struct.Struct(">BBhiB").unpack_from
# Request, before that: transactional id (-1: null), acks, time-out, topics, length of the name.
_classic_start = struct.Struct(">hhiih").unpack_from
_flexible_partition = struct.Struct(">Bi").unpack_from  # partitions (2: one), index
_classic_partition = struct.Struct(">iii").unpack_from  # partitions, index, length of the records

# Response: length, correlation id, (tags, topics + 1 | topics), then the name or id as it came, then one partition.
_flexible_reply_start = struct.Struct(">iiBB").pack
_classic_reply_start = struct.Struct(">iii").pack
_flexible_reply_end = struct.Struct(">BihqqqBBBBiB").pack
_classic_reply_end = {
    3: struct.Struct(">iihqqi").pack,
    5: struct.Struct(">iihqqqi").pack,
    8: struct.Struct(">iihqqqihi").pack,
}


def handle(node: Node, connection: Connection, frame: memoryview, version: int, correlation_id: int) -> bool:
    """True if the request was plain and is answered; the frame is as it was otherwise."""
    try:
        size = frame[8] << 8 | frame[9]
        position = 10 if size == NULL_CLIENT_ID else 10 + size
        if version >= FLEXIBLE_SINCE:
            tags, transactional_id, acks, _, topics = _flexible_start(frame, position)
            if tags or transactional_id or topics != 2:
                return False
            name_start = position + 9
            if version >= TOPIC_IDS_SINCE:
                name_end = name_start + 16
                name = node.replicas.name_of(bytes(frame[name_start:name_end]))
                if name is None:
                    return False
            else:
                size = frame[name_start]
                if not 1 < size < 128:
                    return False
                name_end = name_start + size
                name = str(frame[name_start + 1 : name_end], "utf-8")
            partitions, index = _flexible_partition(frame, name_end)
            if partitions != 2:
                return False
            start, size = _read_uvarint(frame, name_end + 5)
            end = start + size - 1
            if size < 2 or end + 3 != len(frame) or frame[end] or frame[end + 1] or frame[end + 2]:
                return False
        else:
            transactional_id, acks, _, topics, size = _classic_start(frame, position)
            if transactional_id != -1 or topics != 1 or size <= 0:
                return False
            name_start = position + 12
            name_end = name_start + 2 + size
            name = str(frame[name_start + 2 : name_end], "utf-8")
            partitions, index, size = _classic_partition(frame, name_end)
            start = name_end + 12
            end = start + size
            if partitions != 1 or size <= 0 or end != len(frame):
                return False
    except (struct.error, IndexError, UnicodeDecodeError):
        return False  # the general way knows what to say

    replica = node.replicas.get(name, index)
    if replica is None or (acks != 1 and acks != -1):
        return False
    leader = replica.leader
    if leader is None or not leader.commits_at_once:
        return False
    if not node.authorizer.authorize(ANONYMOUS, Operation.WRITE, replica.resource):
        return False
    batch = frame[start:end]
    now_ms = node.clock.now_ms()
    settings = replica.log.settings
    if settings.message_timestamp_type != "CreateTime":
        return False  # stamping changes the batch
    try:
        header = read_header(batch)
        if header.is_transactional or validate_produce(batch, header, settings, now_ms, api_version=version) is None:
            return False
    except KafkaError:
        return False  # the general way is refused likewise, and says why
    try:
        appended = replica.append(batch, header, now_ms)
    except KafkaError:
        set_base_offset(batch, 0, header.base_offset, header.leader_epoch)
        return False

    name_raw = bytes(frame[name_start:name_end])
    base, log_start = appended.base_offset, appended.log_start_offset
    stamp = appended.log_append_time_ms
    if version >= FLEXIBLE_SINCE:
        tail = _flexible_reply_end(2, index, 0, base, stamp, log_start, 1, 0, 0, 0, 0, 0)
        head = _flexible_reply_start(6 + len(name_raw) + len(tail), correlation_id, 0, 2)
    else:
        if version >= 8:
            tail = _classic_reply_end[8](1, index, 0, base, stamp, log_start, 0, -1, 0)
        elif version >= 5:
            tail = _classic_reply_end[5](1, index, 0, base, stamp, log_start, 0)
        else:
            tail = _classic_reply_end[3](1, index, 0, base, stamp, 0)
        head = _classic_reply_start(8 + len(name_raw) + len(tail), correlation_id, 1)
    connection.send([head + name_raw + tail])
    return True


def _read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Where the number ends, and the number."""
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
