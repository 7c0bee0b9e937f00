"""The rebalance of a classic group: which members must join, until when, and what follows.

A rebalance begins when members join, leave or change their subscription. Members that wait for an assignment get
REBALANCE_IN_PROGRESS; the others get it with their next heartbeat. The rebalance ends when all members have joined, or
after the longest of their rebalance time-outs: then dynamic members that have not joined are removed (a static member
keeps its place until its session ends). An empty group first waits for a while, because the members of a service that
starts join one by one.

Members that have joined get the generation and its leader. A member that then does not send SyncGroup within the
rebalance time-out is removed as well.

Timers of a group: `join` (the rebalance, or the initial delay) and `sync`; of a member: `session`.
"""

from __future__ import annotations

from penstock.coordinator.decision import Decision, Reply
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.records import classic_group_record
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.protocol.messages.sync_group import SyncGroupResponse


class Rebalance:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    # -- phases --------------------------------------------------------------------------------------------------------

    def begin_or_go_on(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Begin a rebalance because members changed, or check whether the current one is complete."""
        if group.can_rebalance:
            self.begin(group, now_ms, out)
        else:
            self.complete_if_all_joined(group, now_ms, out)

    def begin(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.hand_out(group, now_ms, out, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._state.timers.cancel(TimerKey("sync", group.group_id))
        group.move_to(ClassicState.PREPARING_REBALANCE, now_ms)
        if group.is_first_rebalance:
            self._delay(group, now_ms, out)
        elif group.all_have_joined:
            self.complete(group, now_ms, out)
        else:
            self._state.timers.set(TimerKey("join", group.group_id), now_ms + group.rebalance_timeout_ms)

    def _delay(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        delay_ms = self._state.settings.initial_rebalance_delay_ms
        group.remaining_delay_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        if delay_ms == 0:
            self.complete(group, now_ms, out)
        else:
            self._state.timers.set(TimerKey("join", group.group_id), now_ms + delay_ms)

    def join_expired(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Handle the timer `join`."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        if group.is_first_rebalance and group.new_member_added and group.remaining_delay_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._state.settings.initial_rebalance_delay_ms, group.remaining_delay_ms)
            group.remaining_delay_ms -= delay_ms
            self._state.timers.set(TimerKey("join", group.group_id), now_ms + delay_ms)
        else:
            self.complete(group, now_ms, out)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        waits_for_more = group.is_first_rebalance and bool(group.members)
        if group.state is ClassicState.PREPARING_REBALANCE and group.all_have_joined and not waits_for_more:
            self.complete(group, now_ms, out)

    def complete(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        timers = self._state.timers
        timers.cancel(TimerKey("join", group.group_id))
        for member in list(group.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.drop(group, member)
        if group.members and not group.elect_joined_leader():
            # The group has only static members, and none has joined: their sessions decide.
            timers.set(TimerKey("join", group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.next_generation(now_ms)
        if group.is_empty:
            out.records.append(classic_group_record(group.group_id, group.value()))
            return
        for member in group.members.values():
            self.answer_join(group, member, out)
            self.restart_session(group, member, now_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        timers.set(TimerKey("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    def sync_expired(self, group: ClassicGroup, now_ms: int, out: Decision) -> None:
        """Handle the timer `sync`: remove members that joined and never asked for their assignment."""
        if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.pending_syncs:
            return
        for member_id in sorted(group.pending_syncs):
            self.drop(group, group.members[member_id])
        self.begin(group, now_ms, out)

    def session_expired(self, group: ClassicGroup, member_id: str, now_ms: int, out: Decision) -> None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            self.complete_if_all_joined(group, now_ms, out)
            return
        member = group.members.get(member_id)
        # A member that waits for an answer is not expected to send heartbeats. New members are the exception: their
        # clients do not know their ids yet, and may have given up.
        if member is None or (member.waits and not member.is_new):
            return
        self.remove(group, member, out)
        self.begin_or_go_on(group, now_ms, out)

    # -- members -------------------------------------------------------------------------------------------------------

    def drop(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member that waits for no answer."""
        self._state.timers.cancel(TimerKey("session", group.group_id, member.member_id))
        group.remove(member.member_id)

    def remove(self, group: ClassicGroup, member: ClassicMember, out: Decision) -> None:
        """Remove a member; if it waits for an answer, it gets an error and may join again."""
        token = group.take_join_token(member)
        if token is not None:
            out.replies.append(Reply(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID)))
        token, member.sync_token = member.sync_token, None
        if token is not None:
            out.replies.append(Reply(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)))
        self.drop(group, member)

    def restart_session(self, group: ClassicGroup, member: ClassicMember, now_ms: int) -> None:
        key = TimerKey("session", group.group_id, member.member_id)
        self._state.timers.set(key, now_ms + member.session_timeout_ms)

    # -- answers -------------------------------------------------------------------------------------------------------

    def answer_join(self, group: ClassicGroup, member: ClassicMember, out: Decision) -> None:
        token = group.take_join_token(member)
        if token is not None:
            out.replies.append(Reply(token, generation_of(group, member)))

    def hand_out(self, group: ClassicGroup, now_ms: int, out: Decision, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer all members that wait for an assignment, with the assignment or the error."""
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is None:
                continue
            out.replies.append(Reply(token, assignment_of(group, member) if not error else sync_error(error)))
            # The member sent no heartbeats while it waited, and its session was not checked.
            self.restart_session(group, member, now_ms)


def generation_of(group: ClassicGroup, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Make the JoinGroup response of a member. The leader also gets the list of members, because it assigns to them."""
    members = []
    if group.leader == member.member_id:
        members = [
            JoinGroupResponseMember(
                member_id=entry.member_id,
                group_instance_id=entry.instance_id,
                metadata=entry.metadata(group.protocol),
            )
            for entry in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
