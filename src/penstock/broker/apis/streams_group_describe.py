"""StreamsGroupDescribe: streams groups, their topologies and members.

Versions 0-1: 1 adds the assignor, and a description of the topology that only a plug-in of Kafka's broker stores: here
there is none.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.apis.group_descriptions import GroupKind, describe_groups
from penstock.broker.apis.services import GroupServices
from penstock.broker.net.request import Request
from penstock.coordinator.decision import Caller, Decision
from penstock.groups.shard import GroupShard
from penstock.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

VERSIONS = (0, 1)

# What the answer says about the description of the topology.
NOT_STORED: Final = 1


def handle(services: GroupServices, request: Request, message: StreamsGroupDescribeRequest) -> None:
    is_served = services.coordinators.serves_streams_groups
    kind = _KIND_WITH_STATUS if message.include_topology_description else _KIND
    describe_groups(kind, is_served, services, request, message.group_ids, message)


def _topics_of(group: DescribedGroup) -> set[str]:
    found: set[str] = set()
    for each in () if group.topology is None else group.topology.subtopologies or ():
        found.update(each.source_topics, each.repartition_sink_topics)
        found.update(topic.name for topic in (*each.state_changelog_topics, *each.repartition_source_topics))
    return found


def _with_status(
    shard: GroupShard, asked: StreamsGroupDescribeRequest, token: object, caller: Caller, now_ms: int
) -> Decision:
    decision = shard.streams_group_describe(asked, token, caller, now_ms)
    for reply in decision.replies:
        assert isinstance(reply.response, StreamsGroupDescribeResponse)
        for group in reply.response.groups:
            group.topology_description_status = 0 if group.error_code else NOT_STORED
    return decision


_KIND: Final = GroupKind(
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    DescribedGroup,
    GroupShard.streams_group_describe,
    _topics_of,
    "The described group uses topics that the client is not authorized to describe.",
)
_KIND_WITH_STATUS: Final = _KIND._replace(describe=_with_status)
