"""The records of share groups in `__consumer_offsets`: types 10 to 15 of `group_records`."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int32, Int64, Uuid


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    group_id: str = field("0")


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    group_id: str = field("0")


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field("0+")


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[TopicPartitions] = field("0+")


class TopicPartitions(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    group_id: str = field("0")


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = field("0+")
    initialized_topics: list[TopicPartitionsInfo] = field("0+")
    deleting_topics: list[TopicInfo] = field("0+")


class TopicPartitionsInfo(Message):
    topic_id: Uuid = field("0+")
    topic_name: str = field("0+")
    partitions: list[Int32] = field("0+")


class TopicInfo(Message):
    topic_id: Uuid = field("0+")
    topic_name: str = field("0+")


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
