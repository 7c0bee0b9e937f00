"""Share groups: list, describe, show where they are, move them, delete them.

All records before the start offset of a share group in a partition are done. Records after it may be done, too: the lag
counts those that are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.admin.group_members import in_one_line
from penstock.client.wire.admin.group_offsets import CommittedOffset
from penstock.client.wire.admin.group_reset import OffsetReset, ResetTarget, plan, time_of
from penstock.client.wire.admin.groups import GroupListing, Groups
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
)

SHARE = "share"


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    member_id: str
    client_id: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: int
    members: tuple[ShareGroupMember, ...]

    def who(self) -> str:
        return in_one_line((member.client_id, member.host) for member in self.members)


@dataclass(frozen=True, slots=True)
class ShareOffset:
    topic: str
    partition: int
    start: int | None  # None: the group has read nothing yet
    lag: int | None  # None: not known
    leader_epoch: int


class ShareGroups:
    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups

    def list(self, *, states: Iterable[str] = ()) -> Listings:
        return self._groups.list(states=states, types=[SHARE])

    def describe(self, group_ids: Iterable[str]) -> Descriptions:
        """Describe state and members; KafkaError for a group that does not exist."""
        wanted = sorted(set(group_ids))
        return self._cluster.patiently(lambda: self._describe(wanted))

    def offsets(self, group_id: str) -> Offsets:
        """Return where the group is in all partitions that it has read."""
        return self._cluster.patiently(lambda: self._offsets(group_id))

    def reset(
        self,
        group_id: str,
        to: ResetTarget,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> Resets:
        """Move a group without members to other offsets; return the result for each partition.

        In these topics or partitions, or in all that the group has read. A group that does not exist is created. What
        the group knows about records after the new offset is forgotten: they are delivered again.
        """
        known = {
            TopicPartition(each.topic, each.partition): CommittedOffset(each.start)
            for each in self.offsets(group_id)
            if each.start is not None
        }
        wanted = [*(partitions or ()), *self._partitions_of(topics or ())]
        if topics is None and partitions is None:
            wanted = list(known)
        if not wanted:
            raise ClientError(f"share group {group_id!r} has read nothing: name the topics to set its offsets in")
        bounds = self._groups.bounds(wanted, time_of(to, datetime.now(UTC)))
        resets = plan(to, wanted, known, bounds)
        if not dry_run:
            offsets = {TopicPartition(each.topic, each.partition): each.new for each in resets}
            self._cluster.patiently(lambda: self._alter(group_id, offsets))
        return resets

    def delete(self, group_ids: Iterable[str]) -> None:
        """Delete share groups, with everything they know. Refused, for each of them, while it has members."""
        wanted = sorted(set(group_ids))
        self.describe(wanted)
        self._groups.delete(wanted)

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Forget what a group without members knows about topics."""
        wanted = sorted(set(topics))
        self._cluster.patiently(lambda: self._delete_offsets(group_id, wanted))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _coordinator(self, group_id: str) -> int:
        (coordinator,) = self._cluster.coordinators(CoordinatorType.GROUP, [group_id])
        return coordinator

    def _partitions_of(self, topics: Iterable[str]) -> Partitions:
        names = sorted(set(topics))
        return [
            TopicPartition(topic.name or "", part.partition_index)
            for topic in (self._cluster.topics(names) if names else ())
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]

    def _describe(self, group_ids: Texts) -> Descriptions:
        described: dict[str, ShareGroupDescription] = {}
        for coordinator, asked in self._cluster.coordinators(CoordinatorType.GROUP, group_ids).items():
            request = share_group_describe.ShareGroupDescribeRequest(group_ids=asked)
            response = share_group_describe.ShareGroupDescribeResponse
            for group in self._cluster.request_broker(coordinator, request, response).groups:
                if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group.group_id!r}")
                raise_for(group.error_code, group.error_message, f"share group {group.group_id!r}")
                described[group.group_id] = _description(group, coordinator)
        return [described[group_id] for group_id in group_ids]

    def _offsets(self, group_id: str) -> Offsets:
        asked = describe_share_group_offsets.Group(group_id=group_id, topics=None)
        request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[asked])
        response = describe_share_group_offsets.DescribeShareGroupOffsetsResponse
        (group,) = self._cluster.request_broker(self._coordinator(group_id), request, response).groups
        raise_for(group.error_code, group.error_message, f"offsets of share group {group_id!r}")
        found = []
        for topic in group.topics:
            for part in topic.partitions:
                about = f"offsets of share group {group_id!r} in {topic.topic_name}-{part.partition_index}"
                raise_for(part.error_code, part.error_message, about)
                start = part.start_offset if part.start_offset >= 0 else None
                lag = part.lag if part.lag >= 0 else None
                found.append(ShareOffset(topic.topic_name, part.partition_index, start, lag, part.leader_epoch))
        return sorted(found, key=lambda each: (each.topic, each.partition))

    def _alter(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics = [
            alter_share_group_offsets.Topic(
                topic_name=topic,
                partitions=[
                    alter_share_group_offsets.Partition(
                        partition_index=index, start_offset=offsets[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
        response = alter_share_group_offsets.AlterShareGroupOffsetsResponse
        answer = self._cluster.request_broker(self._coordinator(group_id), request, response)
        about = f"cannot set offsets of share group {group_id!r}"
        self._raise_for(group_id, answer.error_code, answer.error_message, about)
        for topic in answer.responses:
            for part in topic.partitions:
                where = f"{about} in {topic.topic_name}-{part.partition_index}"
                raise_for(part.error_code, part.error_message, where)

    def _delete_offsets(self, group_id: str, topics: Texts) -> None:
        request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=[delete_share_group_offsets.Topic(topic_name=topic) for topic in topics]
        )
        response = delete_share_group_offsets.DeleteShareGroupOffsetsResponse
        answer = self._cluster.request_broker(self._coordinator(group_id), request, response)
        about = f"cannot delete offsets of share group {group_id!r}"
        self._raise_for(group_id, answer.error_code, answer.error_message, about)
        for topic in answer.responses:
            raise_for(topic.error_code, topic.error_message, f"{about} in {topic.topic_name}")

    def _raise_for(self, group_id: str, code: int, message: str | None, about: str) -> None:
        """Raise the error, and name the members if they are the reason."""
        if code == ErrorCode.NON_EMPTY_GROUP:
            (group,) = self._describe([group_id])
            if group.members:
                raise KafkaError(
                    ErrorCode.NON_EMPTY_GROUP, f"{about} while it has members; stop them first: {group.who()}"
                )
        raise_for(code, message, about)


def _description(group: share_group_describe.DescribedGroup, coordinator: int) -> ShareGroupDescription:
    return ShareGroupDescription(
        group_id=group.group_id,
        state=group.group_state,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        coordinator=coordinator,
        members=tuple(
            ShareGroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                epoch=member.member_epoch,
                topics=tuple(member.subscribed_topic_names),
                assignment=tuple(
                    TopicPartition(part.topic_name, index)
                    for part in member.assignment.topic_partitions
                    for index in part.partitions
                ),
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


# `list` has another meaning inside the class.
Descriptions = list[ShareGroupDescription]
Listings = list[GroupListing]
Offsets = list[ShareOffset]
Partitions = list[TopicPartition]
Resets = list[OffsetReset]
Texts = list[str]
