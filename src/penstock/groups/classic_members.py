"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

There is no barrier at which all members wait for each other. Such a member reconciles like any other, in more steps:
its generation is its epoch; a heartbeat tells it to join again when it has partitions to give up or to get; JoinGroup
lists the partitions it owns and is answered at once; SyncGroup returns its assignment. It must do both in time.
"""

from __future__ import annotations

from penstock.coordinator.decision import Caller, Decision, Reply, Token
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ClassicFacet, ConsumerMember, MemberState
from penstock.groups.departures import Departures
from penstock.groups.draft import Draft
from penstock.groups.embedded import CONSUMER, by_topic_id, read_subscription, write_assignment
from penstock.groups.join_group import MEMBER_ID_REQUIRED_SINCE, protocols_of, rebalance_timeout_of
from penstock.groups.membership import Membership
from penstock.groups.migration import Migration, version_of
from penstock.groups.rebalance import join_error
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.consumer_group_heartbeat import TopicPartitions
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import MemberIdentity, MemberResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# Subscriptions state their generation from this version on; -1 stands for none.
GENERATION_SINCE = 2
NO_GENERATION = -1
# A client with this assignor states its generation from its second join on, and keeps partitions while it joins.
COOPERATIVE = "cooperative-sticky"


class ClassicMembers:
    def __init__(self, state: GroupState, membership: Membership, departures: Departures, migration: Migration) -> None:
        self._state = state
        self._membership = membership
        self._departures = departures
        self._migration = migration

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        try:
            return self._join(group, request, token, caller, now_ms)
        except KafkaError as error:
            return Decision([], [Reply(token, join_error(error.code, request.member_id))])

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        if self._state.settings.migration_policy == "disabled":
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or self._state.new_member_id()
        limit = self._state.settings.consumer_max_size
        group.check_room_for(limit, "consumer", member_id, request.group_instance_id)
        subscription = self._check_protocols(group, request)
        is_dynamic = request.group_instance_id is None
        if not request.member_id and is_dynamic and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
            return Decision([], [Reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))])
        if request.member_id and not self._is_rightful(group, member_id, subscription):
            # The member was removed and does not know it: it no longer owns the partitions it lists.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        draft = Draft.of(group)
        member, replaced = self._admit(draft, request, member_id)
        wished = member._replace(
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            assignor=None,
            topics=frozenset(subscription.topics),
            regex=None,
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=ClassicFacet(request.session_timeout_ms, protocols_of(request)),
        )
        owned: list[TopicPartitions] | None = self._owned(subscription)
        if replaced is None and _is_of_another_generation(request, subscription, member.epoch):
            # It may have been assigned more since it wrote this. It will join again, and know then.
            owned = None
        moved = self._membership.update(draft, member, wished, owned, now_ms, caller.may_describe)
        out = Decision([], [])
        if replaced is not None:
            self._membership.forget(group.group_id, replaced)
        if self._migration.can_downgrade(draft.group):
            # It replaced the last member that used the consumer protocol.
            classic = self._migration.downgrade(draft, now_ms)
            out.records.extend(draft.records)
            classic.await_join(classic.members[moved.member_id], token)
            self._migration.downgraded(classic, now_ms, out)
            return out
        out.records.extend(draft.records)
        self._membership.watch(group.group_id, member, moved, now_ms)
        timers = self._state.timers
        timers.cancel(TimerKey("rejoin", group.group_id, moved.member_id))
        timers.set(TimerKey("resync", group.group_id, moved.member_id), now_ms + moved.rebalance_timeout_ms)
        response = JoinGroupResponse(
            member_id=moved.member_id,
            generation_id=moved.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
        )
        out.replies.append(Reply(token, response))
        return out

    def _check_protocols(self, group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
        """Check for a protocol common to all classic members, since the group may become classic again."""
        if request.protocol_type != CONSUMER or not request.protocols:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        common = {protocol.name for protocol in request.protocols}
        for member in group.members.values():
            if member.classic is not None:
                common.intersection_update(protocol.name for protocol in member.classic.protocols)
        if not common:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return read_subscription(bytes(request.protocols[0].metadata))
        except MalformedMessage:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None

    def _admit(self, draft: Draft, request: JoinGroupRequest, member_id: str) -> tuple[ConsumerMember, str | None]:
        """Return the member that joins, and the id of the static member it replaces."""
        group, instance_id = draft.group, request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id), None
        if request.member_id:
            return group.identified(member_id, instance_id), None
        existing = group.static_member(instance_id)
        if existing is None:
            return ConsumerMember(member_id), None
        return self._membership.replace(draft, existing, member_id), existing.member_id

    def _is_rightful(self, group: ConsumerGroup, member_id: str, subscription: ConsumerProtocolSubscription) -> bool:
        return all(
            group.owner_of(part.topic_id, partition) == member_id
            for part in self._owned(subscription)
            for partition in part.partitions
        )

    def _owned(self, subscription: ConsumerProtocolSubscription) -> list[TopicPartitions]:
        """Return the partitions a member owns. One that rebalances eagerly has given up everything and owns nothing."""
        parts = by_topic_id(
            ((part.topic, part.partitions) for part in subscription.owned_partitions), self._state.topics
        )
        return [
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in parts.items()
        ]

    # -- SyncGroup -----------------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> SyncGroupResponse:
        """Answer SyncGroup; raise KafkaError if the member must do something else first."""
        member, classic = self._known(group, request.member_id, request.group_instance_id, request.generation_id)
        protocol = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol.name):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(group, member, now_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._state.timers.cancel(TimerKey("resync", group.group_id, member.member_id))
        self._membership.watch(group.group_id, member, member, now_ms)
        assignment = write_assignment(member.assigned, self._state.topics, version_of(protocol.metadata))
        return SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )

    # -- Heartbeat -----------------------------------------------------------------------------------------------------

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        member, _ = self._known(group, request.member_id, request.group_instance_id, request.generation_id)
        self._membership.watch(group.group_id, member, member, now_ms)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits(group, member))
        ):
            self._expect_rejoin(group, member, now_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _waits(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether another member still has a partition of this member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {})
            and group.owner_of(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in group.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def _expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        key = TimerKey("rejoin", group.group_id, member.member_id)
        self._state.timers.set_unless_running(key, now_ms + member.rebalance_timeout_ms)

    def _known(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicFacet]:
        member = group.identified(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic

    # -- LeaveGroup ----------------------------------------------------------------------------------------------------

    def leave(
        self, group: ConsumerGroup, identities: list[MemberIdentity], now_ms: int, out: Decision
    ) -> list[MemberResponse]:
        """Answer LeaveGroup. An administrator may remove members of either protocol."""
        responses = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in identities:
            error = ErrorCode.NONE
            try:
                member = self._leaving(group, identity)
                leaving[member.member_id] = member
            except KafkaError as refusal:
                error = refusal.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
            )
        self._departures.fence(group, list(leaving.values()), now_ms, out)
        return responses

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        if identity.group_instance_id is None:
            return group.member(identity.member_id)
        if identity.member_id:
            return group.identified(identity.member_id, identity.group_instance_id)
        member = group.static_member(identity.group_instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member


def _is_of_another_generation(
    request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, epoch: int
) -> bool:
    """Whether the member may own something else than this subscription says.

    librdkafka's eager assignors (range, roundrobin) never state a generation: such a member has given up everything
    before it joins, and would never get another chance to say so. A cooperative member that states none has not
    received its first assignment yet, or the request is an old one.
    """
    protocol = request.protocols[0]
    if version_of(bytes(protocol.metadata)) < GENERATION_SINCE or subscription.generation_id == epoch:
        return False
    return subscription.generation_id != NO_GENERATION or protocol.name == COOPERATIVE
