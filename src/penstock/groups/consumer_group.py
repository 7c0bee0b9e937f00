"""A consumer group (KIP-848).

Law: a partition has one owner, `owner_of`, from when it is assigned to a member until that member has confirmed that it
gave it up, or was removed and so forfeited it.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, NamedTuple

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups import records
from penstock.groups.consumer_member import ConsumerMember, Owned, Target
from penstock.groups.modern_group import Replay, StaticGroup
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
)


class ConsumerState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched when it was last evaluated."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(StaticGroup[ConsumerMember, Target]):
    SOFT = ("checked_version", "regexes_checked_version", "regexes_checked_ms")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}
        # Whether the log has a subscription metadata record of an older coordinator, which must be deleted.
        self.has_subscription_metadata = False
        # Soft: the version that its expressions were matched with, and when.
        self.regexes_checked_version = -2
        self.regexes_checked_ms = 0
        # Derived from the members.
        self._owners: dict[tuple[Uuid, int], str] = {}
        self._subscribers: dict[str, int] = {}
        self._regex_subscribers: dict[str, int] = {}
        self._assignor_votes: dict[str, int] = {}
        self.classic_members = 0

    # -- members -------------------------------------------------------------------------------------------------------

    def owner_of(self, topic_id: Uuid, partition: int) -> str | None:
        return self._owners.get((topic_id, partition))

    @property
    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the member's topics, by name and by expression.

        An expression that was not evaluated yet matches nothing.
        """
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscribed_topics(self) -> set[str]:
        return {*self._subscribers, *(topic for regex in self.regexes.values() for topic in regex.topics)}

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._subscribers or any(topic in regex.topics for regex in self.regexes.values())

    def subscribers_of_regex(self, regex: str) -> int:
        return self._regex_subscribers.get(regex, 0)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members ask for."""
        votes = self._assignor_votes
        return max(votes, key=lambda name: (votes[name], name)) if votes else default

    # -- replay --------------------------------------------------------------------------------------------------------

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is not None:
            self._put(self.members.get(key.member_id, ConsumerMember(key.member_id)).with_wishes(value))
        elif key.member_id in self.members:
            self._take(key.member_id)

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is not None:
            self._put(self.members.get(key.member_id, ConsumerMember(key.member_id)).with_possessions(value))
        elif key.member_id in self.members:
            self._put(self.members[key.member_id].without_possessions())

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {part.topic_id: frozenset(part.partitions) for part in value.topic_partitions}

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.regexes[key.regular_expression] = resolved

    def _replay_subscription(self, key: ConsumerGroupPartitionMetadataKey, value: Message | None) -> None:
        self.has_subscription_metadata = value is not None

    REPLAY: ClassVar[Replay] = {
        ConsumerGroupMetadataKey: StaticGroup.replay_group,
        ConsumerGroupMemberMetadataKey: _replay_member,
        ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
        ConsumerGroupTargetAssignmentMetadataKey: StaticGroup.replay_assignment,
        ConsumerGroupTargetAssignmentMemberKey: _replay_target,
        ConsumerGroupRegularExpressionKey: _replay_regex,
        ConsumerGroupPartitionMetadataKey: _replay_subscription,
    }

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._count(before, -1)
            self._release(before)
        self.members[member.member_id] = member
        self._count(member, 1)
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    self._owners[topic_id, partition] = member.member_id
        self._keep_name(before, member)

    def _take(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._count(member, -1)
        self._release(member)
        self._release_name(member)

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    if self._owners.get((topic_id, partition)) == member.member_id:
                        del self._owners[topic_id, partition]

    def _count(self, member: ConsumerMember, change: int) -> None:
        for topic in member.topics:
            _add(self._subscribers, topic, change)
        if member.regex:
            _add(self._regex_subscribers, member.regex, change)
        if member.assignor is not None:
            _add(self._assignor_votes, member.assignor, change)
        if member.classic is not None:
            self.classic_members += change

    # -- deletion ------------------------------------------------------------------------------------------------------

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the tombstones that delete the group and every record of it that may be in the log."""
        group_id = self.group_id
        found = [records.current_record(group_id, member_id, None) for member_id in self.members]
        found += [records.target_tombstone(group_id, member_id) for member_id in {**self.members, **self.target}]
        found.append(records.target_epoch_tombstone(group_id))
        found += [records.member_record(group_id, member_id, None) for member_id in self.members]
        found += [records.regex_tombstone(group_id, regex) for regex in self.regexes]
        if self.has_subscription_metadata:
            found.append(records.subscription_metadata_tombstone(group_id))
        found.append(records.epoch_tombstone(group_id))
        return found


def _add(counts: dict[str, int], name: str, change: int) -> None:
    count = counts.get(name, 0) + change
    if count:
        counts[name] = count
    else:
        del counts[name]


def partitions_of(owned: Owned) -> Target:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
