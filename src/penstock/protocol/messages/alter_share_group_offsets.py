"""AlterShareGroupOffsets (API key 91). Move the start offsets of an empty share group."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    group_id: str = field("0+")
    topics: list[Topic] = field("0+")


class Topic(Message):
    topic_name: str = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition_index: Int32 = field("0+")
    start_offset: Int64 = field("0+")


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    responses: list[TopicResult] = field("0+")


class TopicResult(Message):
    topic_name: str = field("0+")
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
