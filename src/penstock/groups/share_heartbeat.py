"""ShareGroupHeartbeat: the only membership request of share groups.

With epoch 0 a member joins, with -1 it leaves. Otherwise the request carries the last epoch the member received; the
previous one is accepted too, because the answer may have been lost.

One heartbeat may have these steps, each on the records of the previous one: write the member's subscription; bump the
group epoch, if subscriptions, topics or initialized partitions changed; compute the target assignment, if it is for an
older epoch; let the member take its target. Partitions of subscribed topics that the share coordinator does not know
yet become "initializing"; the runtime asks for that when the records are committed, and reports the outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.coordinator.decision import Caller, CoordinatorRecord, Decision, Reply, Token
from penstock.groups.consumer_member import Target
from penstock.groups.draft import ShareDraft
from penstock.groups.share_assignor import ShareSubscriber, assign_simple
from penstock.groups.share_group import (
    ShareGroup,
    ShareMember,
    TopicState,
    TopicStates,
    with_partitions,
    without_partitions,
)
from penstock.groups.share_records import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.groups.topics import metadata_hash
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING: Final = 0
LEAVING: Final = -1
SHARE_SESSION: Final = "share session"
# Where a group begins in a partition of a topic that is new to it: the leader decides, by the group's settings.
NO_OFFSET: Final = -1


class Initialization(NamedTuple):
    """What to ask the share coordinators: the start offsets of partitions, and the epoch of their state."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]

    @property
    def partitions(self) -> Target:
        return {topic_id: frozenset(offsets) for topic_id, offsets in self.start_offsets.items()}


class HeartbeatReply(NamedTuple):
    """The answer to a heartbeat, and what follows from it."""

    response: ShareGroupHeartbeatResponse
    initialization: Initialization | None = None


