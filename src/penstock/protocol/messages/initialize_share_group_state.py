"""InitializeShareGroupState (API key 83). The group coordinator starts the state of a share partition."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    group_id: str = field("0+")
    topics: list[InitializeStateData] = field("0+")


class InitializeStateData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition: Int32 = field("0+")
    state_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field("0+")


class InitializeStateResult(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
