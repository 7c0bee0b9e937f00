"""DeleteTopics: deletes topics. Versions 1-6: 5 adds error messages, 6 deletion by id."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.security.authorizer import Operation, topic_resource

API_KEY = ApiKey.DELETE_TOPICS
VERSIONS = (1, 6)
STRICT_QUOTA_SINCE = 5  # older versions know no error for an exceeded quota


def handle(services: AdminServices, request: Request, message: DeleteTopicsRequest) -> DeleteTopicsResponse | None:
    def refusal(error: KafkaError) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
                )
                for topic in message.topics
            ]
            or [
                DeletableTopicResult(name=name, error_code=error.code, error_message=error.message)
                for name in message.topic_names
            ]
        )

    names = [topic.name or services.quorum.image.topics.name_of(topic.topic_id) or "" for topic in message.topics]
    if not all(request.may(Operation.DELETE, topic_resource(name)) for name in names or message.topic_names):
        return refusal(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    charge = services.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(
        request, lambda controller: charge.told(controller.delete_topics(message, charge=charge.take)), refusal
    )
    return None
