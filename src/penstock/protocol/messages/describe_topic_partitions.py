"""DescribeTopicPartitions (API key 75). Topics with all their partitions, page by page."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: Cursor | None = field("0+", nullable="0+", default=None)


class TopicRequest(Message):
    name: str = field("0+")


class Cursor(Message):
    topic_name: str = field("0+")
    partition_index: Int32 = field("0+")


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: Cursor | None = field("0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = field("0+")
    name: str | None = field("0+", nullable="0+")
    topic_id: Uuid = field("0+", ignorable=True)
    is_internal: bool = field("0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+")
    topic_authorized_operations: Int32 = field("0+", default=-2147483648)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    eligible_leader_replicas: list[Int32] | None = field("0+", nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field("0+", nullable="0+", default=None)
    offline_replicas: list[Int32] = field("0+", ignorable=True)
