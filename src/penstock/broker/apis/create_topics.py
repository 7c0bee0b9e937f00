"""CreateTopics: creates topics. Versions 2-7: 5 returns the settings, 7 the topic ids."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.CREATE_TOPICS
VERSIONS = (2, 7)
STRICT_QUOTA_SINCE = 6  # older versions know no error for an exceeded quota


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
    charge = services.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(
        request, lambda controller: charge.told(controller.create_topics(message, charge=charge.take)), refusal
    )
    return None
