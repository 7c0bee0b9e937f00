"""AlterShareGroupOffsets: moves the start offsets of a share group without members. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.apis.share_requests import offsets_error
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    PartitionResult,
    Topic,
    TopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | None:
    code = offsets_error(services, request, message.group_id, Operation.READ)
    if code:
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=code.text)
    answer = request.park()
    refused = []
    allowed = []
    for topic in message.topics:
        if request.may(Operation.READ, topic_resource(topic.topic_name)):
            allowed.append(topic)
        else:
            refused.append(_refused(services, topic))

    def altered(response: AlterShareGroupOffsetsResponse) -> None:
        if not response.error_code:
            response.responses += refused
        answer(response)

    asked = AlterShareGroupOffsetsRequest(group_id=message.group_id, topics=allowed)
    services.coordinators.share_groups.alter_offsets(asked, altered)
    return None


def _refused(services: GroupServices, topic: Topic) -> TopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return TopicResult(
        topic_name=topic.topic_name,
        topic_id=services.metadata.image.topics.id_of(topic.topic_name) or ZERO_UUID,
        partitions=[
            PartitionResult(partition_index=part.partition_index, error_code=code, error_message=code.text)
            for part in topic.partitions
        ],
    )
