"""AlterPartitionReassignments (API key 45). Start or cancel moving partitions to other brokers."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field("0+")


class ReassignableTopic(Message):
    name: str = field("0+")
    partitions: list[ReassignablePartition] = field("0+")


class ReassignablePartition(Message):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] | None = field("0+", nullable="0+", default=None)


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    allow_replication_factor_change: bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = field("0+")


class ReassignableTopicResponse(Message):
    name: str = field("0+")
    partitions: list[ReassignablePartitionResponse] = field("0+")


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
