"""Share groups as the pages of all groups show them: the start offset stands for the committed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.client.wire.admin.group_lag import PartitionLag
from penstock.client.wire.admin.group_members import GroupDescription, GroupMember
from penstock.client.wire.admin.share_groups import SHARE
from penstock.console.views.sample import GroupSeen
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.share_groups import ShareGroupDescription, ShareOffset


def share_groups(admin: Admin, ends: Mapping[TopicPartition, int], limit: int) -> Iterator[GroupSeen]:
    for name in [group.group_id for group in admin.share_groups.list()][: max(0, limit)]:
        try:
            (group,) = admin.share_groups.describe([name])
            lags = tuple(_lag(each, ends) for each in admin.share_groups.offsets(name))
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # it was deleted meanwhile
                raise
        else:
            yield GroupSeen(_description(group), lags)


def _description(group: ShareGroupDescription) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=SHARE,
        state=group.state,
        protocol_type=SHARE,
        assignor=group.assignor,
        coordinator=group.coordinator,
        epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=member.host,
                rack=None,
                epoch=member.epoch,
                topics=member.topics,
                topic_regex=None,
                assignment=member.assignment,
                target_assignment=None,
            )
            for member in group.members
        ),
    )


def _lag(each: ShareOffset, ends: Mapping[TopicPartition, int]) -> PartitionLag:
    """No partition belongs to one member."""
    return PartitionLag(
        topic=each.topic,
        partition=each.partition,
        member_id=None,
        client_id=None,
        committed=each.start,
        end=ends.get(TopicPartition(each.topic, each.partition)),
        lag=each.lag,
    )
