"""StreamsGroupHeartbeat (API key 88). The one membership request of streams groups (KIP-1071)."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.streams_structs import Endpoint, KeyValue, Subtopology, TaskIds, TaskOffset
from penstock.protocol.primitives import Int8, Int16, Int32, Int64


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0-1", flexible="0+"):
    group_id: str = field("0+")
    member_id: str = field("0+")
    # 0 joins, -1 leaves, -2 leaves and will return under the same instance id.
    member_epoch: Int32 = field("0+")
    endpoint_information_epoch: Int32 = field("0+")
    # Null, and -1 for the timeout, means "unchanged", here and below.
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology: Topology | None = field("0+", nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    process_id: str | None = field("0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field("0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field("0+", nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field("0+", nullable="0+", default=None)
    shutdown_application: bool = field("0+")


class Topology(Message):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] = field("0+")


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str = field("0+")
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    acceptable_recovery_lag_legacy: Int32 = field("0", ignorable=True)
    task_offset_interval_ms: Int32 = field("0+")
    acceptable_recovery_lag: Int64 = field("1+", default=-1, ignorable=True)
    status: list[Status] | None = field("0+", nullable="0+")
    # Null: unchanged.
    active_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field("0+", nullable="0+", default=None)
    topology_description_required: bool = field("1+", ignorable=True)
    endpoint_information_epoch: Int32 = field("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field("0+", nullable="0+", default=None)


class Status(Message):
    status_code: Int8 = field("0+")
    status_detail: str = field("0+")


class EndpointToPartitions(Message):
    user_endpoint: Endpoint = field("0+")
    active_partitions: list[TopicPartition] = field("0+")
    standby_partitions: list[TopicPartition] = field("0+")


class TopicPartition(Message):
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")
