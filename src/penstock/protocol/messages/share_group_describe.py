"""ShareGroupDescribe (API key 77). The state and the members of share groups."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+")


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    groups: list[DescribedGroup] = field("0+")


class DescribedGroup(Message):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+")
    group_epoch: Int32 = field("0+")
    assignment_epoch: Int32 = field("0+")
    assignor_name: str = field("0+")
    members: list[Member] = field("0+")
    authorized_operations: Int32 = field("0+", default=-2147483648)


class Member(Message):
    member_id: str = field("0+")
    rack_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    assignment: Assignment = field("0+")


class TopicPartitions(Message):
    topic_id: Uuid = field("0+")
    topic_name: str = field("0+")
    partitions: list[Int32] = field("0+")


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = field("0+")
