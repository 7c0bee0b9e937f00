"""The records of `__consumer_offsets`: keys and values.

A key is preceded by its record type, an int16 that identifies the pair of classes; a value by its version, also an
int16. A null value deletes. Types 0 to 2 are offsets and classic groups, 10 to 15 share groups, 17 to 23 streams
groups, the others KIP-848 groups.
"""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages import share_group_records, streams_group_records
from penstock.protocol.primitives import Int8, Int32, Int64, Uuid


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    group: str = field("0")
    topic: str = field("0")
    partition: Int32 = field("0")


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    offset: Int64 = field("0")
    metadata: str = field("0")
    commit_timestamp: Int64 = field("0")


class OffsetCommitKey(Message, key=1, versions="0"):
    group: str = field("0")
    topic: str = field("0")
    partition: Int32 = field("0")


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    offset: Int64 = field("0+")
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: str = field("0+")
    commit_timestamp: Int64 = field("0+")
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, key=2, versions="0"):
    group: str = field("0")


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    protocol_type: str = field("0+")
    generation: Int32 = field("0+")
    protocol: str | None = field("0+", nullable="0+")
    leader: str | None = field("0+", nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field("0+")


class MemberMetadata(Message):
    member_id: str = field("0+")
    group_instance_id: str | None = field("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field("0+")
    client_host: str = field("0+")
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = field("0+")
    subscription: bytes = field("0+")
    assignment: bytes = field("0+")


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    group_id: str = field("0")


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    group_id: str = field("0")


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = field("0+")


class TopicMetadata(Message):
    topic_id: Uuid = field("0+")
    topic_name: str = field("0+")
    num_partitions: Int32 = field("0+")
    partition_metadata: list[PartitionMetadata] = field("0+")


class PartitionMetadata(Message):
    partition: Int32 = field("0+")
    racks: list[str] = field("0+")


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    instance_id: str | None = field("0+", nullable="0+")
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    subscribed_topic_regex: str | None = field("0+", nullable="0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    server_assignor: str | None = field("0+", nullable="0+")
    # None for a member that speaks the new protocol. Kafka's schema has no default of null here, so it must be given.
    classic_member_metadata: ClassicMemberMetadata | None = field("0+", nullable="0+", tag=0)


class ClassicMemberMetadata(Message):
    session_timeout_ms: Int32 = field("0+")
    supported_protocols: list[ClassicProtocol] = field("0+")


class ClassicProtocol(Message):
    name: str = field("0+")
    metadata: bytes = field("0+")


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    group_id: str = field("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = field("0+")


class TopicPartition(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    assigned_partitions: list[TopicPartitions] = field("0+")
    partitions_pending_revocation: list[TopicPartitions] = field("0+")


class TopicPartitions(Message):
    topic_id: Uuid = field("0+")
    partitions: list[Int32] = field("0+")
    assignment_epochs: list[Int32] | None = field("0+", nullable="0+", tag=0)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    group_id: str = field("0")
    regular_expression: str = field("0")


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    topics: list[str] = field("0+")
    version: Int64 = field("0+")
    timestamp: Int64 = field("0+")


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    **share_group_records.RECORD_TYPES,
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    **streams_group_records.RECORD_TYPES,
}
