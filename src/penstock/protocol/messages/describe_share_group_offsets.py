"""DescribeShareGroupOffsets (API key 90). Where share groups begin to read, and their lag."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    groups: list[Group] = field("0+")


class Group(Message):
    group_id: str = field("0+")
    topics: list[Topic] | None = field("0+", nullable="0+")


class Topic(Message):
    topic_name: str = field("0+")
    partitions: list[Int32] = field("0+")


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[GroupResult] = field("0+")


class GroupResult(Message):
    group_id: str = field("0+")
    topics: list[TopicResult] = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


class TopicResult(Message):
    topic_name: str = field("0+")
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition_index: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    leader_epoch: Int32 = field("0+")
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
