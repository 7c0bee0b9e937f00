"""ConsumerGroupDescribe: groups of the new protocol and their members. Versions 0-1: 1 adds the member type."""

from __future__ import annotations

from typing import Final

from penstock.broker.apis.group_descriptions import GroupKind, describe_groups
from penstock.broker.apis.services import GroupServices
from penstock.broker.net.request import Request
from penstock.groups.shard import GroupShard
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

VERSIONS = (0, 1)


def handle(services: GroupServices, request: Request, message: ConsumerGroupDescribeRequest) -> None:
    is_served = services.coordinators.serves_consumer_groups
    describe_groups(_KIND, is_served, services, request, message.group_ids, message)


def _topics_of(group: DescribedGroup) -> set[str]:
    return {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }


_KIND: Final = GroupKind(
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    GroupShard.consumer_group_describe,
    _topics_of,
)
