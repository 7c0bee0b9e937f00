"""ReadShareGroupState (API key 84). A partition leader reads the state of a share partition."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Uuid


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    group_id: str = field("0+")
    topics: list[ReadStateData] = field("0+")


class ReadStateData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field("0+")


class ReadStateResult(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    state_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    state_batches: list[StateBatch] = field("0+")


class StateBatch(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")
