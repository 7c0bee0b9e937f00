"""DescribeProducers (API key 61). The producers active on partitions."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field("0+")


class TopicRequest(Message):
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[TopicResponse] = field("0+")


class TopicResponse(Message):
    name: str = field("0+")
    partitions: list[PartitionResponse] = field("0+")


class PartitionResponse(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = field("0+")


class ProducerState(Message):
    producer_id: Int64 = field("0+")
    producer_epoch: Int32 = field("0+")
    last_sequence: Int32 = field("0+", default=-1)
    last_timestamp: Int64 = field("0+", default=-1)
    coordinator_epoch: Int32 = field("0+")
    current_txn_start_offset: Int64 = field("0+", default=-1)
