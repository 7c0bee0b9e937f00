"""The coordinator of the groups in one partition of `__consumer_offsets`: the interface that its runtime calls.

Input: records through `replay` (during loading, and right after every append), requests through one method per API,
time through `tick`. Output: decisions. The runtime calls `loaded` once, after it has replayed the log: from then on the
groups are live. The laws are those of `penstock.coordinator.decision`.

Requests that name several groups must name only groups of this partition; the caller splits them and merges the
answers. The runtime keeps `topics` current and reports deleted topics (`topics_deleted`). It also filters topics and
groups that the caller may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from penstock.coordinator.decision import Caller, Decision, Reply, Token
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.classic_members import ClassicMembers
from penstock.groups.classic_requests import ClassicRequests
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_heartbeat import ConsumerHeartbeat
from penstock.groups.consumer_member import ConsumerMember, MemberState, Target
from penstock.groups.departures import Departures
from penstock.groups.descriptions import Descriptions
from penstock.groups.join_group import JoinGroup
from penstock.groups.membership import Membership
from penstock.groups.migration import Migration
from penstock.groups.offset_commit import OffsetCommits
from penstock.groups.offset_deletion import OffsetDeletion
from penstock.groups.offset_fetch import OffsetFetches
from penstock.groups.rebalance import Rebalance, join_error, sync_error
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.share_group import ShareMember
from penstock.groups.share_heartbeat import SHARE_SESSION, ShareHeartbeat
from penstock.groups.share_offsets import ShareOffsets
from penstock.groups.state import GroupState
from penstock.groups.streams_description import describe_streams
from penstock.groups.streams_heartbeat import StreamsHeartbeat
from penstock.groups.streams_member import StreamsMember
from penstock.groups.streams_membership import DELAY, REVOKE, SESSION
from penstock.groups.subscriptions import Subscriptions
from penstock.groups.timers import TimerKey
from penstock.groups.topics import DeletedTopic, TopicsView
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from penstock.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

LEAVE_IN_BATCHES_SINCE = 3
# Timers handled in one tick, with their consequences: some milliseconds of work, and a batch that is not too large.
_DEADLINES_PER_TICK: Final = 100
_CONSEQUENCES_PER_TICK: Final = 500
_EXPIRY: Final = TimerKey("expiry")
_DELETED_TOPICS: Final = TimerKey("deleted topics")


class _Overdue(NamedTuple):
    """The members whose timers have ended, by group."""

    consumers: dict[str, dict[str, ConsumerMember]]
    shares: dict[str, list[ShareMember]]
    streams: dict[str, dict[str, StreamsMember]]


@owned_by_loop()
class GroupShard:
    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        settings_of: Callable[[str], GroupCoordinatorSettings],
        new_id: Callable[[], bytes],
        topics: TopicsView,
    ) -> None:
        """`settings_of` returns the current settings of a group; `new_id` makes 16 random bytes for member ids."""
        self.state = state = GroupState(settings, settings_of, new_id)
        state.topics = topics
        self._rebalance = Rebalance(state)
        self._join_group = JoinGroup(state, self._rebalance)
        self._classic = ClassicRequests(state, self._rebalance)
        self._migration = Migration(state, self._rebalance)
        self._subscriptions = Subscriptions(state)
        self._membership = Membership(state, self._subscriptions)
        self._departures = Departures(state, self._subscriptions, self._membership, self._migration)
        self._consumer = ConsumerHeartbeat(state, self._membership, self._departures, self._migration)
        self._classic_members = ClassicMembers(state, self._membership, self._departures, self._migration)
        self._commits = OffsetCommits(state)
        self._fetches = OffsetFetches(state)
        self._deletion = OffsetDeletion(state)
        self._descriptions = Descriptions(state, self._deletion)
        self.share_members = ShareHeartbeat(state)
        self.share_offsets = ShareOffsets(state)
        self._streams = StreamsHeartbeat(state)

    @property
    def topics(self) -> TopicsView:
        return self.state.topics

    @topics.setter
    def topics(self, topics: TopicsView) -> None:
        self.state.topics = topics

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, *, producer_id: int = -1, now_ms: int = 0) -> None:
        """Replay a record.

        `producer_id`: of the transaction that the record is part of; it stays pending until that ends.
        """
        self.state.replay(key, value, producer_id, now_ms)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.state.offsets.end_transaction(producer_id, committed)

    def loaded(self, now_ms: int) -> Decision:
        """Start the groups. Sessions begin anew, because no member could send heartbeats without a coordinator."""
        out = Decision([], [])
        self.state.begin(now_ms)
        for group in self.state.classic.values():
            for member in group.members.values():
                self._rebalance.restart_session(group, member, now_ms)
            if len(group.members) > self.state.settings.max_size:
                self._rebalance.begin(group, now_ms, out)
        for consumer in self.state.consumer.values():
            for entry in consumer.members.values():
                self._membership.watch(consumer.group_id, None, entry, now_ms)
        self.share_members.start_sessions(now_ms)
        self._streams.membership.start_sessions(now_ms)
        out.records.extend(self.share_offsets.topics_deleted(self.share_offsets.gone_topics()))
        self.state.timers.set(_EXPIRY, now_ms + self.state.settings.offsets_retention_check_interval_ms)
        return out

    def resigned(self) -> list[Reply]:
        """Answer all waiting members with an error: another coordinator has the partition."""
        replies = []
        for group in self.state.classic.values():
            for member in group.waiting():
                token = group.take_join_token(member)
                if token is not None:
                    replies.append(Reply(token, join_error(ErrorCode.NOT_COORDINATOR, member.member_id)))
                token, member.sync_token = member.sync_token, None
                if token is not None:
                    replies.append(Reply(token, sync_error(ErrorCode.NOT_COORDINATOR)))
        return replies

    def topics_deleted(self, deleted: Collection[DeletedTopic], now_ms: int) -> Decision:
        self._deletion.topics_deleted(deleted)
        out = Decision([], [])
        out.records.extend(self.share_offsets.topics_deleted({topic.topic_id for topic in deleted}))
        self._delete_of_topics(now_ms, out)
        return out

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> int | None:
        """When `tick` is due. It may then find that nothing is due yet."""
        return self.state.timers.deadline_ms

    def tick(self, now_ms: int) -> Decision:
        """Handle some of the timers that are due. If more are due, `deadline` is already past; more ticks follow."""
        out = Decision([], [])
        overdue = _Overdue({}, {}, {})
        for _ in range(_DEADLINES_PER_TICK):
            if len(out.records) + len(out.replies) > _CONSEQUENCES_PER_TICK:
                break
            key = self.state.timers.pop(now_ms)
            if key is None:
                break
            if key == _EXPIRY:
                self._search_expired(now_ms, out)
                # The timer may have changed any group: other timers can see that only after the records are replayed.
                break
            if key == _DELETED_TOPICS:
                self._delete_of_topics(now_ms, out)
                break
            if key.kind == DELAY:
                self._streams.membership.delay_ended(key.group_id, now_ms, out)
                break
            self._due(key, overdue, now_ms, out)
        for group_id, members in overdue.consumers.items():
            self._departures.fence(self.state.consumer[group_id], list(members.values()), now_ms, out)
        for group_id, shared in overdue.shares.items():
            self.share_members.fence(group_id, shared, out)
        for group_id, threads in overdue.streams.items():
            self._streams.membership.fence(self.state.streams[group_id], threads.values(), out)
        return out

    def _due(self, key: TimerKey, overdue: _Overdue, now_ms: int, out: Decision) -> None:
        """Handle the timer of a member, or of a classic group."""
        if key.kind == SHARE_SESSION:
            overdue.shares.setdefault(key.group_id, []).extend(self.share_members.found(key.group_id, key.member_id))
            return
        if key.kind in (SESSION, REVOKE):
            thread = self._streams.membership.overdue(key)
            if thread is not None:
                overdue.streams.setdefault(key.group_id, {})[key.member_id] = thread
            return
        group = self._consumers(key.group_id)
        if isinstance(group, ClassicGroup):
            self._classic_due(group, key, now_ms, out)
        elif group is not None:
            member = group.members.get(key.member_id)
            if member is not None and _is_overdue(key, member):
                overdue.consumers.setdefault(key.group_id, {})[key.member_id] = member

    def _consumers(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """Return a group that members of the classic protocol may be in."""
        return self.state.consumer.get(group_id) or self.state.classic.get(group_id)

    def _classic_due(self, group: ClassicGroup, key: TimerKey, now_ms: int, out: Decision) -> None:
        if key.kind == "session":
            self._rebalance.session_expired(group, key.member_id, now_ms, out)
        elif key.kind == "join":
            self._rebalance.join_expired(group, now_ms, out)
        elif key.kind == "sync":
            self._rebalance.sync_expired(group, now_ms, out)

    def _search_expired(self, now_ms: int, out: Decision) -> None:
        if not self._deletion.is_searching:
            self._deletion.begin_search()
        is_done = self._deletion.search(now_ms, out)
        interval_ms = self.state.settings.offsets_retention_check_interval_ms
        self.state.timers.set(_EXPIRY, now_ms + interval_ms if is_done else now_ms)

    def _delete_of_topics(self, now_ms: int, out: Decision) -> None:
        if not self._deletion.delete_of_topics(out.records):
            self.state.timers.set(_DELETED_TOPICS, now_ms)

    # -- membership, classic -------------------------------------------------------------------------------------------

    def join_group(self, request: JoinGroupRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        settings = self.state.settings
        streams = self.state.streams.get(request.group_id)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif request.group_id in self.state.shares or (streams is not None and not streams.is_empty):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            return Decision([], [Reply(token, join_error(error, request.member_id))])
        group = self.state.consumer.get(request.group_id)
        if group is not None and group.members:
            return self._classic_members.join(group, request, token, caller, now_ms)
        out = Decision([], [])
        empty = group or streams
        self._join_group.join(request, token, caller, now_ms, out, generation=empty.epoch if empty is not None else 0)
        if empty is not None and request.group_id in self.state.classic:
            # This was a consumer or streams group and has no members: it becomes a classic group.
            out.records[:0] = empty.tombstones()
        return out

    def sync_group(self, request: SyncGroupRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        if not request.group_id:
            return Decision([], [Reply(token, sync_error(ErrorCode.INVALID_GROUP_ID))])
        group = self._consumers(request.group_id)
        out = Decision([], [])
        if isinstance(group, ClassicGroup):
            self._classic.sync(group, request, token, now_ms, out)
            return out
        try:
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            response = self._classic_members.sync(group, request, now_ms)
        except KafkaError as error:
            response = sync_error(error.code)
        out.replies.append(Reply(token, response))
        return out

    def heartbeat(self, request: HeartbeatRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        group = self._consumers(request.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif isinstance(group, ClassicGroup):
            error = self._classic.heartbeat(group, request, now_ms)
        elif group is not None:
            try:
                error = self._classic_members.heartbeat(group, request, now_ms)
            except KafkaError as refusal:
                error = refusal.code
        return Decision([], [Reply(token, HeartbeatResponse(error_code=error))])

    def leave_group(self, request: LeaveGroupRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        group = self._consumers(request.group_id)
        response = LeaveGroupResponse()
        out = Decision([], [])
        identities = request.members
        if caller.api_version < LEAVE_IN_BATCHES_SINCE:
            identities = [MemberIdentity(member_id=request.member_id)]
        if not request.group_id:
            response.error_code = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            response.members = [
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for each in identities
            ]
        elif isinstance(group, ClassicGroup):
            response.members = self._classic.leave(group, identities, now_ms, out)
        else:
            response.members = self._classic_members.leave(group, identities, now_ms, out)
        if caller.api_version < LEAVE_IN_BATCHES_SINCE and response.members:
            response.error_code = response.members[0].error_code
            response.members = []
        out.replies.append(Reply(token, response))
        return out

    # -- membership, consumer ------------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        return self._consumer.heartbeat(request, token, caller, now_ms)

    # -- share groups --------------------------------------------------------------------------------------------------

    def share_group_heartbeat(
        self, request: ShareGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        """Answer with a `HeartbeatReply`. The runtime reports how its initialization ended (`share_initialized`)."""
        return self.share_members.heartbeat(request, token, caller, now_ms)

    def share_initialized(self, group_id: str, partitions: Target, succeeded: bool) -> Decision:
        report = self.share_members.initialized if succeeded else self.share_members.not_initialized
        return Decision(report(group_id, partitions), [])

    def share_group_describe(
        self, request: ShareGroupDescribeRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        groups = [self._descriptions.describe_share(group_id) for group_id in request.group_ids]
        return Decision([], [Reply(token, ShareGroupDescribeResponse(groups=groups))])

    # -- streams groups ------------------------------------------------------------------------------------------------

    def streams_group_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        """Answer with a `StreamsReply`."""
        return self._streams.heartbeat(request, token, caller, now_ms)

    def streams_group_describe(
        self, request: StreamsGroupDescribeRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        groups = [describe_streams(self.state, group_id) for group_id in request.group_ids]
        return Decision([], [Reply(token, StreamsGroupDescribeResponse(groups=groups))])

    # -- offsets -------------------------------------------------------------------------------------------------------

    def offset_commit(self, request: OffsetCommitRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        return self._commits.commit(request, token, caller, now_ms)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        return self._commits.commit_in_transaction(request, token, caller, now_ms)

    def offset_fetch(self, request: OffsetFetchRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        return Decision([], [Reply(token, self._fetches.fetch(request, caller))])

    def offset_delete(self, request: OffsetDeleteRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        out = Decision([], [])
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            response = self._deletion.delete(request, out.records)
        except KafkaError as error:
            response = OffsetDeleteResponse(error_code=error.code)
        out.replies.append(Reply(token, response))
        return out

    # -- groups --------------------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        return Decision([], [Reply(token, ListGroupsResponse(groups=self._descriptions.list_groups(request)))])

    def describe_groups(self, request: DescribeGroupsRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        groups = [self._descriptions.describe(group_id, caller.api_version) for group_id in request.groups]
        return Decision([], [Reply(token, DescribeGroupsResponse(groups=groups))])

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        groups = [self._descriptions.describe_consumer(group_id) for group_id in request.group_ids]
        return Decision([], [Reply(token, ConsumerGroupDescribeResponse(groups=groups))])

    def delete_groups(self, request: DeleteGroupsRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        out = Decision([], [])
        results = [self._descriptions.delete(group_id, out.records) for group_id in dict.fromkeys(request.groups_names)]
        out.replies.append(Reply(token, DeleteGroupsResponse(results=results)))
        return out


def _is_overdue(key: TimerKey, member: ConsumerMember) -> bool:
    """Whether a timer still applies: its reason may be gone although it was not cancelled."""
    if key.kind == "revoke":
        return member.state is MemberState.UNREVOKED_PARTITIONS
    return key.kind == "session" or member.classic is not None
