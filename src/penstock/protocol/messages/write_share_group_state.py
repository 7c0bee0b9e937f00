"""WriteShareGroupState (API key 85). A partition leader writes what has changed in a share partition."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Uuid


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    group_id: str = field("0+")
    topics: list[WriteStateData] = field("0+")


class WriteStateData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field("0+")


class StateBatch(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_state: Int8 = field("0+")
    delivery_count: Int16 = field("0+")


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field("0+")


class WriteStateResult(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
