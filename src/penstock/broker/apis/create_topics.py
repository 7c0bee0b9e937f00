"""CreateTopics: creates topics. Versions 2-7: 5 returns the settings, 7 the topic ids.

A client may create all topics, or those of certain names; topics it may not create leave the others alone.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.security.authorizer import CLUSTER, Operation, topic_resource

VERSIONS = (2, 7)
STRICT_QUOTA_SINCE = 6  # older versions know no error for an exceeded quota


def handle(services: AdminServices, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse | None:
    def refused(topic: CreatableTopic, error: KafkaError) -> CreatableTopicResult:
        return CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message, configs=[])

    def refusal(error: KafkaError) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[refused(topic, error) for topic in message.topics])

    def create(controller: Controller) -> Result[CreateTopicsResponse]:
        may_create_all = request.could(Operation.CREATE, CLUSTER)
        allowed, forbidden = [], []
        for topic in message.topics:
            if may_create_all or request.may(Operation.CREATE, topic_resource(topic.name)):
                allowed.append(topic)
            else:
                forbidden.append(topic)
        describable = {
            topic.name for topic in allowed if request.could(Operation.DESCRIBE_CONFIGS, topic_resource(topic.name))
        }
        asked = CreateTopicsRequest(topics=allowed, timeout_ms=message.timeout_ms, validate_only=message.validate_only)
        result = charge.with_throttle_time(controller.create_topics(asked, describable, charge.take))
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        result.response.topics += [refused(topic, error) for topic in forbidden]
        return result

    charge = services.listeners.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(request, create, refusal, about=(topic.name for topic in message.topics))
    return None
