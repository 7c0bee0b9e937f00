"""DescribeShareGroupOffsets: where share groups start to read, and their lag. Versions 0-1: 1 adds the lag."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.apis.share_requests import offsets_error
from penstock.broker.coordinators.questions import Gathering
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    Group,
    GroupResult,
    PartitionResult,
    Topic,
    TopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (0, 1)


def handle(services: GroupServices, request: Request, message: DescribeShareGroupOffsetsRequest) -> None:
    answer = request.park()
    results: dict[int, GroupResult] = {}
    gathering = Gathering(
        len(message.groups),
        lambda: answer(DescribeShareGroupOffsetsResponse(groups=[results[each] for each in sorted(results)])),
    )

    def ask_for(place: int, group: Group) -> None:
        refused: list[Topic] = []

        def described(result: GroupResult) -> None:
            if group.topics is None:
                result.topics = [topic for topic in result.topics if _may(request, topic.topic_name)]
            result.topics += [_refused(topic) for topic in refused if not result.error_code]
            results[place] = result
            gathering.one_more()

        code = offsets_error(services, request, group.group_id, Operation.DESCRIBE)
        if code:
            described(GroupResult(group_id=group.group_id, error_code=code, error_message=None))
            return
        topics = group.topics
        if topics is not None:
            refused += [topic for topic in topics if not _may(request, topic.topic_name)]
            topics = [topic for topic in topics if _may(request, topic.topic_name)]
        services.coordinators.share_groups.describe_offsets(group.group_id, topics, described)

    for place, group in enumerate(message.groups):
        ask_for(place, group)


def _may(request: Request, topic: str) -> bool:
    return request.may(Operation.DESCRIBE, topic_resource(topic))


def _refused(topic: Topic) -> TopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return TopicResult(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            PartitionResult(partition_index=index, start_offset=-1, lag=-1, error_code=code, error_message=code.text)
            for index in topic.partitions
        ],
    )
