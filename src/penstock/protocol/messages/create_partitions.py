"""CreatePartitions (API key 37). Add partitions to topics."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")
    validate_only: bool = field("0+")


class CreatePartitionsTopic(Message):
    name: str = field("0+")
    count: Int32 = field("0+")
    assignments: list[CreatePartitionsAssignment] | None = field("0+", nullable="0+")


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = field("0+")


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[CreatePartitionsTopicResult] = field("0+")


class CreatePartitionsTopicResult(Message):
    name: str = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
