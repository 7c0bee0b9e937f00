"""SyncGroup, Heartbeat and LeaveGroup of classic groups."""

from __future__ import annotations

from penstock.coordinator.decision import Decision, Reply, Token
from penstock.groups.classic_group import ClassicGroup, ClassicState
from penstock.groups.rebalance import Rebalance, assignment_of, sync_error
from penstock.groups.records import classic_group_record
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.leave_group import MemberIdentity, MemberResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest


class ClassicRequests:
    def __init__(self, state: GroupState, rebalance: Rebalance) -> None:
        self._state = state
        self._rebalance = rebalance

    # -- SyncGroup -----------------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, request: SyncGroupRequest, token: Token, now_ms: int, out: Decision) -> None:
        """Answer SyncGroup: the leader sends the assignment; the other members wait for it."""
        error = self._check_sync(group, request)
        if error:
            out.replies.append(Reply(token, sync_error(error)))
            return
        member = group.members[request.member_id]
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._state.timers.cancel(TimerKey("sync", group.group_id))
        if group.state is ClassicState.STABLE:
            out.replies.append(Reply(token, assignment_of(group, member)))
            return
        if member.sync_token is not None:
            # The client repeats the request: it has given up on the first one.
            out.replies.append(Reply(member.sync_token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.sync_token = token
        if group.leader == member.member_id:
            self._assign(group, request, now_ms, out)

    def _check_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
        error = _check_generation(group, request)
        if error is not ErrorCode.NONE:
            return error
        if request.protocol_type not in (None, group.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, out: Decision) -> None:
        """Complete the generation. Members that the leader has left out get an empty assignment."""
        assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.move_to(ClassicState.STABLE, now_ms)
        out.records.append(classic_group_record(group.group_id, group.value()))
        self._rebalance.hand_out(group, now_ms, out)

    # -- Heartbeat -----------------------------------------------------------------------------------------------------

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        error = _check_generation(group, request)
        if error is not ErrorCode.NONE:
            return error
        self._rebalance.restart_session(group, group.members[request.member_id], now_ms)
        if group.state is ClassicState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # -- LeaveGroup ----------------------------------------------------------------------------------------------------

    def leave(
        self, group: ClassicGroup, members: list[MemberIdentity], now_ms: int, out: Decision
    ) -> list[MemberResponse]:
        responses = []
        size = len(group.members)
        for identity in members:
            error = self._leave_one(group, identity, out)
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        if len(group.members) < size:
            self._rebalance.begin_or_go_on(group, now_ms, out)
        else:
            self._rebalance.complete_if_all_joined(group, now_ms, out)
        return responses

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, out: Decision) -> ErrorCode:
        member_id = identity.member_id
        if not member_id:
            # An administrator removes a static member by its instance id alone.
            known = group.static_members.get(identity.group_instance_id or "")
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id in group.pending_joins:
            group.remove(member_id)
            self._state.timers.cancel(TimerKey("session", group.group_id, member_id))
            return ErrorCode.NONE
        try:
            group.check_member(member_id, identity.group_instance_id)
        except KafkaError as error:
            return error.code
        self._rebalance.remove(group, group.members[member_id], out)
        return ErrorCode.NONE


def _check_generation(group: ClassicGroup, request: SyncGroupRequest | HeartbeatRequest) -> ErrorCode:
    """Whether the sender is a member of the current generation."""
    if group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if request.generation_id == group.generation else ErrorCode.ILLEGAL_GENERATION
