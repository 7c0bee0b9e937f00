"""ConsumerGroupHeartbeat: the only membership request of the consumer protocol.

With epoch 0 a member joins. With -1 it leaves. With -2 a static member leaves temporarily and keeps its partitions
until its session ends. Otherwise the request carries the last epoch the member received. If that is not the
coordinator's epoch, the member has missed something; it gives up all partitions and joins again. The one exception is
the previous epoch, from a member that has no partition it should not have, because the answer may have been lost.

A null field means "unchanged". The answer has an assignment only if it has changed, or if the member sent all fields.
"""

from __future__ import annotations

from penstock.coordinator.decision import Caller, Decision, Reply, Token
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerMember,
    MemberState,
    Owned,
)
from penstock.groups.departures import Departures
from penstock.groups.draft import Draft
from penstock.groups.membership import Membership, owns_exactly, owns_no_more_than
from penstock.groups.migration import Migration
from penstock.groups.modern_group import unreleased
from penstock.groups.records import classic_group_record, current_record, epoch_record, target_epoch_record
from penstock.groups.state import SHARE, STREAMS, GroupState
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

# From this version on, members choose their ids.
MEMBER_ID_REQUIRED_SINCE = 1


class ConsumerHeartbeat:
    def __init__(self, state: GroupState, membership: Membership, departures: Departures, migration: Migration) -> None:
        self._state = state
        self._membership = membership
        self._departures = departures
        self._migration = migration

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        out = Decision([], [])
        try:
            self._check(request, caller.api_version)
            if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                response = self._leave(request, now_ms, out)
            else:
                response = self._beat(request, caller, now_ms, out)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            return Decision([], [Reply(token, response)])
        out.replies.append(Reply(token, response))
        return out

    # -- request -------------------------------------------------------------------------------------------------------

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        epoch = request.member_epoch
        if not request.member_id and (version >= MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEAVING):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
        for name, value in (("Group", request.group_id), ("Instance", request.instance_id), ("Rack", request.rack_id)):
            if value is not None and not value.strip():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}Id can't be empty.")
        if epoch == JOINING:
            if request.rebalance_timeout_ms == -1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                )
        elif epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
        elif epoch < LEAVING_FOR_A_WHILE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
        assignors = self._state.settings.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(assignors)}.",
            )

    # -- join and heartbeat --------------------------------------------------------------------------------------------

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._state.consumer.get(request.group_id)
        if request.member_epoch != JOINING:
            if group is None:
                raise self._not_found(request.group_id)
            member = self._known(group, request)
            wished = _wished(member, request, caller)
            # A member of the previous epoch may list partitions that are older than its last assignment: the list
            # proves nothing about what it has given up.
            is_behind = request.member_epoch != member.epoch
            owned = None if is_behind else request.topic_partitions
            # The previous answer was lost, possibly with an assignment in it.
            had = None if is_behind else member.assigned
            if wished == member and not self._membership.is_due(group, now_ms):
                moved = self._membership.follow(group, member, owned)
                if moved != member:
                    out.records.append(current_record(group.group_id, moved.member_id, moved.possessions()))
                self._membership.watch(group.group_id, member, moved, now_ms)
                return self._response(request, had, moved)
            draft = Draft.of(group)
            moved = self._membership.update(draft, member, wished, owned, now_ms, caller.may_describe)
            out.records.extend(draft.records)
            self._membership.watch(group.group_id, member, moved, now_ms)
            return self._response(request, had, moved)
        return self._join(group, request, caller, now_ms, out)

    def _join(
        self,
        group: ConsumerGroup | None,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        now_ms: int,
        out: Decision,
    ) -> ConsumerGroupHeartbeatResponse:
        if self._state.kind_of(request.group_id) in (SHARE, STREAMS):
            raise self._not_found(request.group_id)
        upgraded: ClassicGroup | None = None
        if group is not None:
            draft = Draft.of(group)
        else:
            draft = Draft(ConsumerGroup(request.group_id))
            classic = self._state.classic.get(request.group_id)
            if classic is not None:
                draft.records.append(classic_group_record(request.group_id, None))
                if not classic.is_empty:
                    self._migration.upgrade(classic, draft)
                    upgraded = classic
                elif classic.generation:
                    # Group epochs continue where generations ended.
                    draft.emit(epoch_record(request.group_id, classic.generation, 0))
                    draft.emit(target_epoch_record(request.group_id, classic.generation, 0))
        member_id = request.member_id or self._state.new_member_id()
        draft.group.check_room_for(self._state.settings.consumer_max_size, "consumer", member_id, request.instance_id)
        member, replaced = self._admit(draft, member_id, request.instance_id)
        wished = _wished(member, request, caller)
        # A known member that joins has given up everything, unless this is an old request that the network repeated
        # while the member goes on. It confirms what it must give up with its next heartbeat.
        is_certain = replaced is not None or member.epoch == 0 or member.state is MemberState.UNKNOWN
        owned: list[TopicPartitions] | None = [] if is_certain else None
        moved = self._membership.update(draft, member, wished, owned, now_ms, caller.may_describe)
        # Nothing below can refuse the request.
        out.records.extend(draft.records)
        if upgraded is not None:
            self._migration.upgraded(upgraded, draft.group, now_ms, out)
        if replaced is not None:
            self._membership.forget(request.group_id, replaced)
        self._membership.watch(request.group_id, None, moved, now_ms)
        return self._response(request, None, moved)

    def _admit(self, draft: Draft, member_id: str, instance_id: str | None) -> tuple[ConsumerMember, str | None]:
        """Return the member that joins, and the id of the static member it replaces."""
        known = draft.group.members.get(member_id)
        if instance_id is not None:
            existing = draft.group.static_member(instance_id)
            if existing is not None and (existing.member_id != member_id or existing.epoch == LEAVING_FOR_A_WHILE):
                if existing.classic is None and existing.epoch != LEAVING_FOR_A_WHILE:
                    raise unreleased(member_id, instance_id, existing.member_id)
                return self._membership.replace(draft, existing, member_id), existing.member_id
        return known or ConsumerMember(member_id), None

    def _not_found(self, group_id: str) -> KafkaError:
        if group_id in self._state.classic:
            # It became classic when the last member of this protocol fell silent, and that member is back. For Apache
            # Kafka the group is not found, upon which clients give up for good; a member that is unknown joins again.
            return KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {group_id} is a classic group. The member must abandon all its partitions and rejoin.",
            )
        if self._state.kind_of(group_id) is not None:
            return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")

    def _known(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        """Return the member; raise KafkaError if its id, instance id or epoch is wrong."""
        member = group.identified(request.member_id, request.instance_id)
        epoch = request.member_epoch
        if epoch == member.epoch:
            return member
        if (
            epoch < member.epoch
            and epoch == member.previous_epoch
            and owns_no_more_than(request.topic_partitions, member)
        ):
            return member
        relation = "greater" if epoch > member.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, had: Owned | None, member: ConsumerMember
    ) -> ConsumerGroupHeartbeatResponse:
        """Make the response. `had`: the assignment the member last received; None if it must be sent in any case."""
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        assignment = None
        # An answer may also be lost within an epoch: then the member lists other partitions than it was assigned.
        is_mistaken = request.topic_partitions is not None and not owns_exactly(request.topic_partitions, member)
        if is_full or is_mistaken or had != member.assigned:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted(member.assigned)
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._state.settings_of(request.group_id).consumer_heartbeat_interval_ms,
            assignment=assignment,
        )

    # -- leave ---------------------------------------------------------------------------------------------------------

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: Decision
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._state.consumer.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        member = group.identified(request.member_id, request.instance_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            self._departures.leave_for_a_while(group, member, out)
        else:
            self._departures.fence(group, [member], now_ms, out)
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def _wished(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """Apply the request's fields to the member.

    A member that used the classic protocol now uses the consumer protocol.
    """
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if (
        names is None
        and regex is None
        and timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and member.classic is None
        and member.client_id == caller.client_id
        and member.client_host == caller.client_host
    ):
        return member
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex or None,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )
