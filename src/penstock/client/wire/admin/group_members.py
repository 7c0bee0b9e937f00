"""Descriptions of groups and their members, the same for all protocols that commit offsets.

Members of classic groups exchange subscriptions and assignments in bytes that only consumers understand; members of
other protocol types (Kafka Connect's workers) have other formats. If the bytes cannot be read, these fields are empty,
and the rest of the description is still valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from penstock.model.ids import TopicPartition
from penstock.protocol.codec import MalformedMessage, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.messages import consumer_group_describe, describe_groups, streams_group_describe
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

CLASSIC = "classic"
CONSUMER = "consumer"
STREAMS = "streams"
# The types of groups that commit offsets.
WITH_OFFSETS = (CLASSIC, CONSUMER, STREAMS)
_NEWEST_EMBEDDED = 3

Embedded = TypeVar("Embedded", bound=Message)


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None  # of static members
    client_id: str
    host: str
    rack: str | None
    epoch: int | None  # None in classic groups
    topics: tuple[str, ...]  # subscribed to by name
    topic_regex: str | None  # subscribed to by pattern; only in the consumer protocol
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None  # None in classic groups


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str  # classic, consumer, streams
    state: str
    protocol_type: str  # "consumer" for groups of consumers; empty if no member has joined yet
    assignor: str
    coordinator: int
    epoch: int | None  # None for classic groups, which do not report their generation
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The members by the partitions they own."""
        return {partition: member for member in self.members for partition in member.assignment}

    def who(self) -> str:
        """The members in one line: `billing on 10.0.0.1, billing on 10.0.0.2 (3)`."""
        return in_one_line((member.client_id, member.host) for member in self.members)


def in_one_line(clients: Iterable[tuple[str, str]]) -> str:
    """Client ids and hosts of members."""
    counts = Counter(f"{client_id} on {host}" for client_id, host in clients)
    return ", ".join(client if count == 1 else f"{client} ({count})" for client, count in counts.items())


def consumer_group(group: consumer_group_describe.DescribedGroup, coordinator: int) -> GroupDescription:
    members = [
        _modern_member(
            member,
            tuple(sorted(member.subscribed_topic_names)),
            member.subscribed_topic_regex,
            _partitions_of(member.assignment),
            _partitions_of(member.target_assignment),
        )
        for member in group.members
    ]
    return _modern_group(group, CONSUMER, coordinator, members)


def _modern_group(
    group: consumer_group_describe.DescribedGroup | streams_group_describe.DescribedGroup,
    kind: str,
    coordinator: int,
    members: Iterable[GroupMember],
) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=kind,
        state=group.group_state,
        protocol_type=kind,
        assignor=group.assignor_name or "",
        coordinator=coordinator,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=_in_order(members),
    )


def _modern_member(
    member: consumer_group_describe.Member | streams_group_describe.Member,
    topics: tuple[str, ...],
    topic_regex: str | None,
    assignment: tuple[TopicPartition, ...],
    target_assignment: tuple[TopicPartition, ...],
) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=_host(member.client_host),
        rack=member.rack_id or None,
        epoch=member.member_epoch,
        topics=topics,
        topic_regex=topic_regex,
        assignment=assignment,
        target_assignment=target_assignment,
    )


def classic_group(group: describe_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    is_consumer = group.protocol_type == CONSUMER
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        epoch=None,
        assignment_epoch=None,
        members=_in_order(_classic_member(member, is_consumer) for member in group.members),
    )


def _classic_member(member: describe_groups.DescribedGroupMember, is_consumer: bool) -> GroupMember:
    subscription = _embedded(ConsumerProtocolSubscription, member.member_metadata) if is_consumer else None
    assignment = _embedded(ConsumerProtocolAssignment, member.member_assignment) if is_consumer else None
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=_host(member.client_host),
        rack=(subscription.rack_id or None) if subscription is not None else None,
        epoch=None,
        topics=() if subscription is None else tuple(sorted(subscription.topics)),
        topic_regex=None,
        assignment=()
        if assignment is None
        else tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in assignment.assigned_partitions
                for index in topic.partitions
            )
        ),
        target_assignment=None,
    )


def _embedded(kind: type[Embedded], data: bytes) -> Embedded | None:
    """Decode data that consumers exchange: a version, then the message. Later versions only add at the end."""
    if len(data) < 2:
        return None
    version = int.from_bytes(data[:2], signed=True)
    try:
        return decode_from(kind, data, min(version, _NEWEST_EMBEDDED), 2)[0] if version >= 0 else None
    except MalformedMessage:
        return None


def streams_group(group: streams_group_describe.DescribedGroup, coordinator: int) -> GroupDescription:
    """Describe an application: a member has the input of its active tasks."""
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    inputs = {
        each.subtopology_id: (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
        for each in subtopologies
    }
    topics = tuple(sorted(topic for of_one in inputs.values() for topic in of_one))

    def partitions(assignment: streams_group_describe.Assignment) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(topic, index)
                for tasks in assignment.active_tasks
                for topic in inputs.get(tasks.subtopology_id, ())
                for index in tasks.partitions
            )
        )

    members = [
        _modern_member(member, topics, None, partitions(member.assignment), partitions(member.target_assignment))
        for member in group.members
    ]
    return _modern_group(group, STREAMS, coordinator, members)


def _partitions_of(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _in_order(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _host(text: str) -> str:
    """Return the host; Java's brokers write an address as `/127.0.0.1`."""
    return text.removeprefix("/")
