"""DeleteShareGroupOffsets: deletes what a share group without members knows about topics. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.apis.share_requests import offsets_error
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    TopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | None:
    code = offsets_error(services, request, message.group_id, Operation.DELETE)
    if code:
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=code.text)
    answer = request.park()
    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allowed = [topic for topic in message.topics if request.may(Operation.READ, topic_resource(topic.topic_name))]
    refused = [
        TopicResult(topic_name=topic.topic_name, error_code=forbidden, error_message=forbidden.text)
        for topic in message.topics
        if topic not in allowed
    ]

    def deleted(response: DeleteShareGroupOffsetsResponse) -> None:
        if not response.error_code:
            response.responses = refused + response.responses
        answer(response)

    asked = DeleteShareGroupOffsetsRequest(group_id=message.group_id, topics=allowed)
    services.coordinators.share_groups.delete_offsets(asked, deleted)
    return None
