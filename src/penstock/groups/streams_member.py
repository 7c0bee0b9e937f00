"""A member of a streams group (KIP-1071), as two records describe it: its metadata and its current assignment.

A member is one thread of an instance of the application; members of the same process share a disk, and so the state of
their tasks. Values are immutable: use `_replace` to make a changed member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.groups.streams_tasks import OwnedTasks, Task, by_subtopology, tasks_of
from penstock.protocol.messages.streams_group_records import (
    OwnedTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)
from penstock.protocol.messages.streams_structs import Endpoint, KeyValue

NOTHING: Final = OwnedTasks()


class StreamsMemberState(IntEnum):
    """The state of a member, numbered as in the records."""

    STABLE = 1
    # The member must give up tasks before it can move to the next epoch.
    UNREVOKED_TASKS = 2
    # The member is in the target's epoch, but others have not yet given up some tasks of its target.
    UNRELEASED_TASKS = 3
    # Written by a newer version.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> StreamsMemberState:
        return cls(number) if number in (1, 2, 3) else cls.UNKNOWN


class Address(NamedTuple):
    """Where an instance answers queries about its state."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    member_id: str
    # -- metadata
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Address | None = None
    # Sorted by key.
    tags: tuple[tuple[str, str], ...] = ()
    # -- current assignment
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: OwnedTasks = NOTHING
    revoking: OwnedTasks = NOTHING

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch

    # -- records -------------------------------------------------------------------------------------------------------

    def metadata(self) -> StreamsGroupMemberMetadataValue:
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if self.endpoint is None else Endpoint(host=self.endpoint.host, port=self.endpoint.port),
            client_tags=[KeyValue(key=key, value=value) for key, value in self.tags],
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=address_of(value.user_endpoint),
            tags=tags_of(value.client_tags),
        )

    def possessions(self) -> StreamsGroupCurrentMemberAssignmentValue:
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_with_epochs(self.assigned.active),
            standby_tasks=_without_epochs(self.assigned.standby),
            warmup_tasks=_without_epochs(self.assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(self.revoking.active),
            standby_tasks_pending_revocation=_without_epochs(self.revoking.standby),
            warmup_tasks_pending_revocation=_without_epochs(self.revoking.warmup),
        )

    def with_possessions(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=StreamsMemberState.of(value.state),
            assigned=OwnedTasks(
                _epochs_of(value.active_tasks, value.member_epoch),
                tasks_of(value.standby_tasks),
                tasks_of(value.warmup_tasks),
            ),
            revoking=OwnedTasks(
                _epochs_of(value.active_tasks_pending_revocation, value.member_epoch),
                tasks_of(value.standby_tasks_pending_revocation),
                tasks_of(value.warmup_tasks_pending_revocation),
            ),
        )

    def without_possessions(self) -> StreamsMember:
        new = StreamsMember(self.member_id)
        return self._replace(
            epoch=new.epoch,
            previous_epoch=new.previous_epoch,
            state=new.state,
            assigned=new.assigned,
            revoking=new.revoking,
        )


def address_of(endpoint: Endpoint | None) -> Address | None:
    return None if endpoint is None else Address(endpoint.host, endpoint.port)


def tags_of(tags: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({tag.key: tag.value for tag in tags}.items()))


def _with_epochs(tasks: Mapping[Task, int]) -> list[OwnedTaskIds]:
    return [
        OwnedTaskIds(
            subtopology_id=name,
            partitions=parts,
            assignment_epochs=[tasks[Task(name, partition)] for partition in parts],
        )
        for name, parts in by_subtopology(tasks).items()
    ]


def _without_epochs(tasks: Iterable[Task]) -> list[OwnedTaskIds]:
    return [OwnedTaskIds(subtopology_id=name, partitions=parts) for name, parts in by_subtopology(tasks).items()]


def _epochs_of(ids: Iterable[OwnedTaskIds], member_epoch: int) -> dict[Task, int]:
    """Kafka before 4.3 wrote no epochs."""
    return {
        Task(each.subtopology_id, partition): epoch
        for each in ids
        for partition, epoch in zip(
            each.partitions, each.assignment_epochs or [member_epoch] * len(each.partitions), strict=False
        )
    }
