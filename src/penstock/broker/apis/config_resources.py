"""Who may look at the settings of a resource, or change them: topics and groups are asked for each by its own name."""

from __future__ import annotations

from penstock.broker.request import Request
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.security.authorizer import CLUSTER, Operation, group_resource, topic_resource


def refusal_of(request: Request, operation: Operation, kind: int, name: str) -> KafkaError | None:
    if kind == ResourceType.TOPIC:
        resource, code = topic_resource(name), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind == ResourceType.GROUP:
        resource, code = group_resource(name), ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        resource, code = CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if request.may(operation, resource) else KafkaError(code)