class ShareHeartbeat:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    def heartbeat(self, request: ShareGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        out = Decision([], [])
        try:
            _check(request)
            if request.member_epoch == LEAVING:
                reply = HeartbeatReply(self._leave(request, out))
            else:
                reply = self._beat(request, caller, now_ms, out)
        except KafkaError as error:
            response = ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Decision([], [Reply(token, HeartbeatReply(response))])
        out.replies.append(Reply(token, reply))
        return out

    # -- join and heartbeat --------------------------------------------------------------------------------------------

    def _beat(self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision) -> HeartbeatReply:
        group_id, joins = request.group_id, request.member_epoch == JOINING
        group = self._state.shares.get(group_id)
        if group is None:
            if self._state.group(group_id) is not None:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
            if not joins:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = ShareGroup(group_id)
        group.check_room(self._state.settings.share_max_size, "share", request.member_id)
        if joins:
            member = group.members.get(request.member_id, ShareMember(request.member_id))
        else:
            member = group.member(request.member_id)
            _check_epoch(member, request.member_epoch)
        wished = _wished(member, request, caller)
        timer = TimerKey(SHARE_SESSION, group_id, member.member_id)
        if wished == member and member.member_id in group.members and not self._is_due(group, member, now_ms):
            moved, initialization = member, None
        else:
            draft = ShareDraft.of(group)
            moved = self._update(draft, member, wished, now_ms)
            initialization = self._initialize(draft, now_ms)
            out.records.extend(draft.records)
            self._mark(group_id, initialization, now_ms)
        self._state.timers.set(timer, now_ms + self._state.settings_of(group_id).share_session_timeout_ms)
        is_full = joins or request.subscribed_topic_names is not None
        # The answer with the assignment may have been lost if the member is an epoch behind.
        is_behind = request.member_epoch != member.epoch
        response = self._response(group_id, moved, is_full or is_behind or moved.assigned != member.assigned)
        return HeartbeatReply(response, initialization)

    def _is_due(self, group: ShareGroup, member: ShareMember, now_ms: int) -> bool:
        """Whether a heartbeat that changes nothing may still have consequences."""
        if group.checked_version != self._state.topics.version or member.epoch != group.assignment_epoch:
            return True
        if group.assignment_epoch < group.epoch:
            return self._may_assign(group, now_ms)
        return self._has_unassigned(group) or any(self._may_request(group, each, now_ms) for each in group.initializing)

    def _update(self, draft: ShareDraft, before: ShareMember, after: ShareMember, now_ms: int) -> ShareMember:
        group = draft.group
        if after != before or after.member_id not in group.members:
            draft.emit(member_record(group.group_id, after.member_id, after))
        must_bump = after.topics != before.topics
        if group.assignment_epoch >= group.epoch:
            must_bump |= self._has_unassigned(group)
        current_hash = metadata_hash(group.subscribed_topics(), self._state.topics)
        # No member is ever in epoch 0, which in a request means "join".
        if must_bump or current_hash != group.metadata_hash or group.epoch == 0:
            draft.emit(epoch_record(group.group_id, group.epoch + 1, current_hash))
        self._update_target(draft, now_ms)
        member = group.members[after.member_id]
        target = self._subscribed(group.target.get(member.member_id, {}), member)
        moved = member
        if member.epoch != group.assignment_epoch:
            moved = member._replace(epoch=group.assignment_epoch, previous_epoch=member.epoch, assigned=target)
        elif after.topics != before.topics:
            moved = member._replace(assigned=target)
        if moved != member:
            draft.emit(current_record(group.group_id, moved.member_id, moved))
        return moved

    def _update_target(self, draft: ShareDraft, now_ms: int) -> None:
        group = draft.group
        if group.assignment_epoch >= group.epoch or not self._may_assign(group, now_ms):
            return
        subscribers = [
            ShareSubscriber(member.member_id, self._topic_ids(member.topics), group.target.get(member.member_id, {}))
            for member in group.members.values()
        ]
        partitions = {topic_id: topic.partitions for topic_id, topic in group.initialized.items()}
        for member_id, target in assign_simple(subscribers, partitions).items():
            if group.target.get(member_id) != target:
                draft.emit(target_record(group.group_id, member_id, target))
        draft.emit(target_epoch_record(group.group_id, group.epoch, now_ms))

    def _may_assign(self, group: ShareGroup, now_ms: int) -> bool:
        return group.may_assign(self._state.settings_of(group.group_id).share_assignment_interval_ms, now_ms)

    def _has_unassigned(self, group: ShareGroup) -> bool:
        return bool(group.members) and group.has_unassigned(self._topic_ids(group.subscribed_topics()))

    def _topic_ids(self, names: Iterable[str]) -> frozenset[Uuid]:
        found = (self._state.topics.topic_id(name) for name in names)
        return frozenset(topic_id for topic_id in found if topic_id is not None)

    def _subscribed(self, target: Target, member: ShareMember) -> Target:
        topics = self._topic_ids(member.topics)
        return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in topics}

    def _response(self, group_id: str, member: ShareMember, with_assignment: bool) -> ShareGroupHeartbeatResponse:
        assignment = None
        if with_assignment:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted(member.assigned)
                ]
            )
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._state.settings_of(group_id).share_heartbeat_interval_ms,
            assignment=assignment,
        )

    # -- partitions of the share coordinator ---------------------------------------------------------------------------

    def _initialize(self, draft: ShareDraft, now_ms: int) -> Initialization | None:
        """Mark partitions as initializing that are new, or whose initialization was requested long ago."""
        group = draft.group
        missing: dict[Uuid, TopicState] = {}
        for name in sorted(group.subscribed_topics()):
            topic_id = self._state.topics.topic_id(name)
            if topic_id is None:
                continue
            known = group.initialized.get(topic_id, TopicState(name, frozenset())).partitions
            if topic_id in group.initializing and not self._may_request(group, topic_id, now_ms):
                known |= group.initializing[topic_id].partitions
            wanted = frozenset(range(self._state.topics.partition_count(name))) - known
            if wanted:
                missing[topic_id] = TopicState(name, wanted)
        if not missing:
            return None
        starts = {
            topic_id: {index: _start_offset(group, topic_id, index) for index in sorted(topic.partitions)}
            for topic_id, topic in missing.items()
        }
        draft.emit(
            group.states_record(
                initializing=with_partitions(group.initializing, missing),
                deleting={topic_id: name for topic_id, name in group.deleting.items() if topic_id not in missing},
            )
        )
        return Initialization(group.group_id, group.epoch, starts)

    def _may_request(self, group: ShareGroup, topic_id: Uuid, now_ms: int) -> bool:
        """Whether to initialize partitions again whose initialization has brought no result.

        A new coordinator does not know what the previous one has requested.
        """
        since_ms = group.requested_ms.get(topic_id)
        return since_ms is None or now_ms >= since_ms + self._state.settings.share_initialize_retry_interval_ms

    def _mark(self, group_id: str, initialization: Initialization | None, now_ms: int) -> None:
        """Set the soft state: on the group itself, not on its draft. A new group has none until it is replayed."""
        group = self._state.shares.get(group_id)
        if group is None:
            group = self._state.shares[group_id] = ShareGroup(group_id)
        group.checked_version = self._state.topics.version
        for topic_id in () if initialization is None else initialization.start_offsets:
            group.requested_ms[topic_id] = now_ms

    def initialized(self, group_id: str, partitions: Target) -> list[CoordinatorRecord]:
        """The share coordinators have initialized partitions: they may be assigned with the next heartbeat."""
        group = self._state.shares.get(group_id)
        if group is None:
            return []
        done: TopicStates = {
            topic_id: TopicState(topic.name, topic.partitions & partitions[topic_id])
            for topic_id, topic in group.initializing.items()
            if topic_id in partitions and topic.partitions & partitions[topic_id]
        }
        if not done:
            return []
        return [
            group.states_record(
                initializing=without_partitions(group.initializing, partitions),
                initialized=with_partitions(group.initialized, done),
            )
        ]

    def not_initialized(self, group_id: str, partitions: Target) -> list[CoordinatorRecord]:
        """Partitions could not be initialized: the next heartbeat requests it again."""
        group = self._state.shares.get(group_id)
        if group is None or not group.initializing.keys() & partitions.keys():
            return []
        group.checked_version = -2
        return [group.states_record(initializing=without_partitions(group.initializing, partitions))]

    # -- leave ---------------------------------------------------------------------------------------------------------

    def _leave(self, request: ShareGroupHeartbeatRequest, out: Decision) -> ShareGroupHeartbeatResponse:
        group = share_group_or_error(self._state, request.group_id)
        self.fence(request.group_id, [group.member(request.member_id)], out)
        return ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def found(self, group_id: str, member_id: str) -> list[ShareMember]:
        """Return the member, if it exists."""
        group = self._state.shares.get(group_id)
        member = None if group is None else group.members.get(member_id)
        return [] if member is None else [member]

    def fence(self, group_id: str, members: Collection[ShareMember], out: Decision) -> None:
        """Remove members, because they leave or because their session has ended."""
        if not members:
            return
        draft = ShareDraft.of(self._state.shares[group_id])
        for member in members:
            draft.emit(current_record(group_id, member.member_id, None))
            draft.emit(target_record(group_id, member.member_id, None))
            draft.emit(member_record(group_id, member.member_id, None))
            self._state.timers.cancel(TimerKey(SHARE_SESSION, group_id, member.member_id))
        current_hash = metadata_hash(draft.group.subscribed_topics(), self._state.topics)
        epoch = draft.group.epoch + 1
        draft.emit(epoch_record(group_id, epoch, current_hash))
        if not draft.group.members:
            # No member is left to assign to. The time is that of a group that never was assigned, so that the next
            # member need not wait.
            draft.emit(target_epoch_record(group_id, epoch, 0))
        out.records.extend(draft.records)

    def start_sessions(self, now_ms: int) -> None:
        for group in self._state.shares.values():
            session_ms = self._state.settings_of(group.group_id).share_session_timeout_ms
            for member_id in group.members:
                self._state.timers.set(TimerKey(SHARE_SESSION, group.group_id, member_id), now_ms + session_ms)


