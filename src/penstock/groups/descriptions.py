"""ListGroups, DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe and DeleteGroups. (StreamsGroupDescribe:
`streams_description`.)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups import share_assignor
from penstock.groups.classic_group import ClassicGroup, ClassicState
from penstock.groups.consumer_group import ConsumerGroup, ConsumerState
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.offset_deletion import OffsetDeletion
from penstock.groups.records import classic_group_record
from penstock.groups.share_heartbeat import share_group_or_error
from penstock.groups.state import CLASSIC, CONSUMER, SHARE, STREAMS, GroupState
from penstock.groups.streams_group import StreamsState
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages import consumer_group_describe, describe_groups, share_group_describe
from penstock.protocol.messages.delete_groups import DeletableGroupResult
from penstock.protocol.messages.list_groups import ListedGroup, ListGroupsRequest

GROUP_ID_NOT_FOUND_SINCE = 6

TYPES: Final = frozenset({CLASSIC, CONSUMER, SHARE, STREAMS})
# Share groups have two of them.
STATES: Final = frozenset(state.value.lower() for kind in (ClassicState, ConsumerState, StreamsState) for state in kind)


def shortened(request: ListGroupsRequest) -> ListGroupsRequest:
    """The same filters without repetitions and names that match nothing: every partition gets them."""
    return ListGroupsRequest(
        states_filter=_shortened(request.states_filter, STATES), types_filter=_shortened(request.types_filter, TYPES)
    )


def _shortened(names: list[str], known: frozenset[str]) -> list[str]:
    return sorted(known.intersection(map(_normal, names))) or names[:1]


def _normal(name: str) -> str:
    return name.strip().lower()


class Descriptions:
    def __init__(self, state: GroupState, deletion: OffsetDeletion) -> None:
        self._state = state
        self._deletion = deletion

    # -- ListGroups ----------------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        states = set(map(_normal, request.states_filter))
        types = set(map(_normal, request.types_filter))
        known = self._state
        # A classic group may have members of any type; the others are named like theirs.
        found = [
            *((CLASSIC, each.protocol_type or "", each.group_id, each.state.value) for each in known.classic.values()),
            *((CONSUMER, CONSUMER, each.group_id, each.state.value) for each in known.consumer.values()),
            *((SHARE, SHARE, each.group_id, each.state) for each in known.shares.values()),
            *((STREAMS, STREAMS, each.group_id, each.state.value) for each in known.streams.values()),
        ]
        return [
            ListedGroup(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=kind)
            for kind, protocol_type, group_id, state in found
            if (not types or kind in types) and (not states or state.lower() in states)
        ]

    # -- DescribeGroups ------------------------------------------------------------------------------------------------

    def describe(self, group_id: str, version: int) -> describe_groups.DescribedGroup:
        """Describe a classic group.

        If it does not exist or is not classic, older versions answer Dead without an error.
        """
        group = self._state.group(group_id)
        if not isinstance(group, ClassicGroup):
            described = describe_groups.DescribedGroup(group_id=group_id, group_state="Dead")
            if version >= GROUP_ID_NOT_FOUND_SINCE:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                reason = "not found" if self._state.kind_of(group_id) is None else "is not a classic group"
                described.error_message = f"Group {group_id} {reason}."
            return described
        # Between generations subscriptions have no meaning yet.
        protocol = group.protocol if group.state is ClassicState.STABLE else None
        return describe_groups.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                describe_groups.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol) if protocol else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    # -- ConsumerGroupDescribe -----------------------------------------------------------------------------------------

    def describe_consumer(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        if not group_id:
            return consumer_group_describe.DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        group = self._state.consumer.get(group_id)
        if group is None:
            reason = "not found" if self._state.kind_of(group_id) is None else "is not a consumer group"
            return consumer_group_describe.DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} {reason}.",
            )
        return consumer_group_describe.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor(self._state.settings.consumer_assignors[0]),
            members=[self._consumer(group, member) for member in group.members.values()],
        )

    def _consumer(self, group: ConsumerGroup, member: ConsumerMember) -> consumer_group_describe.Member:
        # Partitions that the member is still giving up are still its own.
        has: dict[Uuid, set[int]] = {}
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                has.setdefault(topic_id, set()).update(partitions)
        return consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.regex,
            assignment=self._assignment(has),
            target_assignment=self._assignment(group.target.get(member.member_id, {})),
            member_type=1 if member.classic is None else 0,
        )

    def _assignment(self, parts: Mapping[Uuid, Iterable[int]]) -> consumer_group_describe.Assignment:
        """Convert an assignment. Deleted topics are left out: they have no name to show."""
        found = []
        for topic_id, partitions in parts.items():
            name = self._state.topics.topic_name(topic_id)
            if name is not None:
                found.append(
                    consumer_group_describe.TopicPartitions(
                        topic_id=topic_id, topic_name=name, partitions=sorted(partitions)
                    )
                )
        return consumer_group_describe.Assignment(topic_partitions=sorted(found, key=lambda part: part.topic_name))

    # -- ShareGroupDescribe --------------------------------------------------------------------------------------------

    def describe_share(self, group_id: str) -> share_group_describe.DescribedGroup:
        if not group_id:
            return share_group_describe.DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            group = share_group_or_error(self._state, group_id)
        except KafkaError as error:
            return share_group_describe.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
        return share_group_describe.DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=share_assignor.NAME,
            members=[
                share_group_describe.Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topics),
                    assignment=self._share_assignment(member.assigned),
                )
                for member in group.members.values()
            ],
        )

    def _share_assignment(self, parts: Mapping[Uuid, Iterable[int]]) -> share_group_describe.Assignment:
        return share_group_describe.Assignment(
            topic_partitions=[
                share_group_describe.TopicPartitions(
                    topic_id=part.topic_id, topic_name=part.topic_name, partitions=part.partitions
                )
                for part in self._assignment(parts).topic_partitions
            ]
        )

    # -- DeleteGroups --------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, records: list[CoordinatorRecord]) -> DeletableGroupResult:
        """Delete a group with its offsets. Those of a share group are deleted before, by the share coordinators. As in
        Kafka, the codes of these errors say everything."""
        share = self._state.shares.get(group_id)
        if share is not None and share.is_empty:
            records.extend(share.tombstones())
            return DeletableGroupResult(group_id=group_id)
        try:
            if share is not None:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
            group = self._state.group_or_error(group_id)
        except KafkaError as error:
            return DeletableGroupResult(group_id=group_id, error_code=error.code)
        if not group.is_empty:
            return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NON_EMPTY_GROUP)
        self._deletion.delete_all(group_id, records)
        if isinstance(group, ClassicGroup):
            records.append(classic_group_record(group_id, None))
        else:
            records.extend(group.tombstones())
        return DeletableGroupResult(group_id=group_id)
