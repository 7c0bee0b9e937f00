"""TxnOffsetCommit (API key 28). Commit a group's offsets as part of a transaction."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class TxnOffsetCommitRequest(Message, key=28, versions="0-6", flexible="3+"):
    transactional_id: str = field("0+")
    group_id: str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field("0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = field("0-5", ignorable=True)
    topic_id: Uuid = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+")


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: str | None = field("0+", nullable="0+")


class TxnOffsetCommitResponse(Message, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("0+")
    topics: list[TxnOffsetCommitResponseTopic] = field("0+")


class TxnOffsetCommitResponseTopic(Message):
    name: str = field("0-5", ignorable=True)
    topic_id: Uuid = field("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+")


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
