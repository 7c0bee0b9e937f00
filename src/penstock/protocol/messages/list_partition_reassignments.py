"""ListPartitionReassignments (API key 46). List the partitions that are being reassigned."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field("0+", nullable="0+", default=None)


class ListPartitionReassignmentsTopics(Message):
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = field("0+")


class OngoingTopicReassignment(Message):
    name: str = field("0+")
    partitions: list[OngoingPartitionReassignment] = field("0+")


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = field("0+")
    replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")
