"""A streams group (KIP-1071): the members of a Kafka Streams application and its topology.

The topology comes with the first member and stays; the group is *not ready* until all topics of it exist with the right
numbers of partitions (`streams_topology`).

Law: a task is active in one member, from when it is assigned to it until that member has confirmed that it gave it up,
or was removed and so forfeited it. A process has a task in one role only, once its members have given up what they
must, because all its members keep the state of a task in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final, NamedTuple

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups import streams_records as records
from penstock.groups.modern_group import Replay, StaticGroup
from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_tasks import Task, Tasks, TaskSets, tasks_of
from penstock.groups.streams_topology import ConfiguredTopology
from penstock.protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

STREAMS_KEYS = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTopologyKey,
)


INITIAL_EPOCH: Final = 1


class StreamsState(Enum):
    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TaskOffsets(NamedTuple):
    """How far the tasks of a member have read their changelogs, and where these end, as it last reported."""

    offsets: Mapping[Task, int] = {}
    end_offsets: Mapping[Task, int] = {}


class StreamsGroup(StaticGroup[StreamsMember, TaskSets]):
    SOFT = ("checked_version", "configured", "endpoint_epoch", "shutdown_by", "task_offsets")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # Members wait for their first assignment in this epoch: 0 would tell them that they have not joined.
        self.epoch = self.assignment_epoch = INITIAL_EPOCH
        self.topology: StreamsGroupTopologyValue | None = None
        # The epoch of the topology whose topics all exist; -1 if some do not.
        self.validated_epoch = -1
        self.assignment_configs: Mapping[str, str] = {}
        # Soft: the topology with its topics, as of `checked_version`.
        self.configured: ConfiguredTopology | None = None
        # Soft: grows with every change of what members with an endpoint have.
        self.endpoint_epoch = 0
        # Soft: the member that asked all members to shut down.
        self.shutdown_by: str | None = None
        self.task_offsets: dict[str, TaskOffsets] = {}
        # Derived from the members: the processes that have each task, by role.
        self._active: dict[Task, str] = {}
        self._standby: dict[Task, frozenset[str]] = {}
        self._warmup: dict[Task, frozenset[str]] = {}

    # -- members -------------------------------------------------------------------------------------------------------

    def active_in(self, task: Task) -> str | None:
        """Return the process that runs a task."""
        return self._active.get(task)

    def standby_in(self, task: Task) -> frozenset[str]:
        return self._standby.get(task, frozenset())

    def warmup_in(self, task: Task) -> frozenset[str]:
        return self._warmup.get(task, frozenset())

    @property
    def topology_epoch(self) -> int:
        return -1 if self.topology is None else self.topology.epoch

    @property
    def state(self) -> StreamsState:
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.reader_of(topic) is not None

    def reader_of(self, topic: str) -> str | None:
        """Return the id of the subtopology that reads a topic."""
        for part in () if self.topology is None else self.topology.subtopologies:
            if topic in part.source_topics or any(each.name == topic for each in part.repartition_source_topics):
                return part.subtopology_id
        return None

    # -- replay --------------------------------------------------------------------------------------------------------

    def _replay_member(self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None) -> None:
        if value is not None:
            self._put(self.members.get(key.member_id, StreamsMember(key.member_id)).with_metadata(value))
        elif key.member_id in self.members:
            self._take(key.member_id)

    def _replay_current(
        self, key: StreamsGroupCurrentMemberAssignmentKey, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._put(self.members.get(key.member_id, StreamsMember(key.member_id)).with_possessions(value))
        elif key.member_id in self.members:
            self._put(self.members[key.member_id].without_possessions())

    def _replay_target(
        self, key: StreamsGroupTargetAssignmentMemberKey, value: StreamsGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = TaskSets(
                tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
            )

    def _replay_assignment(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: StreamsGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = INITIAL_EPOCH if value is None else value.assignment_epoch
        self.assignment_timestamp = 0 if value is None else value.assignment_timestamp

    def _replay_topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> None:
        self.topology = value

    def _replay_group(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> None:
        self.is_deleted = value is None
        if value is None:
            return
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self.validated_epoch = value.validated_topology_epoch
        self.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    REPLAY: ClassVar[Replay] = {
        StreamsGroupMetadataKey: _replay_group,
        StreamsGroupMemberMetadataKey: _replay_member,
        StreamsGroupCurrentMemberAssignmentKey: _replay_current,
        StreamsGroupTargetAssignmentMetadataKey: _replay_assignment,
        StreamsGroupTargetAssignmentMemberKey: _replay_target,
        StreamsGroupTopologyKey: _replay_topology,
    }

    def _put(self, member: StreamsMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._release(before)
        self.members[member.member_id] = member
        for owned in (member.assigned, member.revoking):
            for task in owned.active:
                self._active[task] = member.process_id
            _add(self._standby, owned.standby, member.process_id)
            _add(self._warmup, owned.warmup, member.process_id)
        self._keep_name(before, member)

    def _take(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._release(member)
        self._release_name(member)
        self.task_offsets.pop(member_id, None)
        if not self.members:
            self.shutdown_by = None

    def _release(self, member: StreamsMember) -> None:
        for owned in (member.assigned, member.revoking):
            for task in owned.active:
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            _remove(self._standby, owned.standby, member.process_id)
            _remove(self._warmup, owned.warmup, member.process_id)

    # -- deletion ------------------------------------------------------------------------------------------------------

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the tombstones that delete the group and every record of it that may be in the log."""
        group_id = self.group_id
        members = {**self.members, **self.target}
        return [
            *(record for member_id in members for record in records.removal(group_id, member_id)),
            records.target_epoch_tombstone(group_id),
            records.topology_record(group_id, None),
            records.epoch_tombstone(group_id),
        ]


def _add(processes: dict[Task, frozenset[str]], tasks: Tasks, process_id: str) -> None:
    for task in tasks:
        processes[task] = processes.get(task, frozenset()) | {process_id}


def _remove(processes: dict[Task, frozenset[str]], tasks: Tasks, process_id: str) -> None:
    for task in tasks:
        left = processes.get(task, frozenset()) - {process_id}
        if left:
            processes[task] = left
        else:
            processes.pop(task, None)
