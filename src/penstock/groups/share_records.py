"""Constructors for the records of share groups in `__consumer_offsets`. A value of None makes a tombstone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.consumer_member import Target
from penstock.model.ids import Uuid
from penstock.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitions,
    TopicPartitionsInfo,
)

if TYPE_CHECKING:
    from penstock.groups.share_group import ShareMember, TopicStates


def epoch_record(group_id: str, epoch: int | None, metadata_hash: int = 0) -> CoordinatorRecord:
    value = None if epoch is None else ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), value)


def member_record(group_id: str, member_id: str, member: ShareMember | None) -> CoordinatorRecord:
    value = None
    if member is not None:
        value = ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch_record(group_id: str, epoch: int | None, timestamp_ms: int = 0) -> CoordinatorRecord:
    value = None
    if epoch is not None:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target | None) -> CoordinatorRecord:
    value = None
    if target is not None:
        value = ShareGroupTargetAssignmentMemberValue(topic_partitions=_partitions(target))
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_record(group_id: str, member_id: str, member: ShareMember | None) -> CoordinatorRecord:
    value = None
    if member is not None:
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            assigned_partitions=_partitions(member.assigned),
        )
    return CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def states_record(
    group_id: str, initializing: TopicStates, initialized: TopicStates, deleting: Mapping[Uuid, str]
) -> CoordinatorRecord:
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(initializing),
        initialized_topics=_infos(initialized),
        deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(deleting.items())],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def states_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None)


def target_of(topics: Iterable[TopicPartitions]) -> Target:
    return {part.topic_id: frozenset(part.partitions) for part in topics}


def _partitions(target: Target) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)]


def _infos(states: TopicStates) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in sorted(states.items())
    ]
