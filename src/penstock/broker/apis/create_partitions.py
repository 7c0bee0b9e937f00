"""CreatePartitions: adds partitions to a topic. Versions 0-3."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

API_KEY = ApiKey.CREATE_PARTITIONS
VERSIONS = (0, 3)
STRICT_QUOTA_SINCE = 3  # older versions know no error for an exceeded quota


def handle(
    services: AdminServices, request: Request, message: CreatePartitionsRequest
) -> CreatePartitionsResponse | None:
    def refusal(error: KafkaError) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in message.topics
            ]
        )

    if not all(request.may(Operation.ALTER, topic_resource(topic.name)) for topic in message.topics):
        return refusal(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    charge = services.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(
        request, lambda controller: charge.told(controller.create_partitions(message, charge=charge.take)), refusal
    )
    return None
