"""ShareAcknowledge (API key 79). Acknowledge records of a share group without fetching."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Uuid


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    group_id: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+")
    share_session_epoch: Int32 = field("0+")
    is_renew_ack: bool = field("2+")
    topics: list[AcknowledgeTopic] = field("0+")


class AcknowledgeTopic(Message):
    topic_id: Uuid = field("0+")
    partitions: list[AcknowledgePartition] = field("0+")


class AcknowledgePartition(Message):
    partition_index: Int32 = field("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = field("0+")


class AcknowledgementBatch(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    acknowledge_types: list[Int8] = field("0+")


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("0+")


class ShareAcknowledgeTopicResponse(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field("0+")


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class NodeEndpoint(Message):
    node_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)
