"""Produce (API key 0). Append record batches to partitions."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Records, Uuid


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = field("3+", nullable="3+", default=None)
    # -1: all in-sync replicas, 1: the leader alone, 0: no response at all.
    acks: Int16 = field("0+")
    timeout_ms: Int32 = field("0+")
    topic_data: list[TopicProduceData] = field("0+")


class TopicProduceData(Message):
    name: str = field("0-12", ignorable=True)
    # Replaces the name from version 13 on.
    topic_id: Uuid = field("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field("0+")


class PartitionProduceData(Message):
    index: Int32 = field("0+")
    records: Records = field("0+", nullable="0+")


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field("0+")
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)


class TopicProduceResponse(Message):
    name: str = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field("0+")


class PartitionProduceResponse(Message):
    index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    base_offset: Int64 = field("0+")
    # -1 unless the topic's timestamps are LogAppendTime.
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    # The single records that made the whole batch fail.
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", ignorable=True)
    error_message: str | None = field("8+", nullable="8+", default=None, ignorable=True)
    # With NOT_LEADER_OR_FOLLOWER, whom to ask instead; its address is in node_endpoints.
    current_leader: LeaderIdAndEpoch | None = field("10+", tag=0)


class BatchIndexAndErrorMessage(Message):
    batch_index: Int32 = field("8+")
    batch_index_error_message: str | None = field("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class NodeEndpoint(Message):
    node_id: Int32 = field("10+")
    host: str = field("10+")
    port: Int32 = field("10+")
    rack: str | None = field("10+", nullable="10+", default=None)
