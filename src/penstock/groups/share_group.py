"""A share group (KIP-932).

Members share partitions: a partition may have several, and none has to give one up before another gets it. So there
is no reconciliation: a member takes its target at once, and is then in the epoch of the assignment.

The share coordinator holds the progress of the group in each partition. A partition is first *initializing* there, then
*initialized*; only then it is assigned. The state of topics that the group no longer reads is *deleting*, until the
share coordinator has confirmed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups import share_records as records
from penstock.groups.consumer_member import Target
from penstock.groups.modern_group import ModernGroup, Replay
from penstock.model.ids import Uuid
from penstock.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
)

SHARE_KEYS = (
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)


class ShareMember(NamedTuple):
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Target = {}


class TopicState(NamedTuple):
    """A topic, and some of its partitions."""

    name: str
    partitions: frozenset[int]


TopicStates: TypeAlias = Mapping[Uuid, TopicState]


class ShareGroup(ModernGroup[ShareMember, Target]):
    SOFT = ("checked_version", "requested_ms")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.initializing: TopicStates = {}
        self.initialized: TopicStates = {}
        # The names of topics by id.
        self.deleting: Mapping[Uuid, str] = {}
        # Soft: when the initialization of a topic was last requested.
        self.requested_ms: dict[Uuid, int] = {}

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def subscribed_topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.topics}

    def has_unassigned(self, subscribed: Collection[Uuid]) -> bool:
        """Whether the initialized partitions of the subscribed topics are not those that are assigned."""
        assigned: dict[Uuid, set[int]] = {}
        for target in self.target.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic_id in subscribed and assigned.get(topic_id, set()) != set(topic.partitions)
            for topic_id, topic in self.initialized.items()
        )

    # -- replay --------------------------------------------------------------------------------------------------------

    def _replay_member(self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(key.member_id, None)
            return
        self.members[key.member_id] = self.members.get(key.member_id, ShareMember(key.member_id))._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def _replay_current(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member_id = key.member_id
        if value is not None:
            self.members[member_id] = self.members.get(member_id, ShareMember(member_id))._replace(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=records.target_of(value.assigned_partitions),
            )
        elif member_id in self.members:
            self.members[member_id] = self.members[member_id]._replace(epoch=0, previous_epoch=-1, assigned={})

    def _replay_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = records.target_of(value.topic_partitions)

    def _replay_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        value = value or ShareGroupStatePartitionMetadataValue()
        self.initializing, self.initialized = (
            {each.topic_id: TopicState(each.topic_name, frozenset(each.partitions)) for each in topics}
            for topics in (value.initializing_topics, value.initialized_topics)
        )
        self.deleting = {each.topic_id: each.topic_name for each in value.deleting_topics}

    REPLAY: ClassVar[Replay] = {
        ShareGroupMetadataKey: ModernGroup.replay_group,
        ShareGroupMemberMetadataKey: _replay_member,
        ShareGroupCurrentMemberAssignmentKey: _replay_current,
        ShareGroupTargetAssignmentMetadataKey: ModernGroup.replay_assignment,
        ShareGroupTargetAssignmentMemberKey: _replay_target,
        ShareGroupStatePartitionMetadataKey: _replay_states,
    }

    # -- records -------------------------------------------------------------------------------------------------------

    def states_record(
        self,
        *,
        initializing: TopicStates | None = None,
        initialized: TopicStates | None = None,
        deleting: Mapping[Uuid, str] | None = None,
    ) -> CoordinatorRecord:
        """Return the record of the partitions' states with these changed."""
        return records.states_record(
            self.group_id,
            self.initializing if initializing is None else initializing,
            self.initialized if initialized is None else initialized,
            self.deleting if deleting is None else deleting,
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the tombstones that delete the group and every record of it that may be in the log."""
        group_id = self.group_id
        found = [records.current_record(group_id, member_id, None) for member_id in self.members]
        found += [records.target_record(group_id, member_id, None) for member_id in {**self.members, **self.target}]
        found.append(records.target_epoch_record(group_id, None))
        found += [records.member_record(group_id, member_id, None) for member_id in self.members]
        found.append(records.states_tombstone(group_id))
        found.append(records.epoch_record(group_id, None))
        return found


def with_partitions(states: TopicStates, added: TopicStates) -> dict[Uuid, TopicState]:
    """Return the states with more partitions."""
    result = dict(states)
    for topic_id, topic in added.items():
        known = result.get(topic_id)
        result[topic_id] = topic if known is None else topic._replace(partitions=known.partitions | topic.partitions)
    return result


def without_partitions(states: TopicStates, removed: Target) -> dict[Uuid, TopicState]:
    """Return the states without some partitions; a topic goes with its last one."""
    result = {}
    for topic_id, topic in states.items():
        left = topic.partitions - removed.get(topic_id, frozenset())
        if left:
            result[topic_id] = topic._replace(partitions=left)
    return result
