"""ShareGroupDescribe: share groups and their members. Version 1."""

from __future__ import annotations

from typing import Final

from penstock.broker.apis.group_descriptions import GroupKind, describe_groups
from penstock.broker.apis.services import GroupServices
from penstock.broker.net.request import Request
from penstock.groups.shard import GroupShard
from penstock.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

VERSIONS = (1, 1)


def handle(services: GroupServices, request: Request, message: ShareGroupDescribeRequest) -> None:
    is_served = services.coordinators.serves_share_groups
    describe_groups(_KIND, is_served, services, request, message.group_ids, message)


def _topics_of(group: DescribedGroup) -> set[str]:
    return {part.topic_name for member in group.members for part in member.assignment.topic_partitions}


_KIND: Final = GroupKind(
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    DescribedGroup,
    GroupShard.share_group_describe,
    _topics_of,
)
