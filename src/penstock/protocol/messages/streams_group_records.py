"""The records of streams groups in `__consumer_offsets`: types 17 and 19 to 23 of `group_records`."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.streams_structs import Endpoint, KeyValue, Subtopology, TaskIds
from penstock.protocol.primitives import Int8, Int32, Int64


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    group_id: str = field("0")


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    metadata_hash: Int64 = field("0+")
    # The topology whose topics all exist, with the right numbers of partitions.
    validated_topology_epoch: Int32 = field("0+", default=-1, tag=0)
    last_assignment_configs: list[KeyValue] | None = field("0+", nullable="0+", default=None, tag=1)


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    instance_id: str | None = field("0+", nullable="0+")
    rack_id: str | None = field("0+", nullable="0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    topology_epoch: Int32 = field("0+")
    process_id: str = field("0+")
    user_endpoint: Endpoint | None = field("0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field("0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    group_id: str = field("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field("0+")
    assignment_timestamp: Int64 = field("0+", tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    active_tasks: list[TaskIds] = field("0+")
    standby_tasks: list[TaskIds] = field("0+")
    warmup_tasks: list[TaskIds] = field("0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    group_id: str = field("0")
    member_id: str = field("0")


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    member_epoch: Int32 = field("0+")
    previous_member_epoch: Int32 = field("0+")
    state: Int8 = field("0+")
    active_tasks: list[OwnedTaskIds] = field("0+")
    standby_tasks: list[OwnedTaskIds] = field("0+")
    warmup_tasks: list[OwnedTaskIds] = field("0+")
    active_tasks_pending_revocation: list[OwnedTaskIds] = field("0+")
    standby_tasks_pending_revocation: list[OwnedTaskIds] = field("0+")
    warmup_tasks_pending_revocation: list[OwnedTaskIds] = field("0+")


class OwnedTaskIds(Message):
    subtopology_id: str = field("0+")
    partitions: list[Int32] = field("0+")
    # The epoch in which each task was assigned, for active tasks.
    assignment_epochs: list[Int32] | None = field("0+", nullable="0+", default=None, tag=0)


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    group_id: str = field("0")


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    epoch: Int32 = field("0+")
    subtopologies: list[Subtopology] = field("0+")


RECORD_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