def share_group_or_error(state: GroupState, group_id: str) -> ShareGroup:
    group = state.shares.get(group_id)
    if group is None:
        reason = "not found" if state.kind_of(group_id) is None else "is not a share group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    return group


def _start_offset(group: ShareGroup, topic_id: Uuid, index: int) -> int:
    """Where the group begins in a partition.

    In a topic that the group reads already, a new partition is read from its start: records may have come before the
    group noticed. A partition whose initialization is repeated begins where it would have.
    """
    initializing = group.initializing.get(topic_id)
    is_new_in_topic = initializing is not None and index not in initializing.partitions
    return 0 if topic_id in group.initialized or is_new_in_topic else NO_OFFSET


def _check(request: ShareGroupHeartbeatRequest) -> None:
    for name, value in (("Member", request.member_id), ("Group", request.group_id), ("Rack", request.rack_id)):
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}Id can't be empty.")
    if request.member_epoch == JOINING:
        if not request.subscribed_topic_names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVING:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _check_epoch(member: ShareMember, epoch: int) -> None:
    if epoch > member.epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch < member.epoch and epoch != member.previous_epoch:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch}). "
            "The member must abandon all its partitions and rejoin.",
        )


def _wished(member: ShareMember, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareMember:
    """Apply the request's fields to the member. A null field means "unchanged"."""
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=caller.client_id,
        client_host=caller.client_host,
    )
