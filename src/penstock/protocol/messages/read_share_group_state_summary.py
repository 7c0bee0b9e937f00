"""ReadShareGroupStateSummary (API key 87). The start offset of a share partition, without its batches."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    group_id: str = field("0+")
    topics: list[ReadStateSummaryData] = field("0+")


class ReadStateSummaryData(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Partition] = field("0+")


class Partition(Message):
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field("0+")


class ReadStateSummaryResult(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    state_epoch: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    start_offset: Int64 = field("0+")
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
