"""Groups: list, describe, show lag, reset offsets, delete.

Requests about a group go to its coordinator, and are repeated at the next one while the group is moving. Brokers
without the consumer protocol have classic groups only, so a group whose type a broker does not report is classic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn, Protocol

from penstock.client.errors import ClientError, UnsupportedApi, raise_for
from penstock.client.wire.admin.group_lag import PartitionLag, lag_of, with_leaders
from penstock.client.wire.admin.group_members import (
    CLASSIC,
    GroupDescription,
    GroupMember,
    classic_group,
    consumer_group,
    streams_group,
)
from penstock.client.wire.admin.group_offsets import CommittedOffset, GroupOffsets
from penstock.client.wire.admin.group_reset import Bounds, OffsetReset, ResetTarget, ShiftBy, plan, time_of
from penstock.client.wire.admin.topics import EARLIEST, LATEST, Topics
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

__all__ = [
    "CommittedOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Groups",
    "OffsetReset",
    "PartitionLag",
    "ResetTarget",
    "ShiftBy",
]

_STATES_SINCE = 4
_TYPES_SINCE = 5
_MANY_LEAVE_SINCE = 3
_REASON = "removed by an administrator"
_NOT_OF_THIS_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    type: str
    state: str | None  # None from brokers that do not report it
    protocol_type: str
    coordinator: int


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topics = Topics(cluster)
        self._offsets = GroupOffsets(cluster)

    def list(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """List all groups, or those in one of these states and of one of these types."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        found = self._cluster.patiently(lambda: self._list(sorted(wanted_states), sorted(wanted_types)))
        return [
            group
            for group in sorted(found, key=lambda group: group.group_id)
            if (not wanted_states or (group.state or "").lower() in wanted_states)
            and (not wanted_types or group.type in wanted_types)
        ]

    def describe(self, group_ids: Iterable[str]) -> Descriptions:
        """Describe state and members; KafkaError for a group that does not exist."""
        wanted = sorted(set(group_ids))
        return self._cluster.patiently(lambda: self._describe(wanted))

    def find(self, group_id: str) -> GroupDescription | None:
        """As `describe`, but return None for a group that does not exist."""
        try:
            return self.describe([group_id])[0]
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return None
            raise

    def offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the group, in any topic."""
        return self._cluster.patiently(lambda: self._offsets.fetch(group_id))

    def lag(self, group_id: str) -> Lags:
        """Return the lag of every partition that a member has or that the group has committed in."""
        (group,) = self.describe([group_id])
        committed = self.offsets(group_id)
        ends = self._topics.offsets(with_leaders(self._cluster, {*group.owners(), *committed}), LATEST)
        return lag_of(group, committed, ends)

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set committed offsets. Refused while the group has members: they would continue from their own positions."""
        committing = {
            partition: CommittedOffset(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        try:
            self._cluster.patiently(lambda: self._offsets.commit(group_id, committing))
        except KafkaError as error:
            # The broker refuses a non-member while the group has members.
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._refuse_for_members(group_id, f"cannot set offsets of group {group_id!r}", error)
            raise

    def reset(
        self,
        group_id: str,
        to: ResetTarget,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> Resets:
        """Move a group without members to other offsets; return the result for each partition.

        In these partitions, or in all that the group has committed in. A group that does not exist is created.
        """
        committed = self.offsets(group_id)
        wanted = list(committed if partitions is None else partitions)
        if not wanted:
            raise ClientError(f"group {group_id!r} has committed nothing: name the topics to set its offsets in")
        resets = plan(to, wanted, committed, self.bounds(wanted, time_of(to, datetime.now(UTC))))
        if not dry_run:
            self.alter_offsets(group_id, {TopicPartition(each.topic, each.partition): each.new for each in resets})
        return resets

    def delete(self, group_ids: Iterable[str]) -> None:
        """Delete groups with their committed offsets. Refused, for each of them, while it has members."""
        wanted = sorted(set(group_ids))
        self._cluster.patiently(lambda: self._delete(wanted))

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets in partitions of topics to which no member subscribes."""
        wanted = list(partitions)
        try:
            self._cluster.patiently(lambda: self._offsets.delete(group_id, wanted))
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                self._refuse_for_members(group_id, f"cannot delete offsets of group {group_id!r}", error)
            raise

    def remove_members(
        self,
        group_id: str,
        *,
        members: Iterable[str] = (),
        instances: Iterable[str] = (),
        reason: str = _REASON,
    ) -> None:
        """Remove members by their ids, static ones by their instance ids, or else all.

        Members that are alive join again.
        """
        leaving = [MemberIdentity(member_id=member, reason=reason) for member in members]
        leaving += [MemberIdentity(group_instance_id=instance, reason=reason) for instance in instances]
        if not leaving:
            (group,) = self.describe([group_id])
            leaving = [MemberIdentity(member_id=member.member_id, reason=reason) for member in group.members]
        self._cluster.patiently(lambda: self._leave(group_id, leaving))

    def _list(self, states: Texts, types: Texts) -> Listings:
        found: dict[str, GroupListing] = {}
        for broker_id in self._cluster.broker_ids():
            version = self._cluster.version(ApiKey.LIST_GROUPS, broker_id)
            if states and version < _STATES_SINCE:
                raise UnsupportedApi(f"broker {broker_id} does not tell the state of groups in a list")
            request = ListGroupsRequest(states_filter=states, types_filter=types if version >= _TYPES_SINCE else [])
            response = self._cluster.request_broker(broker_id, request, ListGroupsResponse)
            raise_for(response.error_code, None, f"groups of broker {broker_id}")
            for group in response.groups:
                found[group.group_id] = GroupListing(
                    group_id=group.group_id,
                    type=group.group_type.lower() or CLASSIC,
                    state=group.group_state or None,
                    protocol_type=group.protocol_type,
                    coordinator=broker_id,
                )
        return list(found.values())

    def _describe(self, group_ids: Texts) -> Descriptions:
        described: dict[str, GroupDescription] = {}
        for coordinator, asked in self._cluster.coordinators(CoordinatorType.GROUP, group_ids).items():
            if self._cluster.supports(ApiKey.CONSUMER_GROUP_DESCRIBE, coordinator):
                described |= self._describe_consumer(coordinator, asked)
            left = [each for each in asked if each not in described]
            if left and self._cluster.supports(ApiKey.STREAMS_GROUP_DESCRIBE, coordinator):
                described |= self._describe_streams(coordinator, left)
            described |= self._describe_classic(coordinator, [each for each in left if each not in described])
        return [described[group_id] for group_id in group_ids]

    def _describe_consumer(self, coordinator: int, group_ids: Texts) -> dict[str, GroupDescription]:
        request = ConsumerGroupDescribeRequest(group_ids=group_ids)
        response = self._cluster.request_broker(coordinator, request, ConsumerGroupDescribeResponse)
        return {group.group_id: consumer_group(group, coordinator) for group in response.groups if _is_found(group)}

    def _describe_streams(self, coordinator: int, group_ids: Texts) -> dict[str, GroupDescription]:
        request = StreamsGroupDescribeRequest(group_ids=group_ids)
        response = self._cluster.request_broker(coordinator, request, StreamsGroupDescribeResponse)
        return {group.group_id: streams_group(group, coordinator) for group in response.groups if _is_found(group)}

    def _describe_classic(self, coordinator: int, group_ids: Texts) -> dict[str, GroupDescription]:
        if not group_ids:
            return {}
        described = {}
        request = DescribeGroupsRequest(groups=group_ids)
        for group in self._cluster.request_broker(coordinator, request, DescribeGroupsResponse).groups:
            # Older brokers describe a group that does not exist as Dead.
            code = group.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == "Dead" else ErrorCode.NONE)
            if code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group.group_id!r}")
            raise_for(code, group.error_message, f"group {group.group_id!r}")
            described[group.group_id] = classic_group(group, coordinator)
        return described

    def bounds(self, partitions: Iterable[TopicPartition], timestamp: int | None) -> dict[TopicPartition, Bounds]:
        """Return the range of each partition, and the offset at a time in milliseconds, if one is given."""
        wanted = list(partitions)
        starts = self._topics.offsets(wanted, EARLIEST)
        ends = self._topics.offsets(wanted, LATEST)
        bounds = {partition: Bounds(starts[partition], ends[partition]) for partition in wanted}
        if timestamp is not None:
            for partition, offset in self._topics.offsets(wanted, timestamp).items():
                bounds[partition] = dataclasses.replace(bounds[partition], at_time=offset if offset >= 0 else None)
        return bounds

    def _delete(self, group_ids: Texts) -> None:
        for coordinator, asked in self._cluster.coordinators(CoordinatorType.GROUP, group_ids).items():
            request = DeleteGroupsRequest(groups_names=asked)
            for result in self._cluster.request_broker(coordinator, request, DeleteGroupsResponse).results:
                about = f"cannot delete group {result.group_id!r}"
                try:
                    raise_for(result.error_code, result.error_message, about)
                except KafkaError as error:
                    if error.code is ErrorCode.NON_EMPTY_GROUP:
                        self._refuse_for_members(result.group_id, about, error)
                    raise

    def _leave(self, group_id: str, leaving: Identities) -> None:
        ((coordinator, _),) = self._cluster.coordinators(CoordinatorType.GROUP, [group_id]).items()
        if self._cluster.version(ApiKey.LEAVE_GROUP, coordinator) >= _MANY_LEAVE_SINCE:
            requests = [LeaveGroupRequest(group_id=group_id, members=leaving)]
        elif any(each.group_instance_id is not None for each in leaving):
            raise UnsupportedApi(f"broker {coordinator} knows no static members")
        else:
            requests = [LeaveGroupRequest(group_id=group_id, member_id=each.member_id) for each in leaving]
        for request in requests:
            response = self._cluster.request_broker(coordinator, request, LeaveGroupResponse)
            raise_for(response.error_code, None, f"cannot remove members of group {group_id!r}")
            for result in response.members:
                who = result.group_instance_id or result.member_id
                raise_for(result.error_code, None, f"cannot remove {who!r} of group {group_id!r}")

    def _refuse_for_members(self, group_id: str, about: str, cause: KafkaError) -> NoReturn:
        """Name the members in the error, unless the last one has just left."""
        group = self.find(group_id)
        if group is None or not group.members:
            raise cause
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP if cause.code is ErrorCode.UNKNOWN_MEMBER_ID else cause.code,
            f"{about} while it has members; stop them first: {group.who()}",
        ) from cause


class _Described(Protocol):
    error_code: int
    error_message: str | None
    group_id: str


def _is_found(group: _Described) -> bool:
    """Whether it is a group of this protocol; raise KafkaError if the response does not say."""
    if group.error_code in _NOT_OF_THIS_PROTOCOL:
        return False
    raise_for(group.error_code, group.error_message, f"group {group.group_id!r}")
    return True


# `list` has another meaning inside the class.
Descriptions = list[GroupDescription]
Identities = list[MemberIdentity]
Lags = list[PartitionLag]
Listings = list[GroupListing]
Resets = list[OffsetReset]
Texts = list[str]
