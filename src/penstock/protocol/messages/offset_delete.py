"""OffsetDelete (API key 47). Delete some of a group's committed offsets."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32


class OffsetDeleteRequest(Message, key=47, versions="0"):
    group_id: str = field("0+")
    topics: list[OffsetDeleteRequestTopic] = field("0+")


class OffsetDeleteRequestTopic(Message):
    name: str = field("0+")
    partitions: list[OffsetDeleteRequestPartition] = field("0+")


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = field("0+")


class OffsetDeleteResponse(Message, key=47, versions="0"):
    error_code: Int16 = field("0+")
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field("0+")


class OffsetDeleteResponseTopic(Message):
    name: str = field("0+")
    partitions: list[OffsetDeleteResponsePartition] = field("0+")


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
