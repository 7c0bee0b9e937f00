"""ShareFetch (API key 78). Acquire records for a member of a share group, and acknowledge others on the way."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Records, Uuid


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    group_id: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+")
    share_session_epoch: Int32 = field("0+")
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("0+", default=2147483647)
    max_records: Int32 = field("1+")
    batch_size: Int32 = field("1+")
    share_acquire_mode: Int8 = field("2+", ignorable=True)
    is_renew_ack: bool = field("2+")
    topics: list[FetchTopic] = field("0+")
    forgotten_topics_data: list[ForgottenTopic] = field("0+")


class FetchTopic(Message):
    topic_id: Uuid = field("0+")
    partitions: list[FetchPartition] = field("0+")


class FetchPartition(Message):
    partition_index: Int32 = field("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = field("0+")


class AcknowledgementBatch(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    acknowledge_types: list[Int8] = field("0+")


class ForgottenTopic(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("1+")
    responses: list[ShareFetchableTopicResponse] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("0+")


class ShareFetchableTopicResponse(Message):
    topic_id: Uuid = field("0+")
    partitions: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    acknowledge_error_code: Int16 = field("0+")
    acknowledge_error_message: str | None = field("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field("0+")
    records: Records = field("0+", nullable="0")
    acquired_records: list[AcquiredRecords] = field("0+")


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class AcquiredRecords(Message):
    first_offset: Int64 = field("0+")
    last_offset: Int64 = field("0+")
    delivery_count: Int16 = field("0+")


class NodeEndpoint(Message):
    node_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("0+", nullable="0+", default=None)
