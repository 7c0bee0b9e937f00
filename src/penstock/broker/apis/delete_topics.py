"""DeleteTopics: deletes topics. Versions 1-6: 5 adds error messages, 6 deletion by id."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.controller.topics import Charge
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID, Uuid, uuid_text
from penstock.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.security.authorizer import CLUSTER, Operation, topic_resource

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

    charge = services.listeners.throttling.mutations(request, strict_since=STRICT_QUOTA_SINCE)
    services.forwarding.forward(
        request,
        lambda controller: charge.with_throttle_time(_delete(controller, request, message, charge.take)),
        refusal,
        about=[*message.topic_names, *(topic.name or uuid_text(topic.topic_id) for topic in message.topics)],
    )
    return None


def _delete(
    controller: Controller, request: Request, message: DeleteTopicsRequest, charge: Charge
) -> Result[DeleteTopicsResponse]:
    """Delete the topics that the client may delete. Of a topic it may not describe, it learns neither the name nor
    whether there is one."""
    topics = controller.image.topics
    may_delete_all = request.could(Operation.DELETE, CLUSTER)
    forbidden: list[DeletableTopicResult] = []

    def is_allowed(name: str | None, topic_id: Uuid) -> bool:
        is_by_id = name is None
        if may_delete_all or is_by_id == (topic_id == ZERO_UUID):
            return True  # what names both or neither is invalid, and has nothing to hide
        topic = topics.by_id(topic_id) if name is None else topics.by_name(name)
        if name is None and topic is None:
            return True
        resource = topic_resource(topic.name if topic is not None else name or "")
        may_describe = request.could(Operation.DESCRIBE, resource)
        if (topic is None and may_describe) or request.may(Operation.DELETE, resource):
            return True
        shown = resource.name if may_describe or not is_by_id else None
        forbidden.append(
            DeletableTopicResult(
                name=shown,
                topic_id=topic_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.text,
            )
        )
        return False

    asked = DeleteTopicsRequest(
        topics=[topic for topic in message.topics if is_allowed(topic.name, topic.topic_id)],
        topic_names=[name for name in message.topic_names if is_allowed(name, ZERO_UUID)],
        timeout_ms=message.timeout_ms,
    )
    result = controller.delete_topics(asked, charge)
    result.response.responses += forbidden
    return result
