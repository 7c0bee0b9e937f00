"""ListOffsets (API key 2). Find the offset of a timestamp, or the ends of a partition."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32 = field("0+")
    isolation_level: Int8 = field("2+")
    topics: list[ListOffsetsTopic] = field("0+")
    timeout_ms: Int32 = field("10+", ignorable=True)


class ListOffsetsTopic(Message):
    name: str = field("0+")
    partitions: list[ListOffsetsPartition] = field("0+")


class ListOffsetsPartition(Message):
    partition_index: Int32 = field("0+")
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = field("0+")


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field("0+")


class ListOffsetsTopicResponse(Message):
    name: str = field("0+")
    partitions: list[ListOffsetsPartitionResponse] = field("0+")


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)
