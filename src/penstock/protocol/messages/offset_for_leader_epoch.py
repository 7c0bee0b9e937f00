"""OffsetForLeaderEpoch (API key 23). Return where a leader epoch ended, to find where two logs diverge."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field("0+")


class OffsetForLeaderTopic(Message):
    topic: str = field("0+")
    partitions: list[OffsetForLeaderPartition] = field("0+")


class OffsetForLeaderPartition(Message):
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = field("0+")


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field("0+")


class OffsetForLeaderTopicResult(Message):
    topic: str = field("0+")
    partitions: list[EpochEndOffset] = field("0+")


class EpochEndOffset(Message):
    error_code: Int16 = field("0+")
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field("0+", default=-1)
