"""JoinGroup to a classic group.

A dynamic member joins twice: the first request has no id and is answered with one (MEMBER_ID_REQUIRED, from version 4
on), so that a client that never receives the answer leaves nothing behind but an id that expires. A static member has a
name, `group.instance.id`, and returns under it: into a stable group without a rebalance, if that does not change the
elected protocol. The previous holder of the name is fenced.

A member that joins a stable group again with the same subscription gets the current generation, unless it is the
leader: a leader joins again to ask for a new assignment, for example because topics have changed.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.coordinator.decision import Caller, Decision, Reply, Token
from penstock.groups.classic_group import ClassicGroup, ClassicMember, ClassicState, Protocol
from penstock.groups.rebalance import Rebalance, generation_of, join_error, sync_error
from penstock.groups.records import classic_group_record
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


def protocols_of(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    """Return the protocols of a request. A name that occurs twice counts once."""
    seen: dict[str, bytes] = {}
    for protocol in request.protocols:
        seen.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(Protocol(name, metadata) for name, metadata in seen.items())


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Return the rebalance time-out. Version 0 has none of its own and uses the session time-out."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


class _JoinAttempt(NamedTuple):
    """A request, what is known of its sender, and the decision that answers it."""

    request: JoinGroupRequest
    token: Token
    caller: Caller
    now_ms: int
    out: Decision


class JoinGroup:
    def __init__(self, state: GroupState, rebalance: Rebalance) -> None:
        self._state = state
        self._rebalance = rebalance

    def join(
        self, request: JoinGroupRequest, token: Token, caller: Caller, now_ms: int, out: Decision, generation: int = 0
    ) -> None:
        """Join a group that is classic or does not exist yet.

        `generation`: the generation or epoch that a new group had before, in another form; generations never go back.
        """
        group = self._state.classic.get(request.group_id)
        if group is None:
            if request.member_id:
                out.replies.append(Reply(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)))
                return
            group = ClassicGroup(request.group_id, now_ms)
            group.generation = generation
            if not group.supports(request.protocol_type, (entry.name for entry in request.protocols)):
                out.replies.append(Reply(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
                return
            self._state.classic[request.group_id] = group
            # The group is written to the log before any client learns of it.
            out.records.append(classic_group_record(group.group_id, group.value()))
        if not self._has_room(group, request.member_id):
            self._refuse(group, request.member_id, token, now_ms, out)
        elif not group.supports(request.protocol_type, (entry.name for entry in request.protocols)):
            response = join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            out.replies.append(Reply(token, response))
        elif request.member_id:
            self._join_known(group, _JoinAttempt(request, token, caller, now_ms, out))
        else:
            self._join_unknown(group, _JoinAttempt(request, token, caller, now_ms, out))

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has space for the member.

        If the limit was lowered, the last members to join again are refused.
        """
        limit = self._state.settings.max_size
        member = group.members.get(member_id)
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            return (member is not None and member.join_token is not None) or group.awaiting_joins < limit
        return member is not None or len(group.members) < limit

    def _refuse(self, group: ClassicGroup, member_id: str, token: Token, now_ms: int, out: Decision) -> None:
        out.replies.append(Reply(token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)))
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove(group, member, out)
        else:
            group.remove(member_id)
        self._rebalance.complete_if_all_joined(group, now_ms, out)

    # -- requests without a member id ----------------------------------------------------------------------------------

    def _join_unknown(self, group: ClassicGroup, asked: _JoinAttempt) -> None:
        request, token, caller, now_ms, out = asked
        instance_id = request.group_instance_id
        name = caller.client_id if instance_id is None else instance_id
        member_id = f"{name}-{self._state.new_member_id()}"
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group, asked, member_id)
        elif instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            group.pending_joins.add(member_id)
            key = TimerKey("session", group.group_id, member_id)
            self._state.timers.set(key, now_ms + request.session_timeout_ms)
            out.replies.append(Reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
        else:
            self._add(group, asked, member_id)

    def _add(self, group: ClassicGroup, asked: _JoinAttempt, member_id: str) -> None:
        request, token, caller, now_ms, out = asked
        member = ClassicMember(
            member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
        )
        member.is_new = True
        group.new_member_added = True
        group.add(member, request.protocol_type)
        group.await_join(member, token)
        key = TimerKey("session", group.group_id, member_id)
        self._state.timers.set(key, now_ms + self._state.settings.new_member_join_timeout_ms)
        self._rebalance.begin_or_go_on(group, now_ms, out)

    # -- requests with a member id -------------------------------------------------------------------------------------

    def _join_known(self, group: ClassicGroup, asked: _JoinAttempt) -> None:
        request, token, _, now_ms, out = asked
        member_id = request.member_id
        if member_id in group.pending_joins and request.group_instance_id is None:
            self._add(group, asked, member_id)
            return
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            out.replies.append(Reply(token, join_error(error.code, member_id)))
            return
        member = group.members[member_id]
        is_unchanged = member.protocols == protocols_of(request)
        is_leader = group.leader == member_id
        if group.state is ClassicState.COMPLETING_REBALANCE and is_unchanged:
            # The first answer may have been lost.
            out.replies.append(Reply(token, generation_of(group, member)))
        elif group.state is ClassicState.STABLE and is_unchanged and not is_leader:
            out.replies.append(Reply(token, generation_of(group, member)))
        else:
            self._update(group, member, request, token, out)
            self._rebalance.begin_or_go_on(group, now_ms, out)

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest, token: Token, out: Decision
    ) -> None:
        group.update(member, protocols_of(request), rebalance_timeout_of(request), request.session_timeout_ms)
        earlier = group.take_join_token(member)
        if earlier is not None:
            # The client has given up on the first request and repeats it. It must not learn twice that it has joined,
            # but both requests must be answered.
            out.replies.append(Reply(earlier, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))
        group.await_join(member, token)

    # -- static members ------------------------------------------------------------------------------------------------

    def _replace_static(self, group: ClassicGroup, asked: _JoinAttempt, member_id: str) -> None:
        request, token, caller, now_ms, out = asked
        assert request.group_instance_id is not None
        member = group.members[group.static_members[request.group_instance_id]]
        old_id, old_leader = member.member_id, group.leader
        self._fence(group, member, out)
        group.rename(member, member_id)
        self._state.timers.cancel(TimerKey("session", group.group_id, old_id))
        group.update(member, protocols_of(request), rebalance_timeout_of(request), request.session_timeout_ms)
        self._rebalance.restart_session(group, member, now_ms)
        member.client_id, member.client_host = caller.client_id, caller.client_host
        if group.state is ClassicState.STABLE and group.elect_protocol() == group.protocol:
            out.records.append(classic_group_record(group.group_id, group.value()))
            out.replies.append(Reply(token, self._replaced(group, member, old_leader, caller)))
            return
        group.await_join(member, token)
        # The leader may already have received the old id and would assign to a member that is gone: rebalance in any
        # state.
        self._rebalance.begin_or_go_on(group, now_ms, out)

    def _fence(self, group: ClassicGroup, member: ClassicMember, out: Decision) -> None:
        token = group.take_join_token(member)
        if token is not None:
            out.replies.append(Reply(token, join_error(ErrorCode.FENCED_INSTANCE_ID, member.member_id)))
        token, member.sync_token = member.sync_token, None
        if token is not None:
            out.replies.append(Reply(token, sync_error(ErrorCode.FENCED_INSTANCE_ID)))

    def _replaced(
        self, group: ClassicGroup, member: ClassicMember, old_leader: str | None, caller: Caller
    ) -> JoinGroupResponse:
        """Answer a static member that came back. A leader must not assign: no other member takes part in a rebalance.

        Clients that support SkipAssignment learn that they lead; the others get the previous leader id, which is no
        longer theirs.
        """
        if caller.api_version >= SKIP_ASSIGNMENT_SINCE:
            return generation_of(group, member, skip_assignment=group.leader == member.member_id)
        response = generation_of(group, member)
        response.members = []
        response.leader = old_leader or ""
        return response
