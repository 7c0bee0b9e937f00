"""DeleteShareGroupState (API key 86). The group coordinator deletes the state of a share partition."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    group_id: str = field("0+")
    topics: list[DeleteStateData] = field("0+")


class DeleteStateData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition: Int32 = field("0+")


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field("0+")


class DeleteStateResult(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
