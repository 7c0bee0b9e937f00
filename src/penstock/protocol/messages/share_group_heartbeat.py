"""ShareGroupHeartbeat (API key 76). The membership request of share groups: join, stay, leave."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id: str = field("0+")
    member_id: str = field("0+")
    member_epoch: Int32 = field("0+")
    rack_id: str | None = field("0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field("0+", nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+")
    heartbeat_interval_ms: Int32 = field("0+")
    assignment: Assignment | None = field("0+", nullable="0+", default=None)


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = field("0+")


class TopicPartitions(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")
