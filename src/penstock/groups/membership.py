"""The steps of one heartbeat in a consumer group: subscription, group epoch, target assignment, reconciliation.

Each step builds on the records of the previous one: write the member's subscription; bump the group epoch, if
subscriptions, topics or the assignor changed; compute the target assignment, if it is for an older epoch; and reconcile
the member. Most heartbeats change nothing and cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.groups.assignors import ASSIGNORS, Subscriber
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember, MemberState
from penstock.groups.draft import Draft
from penstock.groups.reconciliation import WantedAssignment, reconcile
from penstock.groups.records import (
    current_record,
    epoch_record,
    member_record,
    subscription_metadata_tombstone,
    target_epoch_record,
    target_record,
    target_tombstone,
)
from penstock.groups.state import GroupState
from penstock.groups.subscriptions import MayDescribe, Subscriptions
from penstock.groups.timers import TimerKey
from penstock.groups.topics import metadata_hash
from penstock.model.ids import Uuid
from penstock.protocol.messages.consumer_group_heartbeat import TopicPartitions


class Membership:
    def __init__(self, state: GroupState, subscriptions: Subscriptions) -> None:
        self._state = state
        self._subscriptions = subscriptions

    # -- one member ----------------------------------------------------------------------------------------------------

    def is_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether to look at the group although the heartbeat changes nothing."""
        if group.checked_version != self._state.topics.version:
            return True
        if group.assignment_epoch < group.epoch and self._may_assign(group, now_ms):
            return True
        return self._subscriptions.is_due(group, now_ms)

    def follow(
        self, group: ConsumerGroup, member: ConsumerMember, owned: list[TopicPartitions] | None
    ) -> ConsumerMember:
        """Reconcile a member whose subscription has not changed."""
        if member.is_reconciled_to(group.assignment_epoch):
            return member
        return reconcile(member, self._wanted(group, member, False), owned)

    def update(
        self,
        draft: Draft,
        before: ConsumerMember,
        after: ConsumerMember,
        owned: list[TopicPartitions] | None,
        now_ms: int,
        may_describe: MayDescribe,
    ) -> ConsumerMember:
        """Update a member.

        `before` is in the draft, unless it is new. The result is in the draft and holds the member's state.
        """
        self._subscriptions.check(after.regex if after.regex != before.regex else None)
        assignor = draft.group.preferred_assignor(self._default_assignor)
        if after != before or after.member_id not in draft.group.members:
            draft.emit(member_record(draft.group.group_id, after.member_id, after.wishes()))
        regex_changed = self._subscriptions.update(draft, before, after, may_describe, now_ms)
        subscription_changed = after.topics != before.topics or regex_changed
        self.update_epoch(
            draft,
            now_ms,
            may_describe,
            must_bump=subscription_changed or draft.group.preferred_assignor(self._default_assignor) != assignor,
        )
        self.update_target(draft, now_ms)
        member = draft.group.members[after.member_id]
        moved = member
        if subscription_changed or not member.is_reconciled_to(draft.group.assignment_epoch):
            moved = reconcile(member, self._wanted(draft.group, member, subscription_changed), owned)
        if moved != member:
            draft.emit(current_record(draft.group.group_id, moved.member_id, moved.possessions()))
        return moved

    def _wanted(self, group: ConsumerGroup, member: ConsumerMember, subscription_changed: bool) -> WantedAssignment:
        return WantedAssignment(
            group.assignment_epoch,
            group.target.get(member.member_id, {}),
            self._subscriptions.topic_ids(group, member),
            subscription_changed,
            group.owner_of,
        )

    def replace(self, draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace a static member that came back: the new one gets its assignment and starts at epoch 0."""
        group_id = draft.group.group_id
        target = draft.group.target.get(old.member_id, {})
        new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        draft.emit(current_record(group_id, old.member_id, None))
        draft.emit(target_tombstone(group_id, old.member_id))
        draft.emit(member_record(group_id, old.member_id, None))
        draft.emit(member_record(group_id, member_id, new.wishes()))
        draft.emit(target_record(group_id, member_id, target))
        draft.emit(current_record(group_id, member_id, new.possessions()))
        return draft.group.members[member_id]

    # -- the group -----------------------------------------------------------------------------------------------------

    def update_epoch(self, draft: Draft, now_ms: int, may_describe: MayDescribe, *, must_bump: bool) -> None:
        group = draft.group
        if self._subscriptions.is_due(group, now_ms):
            must_bump |= self._subscriptions.refresh(draft, may_describe, now_ms)
            self._mark(group.group_id, regexes_checked_ms=now_ms, regexes_checked_version=self._state.topics.version)
        current_hash = metadata_hash(group.subscribed_topics(), self._state.topics)
        # No member is ever in epoch 0, which in a request means "join".
        if must_bump or current_hash != group.metadata_hash or group.epoch == 0:
            draft.emit(epoch_record(group.group_id, group.epoch + 1, current_hash))
        if group.has_subscription_metadata:
            draft.emit(subscription_metadata_tombstone(group.group_id))
        self._mark(group.group_id, checked_version=self._state.topics.version)

    def update_target(self, draft: Draft, now_ms: int) -> None:
        group = draft.group
        if group.assignment_epoch >= group.epoch or not self._may_assign(group, now_ms):
            return
        counts: dict[Uuid, int] = {}
        ids_of: dict[frozenset[str], frozenset[Uuid]] = {}
        subscribers = []
        for member in group.members.values():
            names = group.topics_of(member)
            topic_ids = ids_of.get(names)
            if topic_ids is None:
                topic_ids = ids_of[names] = self._subscriptions.topic_ids(group, member)
            current = group.target.get(member.member_id, {})
            subscribers.append(Subscriber(member.member_id, member.instance_id, topic_ids, current))
        for name in group.subscribed_topics():
            topic_id = self._state.topics.topic_id(name)
            if topic_id is not None:
                counts[topic_id] = self._state.topics.partition_count(name)
        assignor = ASSIGNORS.get(group.preferred_assignor(self._default_assignor), ASSIGNORS[self._default_assignor])
        for member_id, target in assignor(subscribers, counts).items():
            if group.target.get(member_id) != target:
                draft.emit(target_record(group.group_id, member_id, target))
        draft.emit(target_epoch_record(group.group_id, group.epoch, now_ms))

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        return group.may_assign(self._state.settings_of(group.group_id).assignment_interval_ms, now_ms)

    @property
    def _default_assignor(self) -> str:
        return self._state.settings.consumer_assignors[0]

    def _mark(self, group_id: str, **soft: int) -> None:
        group = self._state.consumer.get(group_id)
        if group is not None:
            for name, value in soft.items():
                setattr(group, name, value)

    # -- time ----------------------------------------------------------------------------------------------------------

    def watch(self, group_id: str, before: ConsumerMember | None, member: ConsumerMember, now_ms: int) -> None:
        """Restart the member's session, and its rebalance time-out if it must give up partitions."""
        timers = self._state.timers
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        else:
            session_ms = self._state.settings_of(group_id).consumer_session_timeout_ms
        timers.set(TimerKey("session", group_id, member.member_id), now_ms + session_ms)
        revoke = TimerKey("revoke", group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            timers.cancel(revoke)
        elif before is None or before.revoking != member.revoking:
            timers.set(revoke, now_ms + member.rebalance_timeout_ms)

    def forget(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "revoke", "rejoin", "resync"):
            self._state.timers.cancel(TimerKey(kind, group_id, member_id))


def owns_no_more_than(owned: Iterable[TopicPartitions] | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        part.topic_id in member.assigned and member.assigned[part.topic_id].keys() >= set(part.partitions)
        for part in owned
    )


def owns_exactly(owned: Iterable[TopicPartitions], member: ConsumerMember) -> bool:
    said = {part.topic_id: set(part.partitions) for part in owned if part.partitions}
    return said == {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
