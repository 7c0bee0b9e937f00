"""Constructors for the records of streams groups in `__consumer_offsets`. A value of None makes a tombstone."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_tasks import TaskSets, ids_of
from penstock.protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from penstock.protocol.messages.streams_structs import KeyValue


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> CoordinatorRecord:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[KeyValue(key=key, value=configs[key]) for key in sorted(configs)],
    )
    return CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), value)


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupMetadataKey(group_id=group_id), None)


def topology_record(group_id: str, topology: StreamsGroupTopologyValue | None) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTopologyKey(group_id=group_id), topology)


def member_record(group_id: str, member_id: str, member: StreamsMember | None) -> CoordinatorRecord:
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None if member is None else member.metadata())


def current_record(group_id: str, member_id: str, member: StreamsMember | None) -> CoordinatorRecord:
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None if member is None else member.possessions())


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_record(group_id: str, member_id: str, target: TaskSets | None) -> CoordinatorRecord:
    value = None
    if target is not None:
        value = StreamsGroupTargetAssignmentMemberValue(
            active_tasks=ids_of(target.active), standby_tasks=ids_of(target.standby), warmup_tasks=ids_of(target.warmup)
        )
    return CoordinatorRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member."""
    return [
        current_record(group_id, member_id, None),
        target_record(group_id, member_id, None),
        member_record(group_id, member_id, None),
    ]
