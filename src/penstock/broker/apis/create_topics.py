"""CreateTopics: creates topics. Versions 2-7: 5 returns the settings, 7 the topic ids."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (2, 7)


def handle(services: AdminServices, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse | None:
    def refusal(error: KafkaError) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message, configs=[])
                for topic in message.topics
            ]
        )

    if not request.may(Operation.CREATE, CLUSTER):
        return refusal(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    services.forwarding.forward(request, lambda controller: controller.create_topics(message), refusal)
    return None
