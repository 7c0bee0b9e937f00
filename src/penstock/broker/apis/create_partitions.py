"""CreatePartitions: adds partitions to a topic. Versions 0-3."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from penstock.security.authorizer import Operation, topic_resource

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

    def create(controller: Controller) -> Result[CreatePartitionsResponse]:
        names = {topic.name for topic in message.topics}
        forbidden = {name for name in names if not request.may(Operation.ALTER, topic_resource(name))}
        asked = CreatePartitionsRequest(
            topics=[topic for topic in message.topics if topic.name not in forbidden],
            timeout_ms=message.timeout_ms,
            validate_only=message.validate_only,
        )
        result = charge.with_throttle_time(controller.create_partitions(asked, charge=charge.take))
        result.response.results += [
            CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=None)
            for name in sorted(forbidden)
        ]
        return result

    charge = services.listeners.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(request, create, refusal, about=(topic.name for topic in message.topics))
    return None
