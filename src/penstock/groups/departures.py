"""Departures from a consumer group: a member leaves, or its session or rebalance time-out ends.

The partitions of the member are free at once. The group moves to its next epoch; the other members get their share with
their next heartbeats. If all remaining members use the classic protocol, the group becomes classic again.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.coordinator.decision import Decision
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import LEAVING_FOR_A_WHILE, ConsumerMember
from penstock.groups.draft import Draft
from penstock.groups.membership import Membership
from penstock.groups.migration import Migration
from penstock.groups.records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_tombstone,
)
from penstock.groups.state import GroupState
from penstock.groups.subscriptions import Subscriptions
from penstock.groups.topics import metadata_hash


class Departures:
    def __init__(
        self, state: GroupState, subscriptions: Subscriptions, membership: Membership, migration: Migration
    ) -> None:
        self._state = state
        self._subscriptions = subscriptions
        self._membership = membership
        self._migration = migration

    def leave_for_a_while(self, group: ConsumerGroup, member: ConsumerMember, out: Decision) -> None:
        """Mark a static member that will return under another id before its session ends, and keeps its partitions."""
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
        left = member._replace(epoch=LEAVING_FOR_A_WHILE, revoking={}, assigned=assigned)
        out.records.append(current_record(group.group_id, member.member_id, left.possessions()))

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember], now_ms: int, out: Decision) -> None:
        """Remove all of these members from the group."""
        if not members:
            return
        group_id = group.group_id
        draft = Draft.of(group)
        for member in members:
            draft.emit(current_record(group_id, member.member_id, None))
            draft.emit(target_tombstone(group_id, member.member_id))
            draft.emit(member_record(group_id, member.member_id, None))
            self._subscriptions.forget_unused(draft, member.regex)
        if self._migration.can_downgrade(draft.group):
            classic = self._migration.downgrade(draft, now_ms)
            out.records.extend(draft.records)
            self._migration.downgraded(classic, now_ms, out)
        else:
            epoch = draft.group.epoch + 1
            current_hash = metadata_hash(draft.group.subscribed_topics(), self._state.topics)
            draft.emit(epoch_record(group_id, epoch, current_hash))
            if not draft.group.members:
                # No member is left to assign to. The time is that of a group that never was assigned, so that the next
                # member need not wait.
                draft.emit(target_epoch_record(group_id, epoch, 0))
            out.records.extend(draft.records)
        for member in members:
            self._membership.forget(group_id, member.member_id)
