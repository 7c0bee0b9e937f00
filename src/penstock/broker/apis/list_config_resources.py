"""ListConfigResources: lists the resources that have settings.

Versions 0-1: 0 supports client metrics only, 1 any resource type.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 1)

ALL_TYPES = [kind for kind in ResourceType if kind is not ResourceType.UNKNOWN]


def handle(
    services: AdminServices, request: Request, message: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if not request.may(Operation.DESCRIBE_CONFIGS, CLUSTER):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version == 0:
        types: set[int] = {ResourceType.CLIENT_METRICS}
    else:
        types = set(message.resource_types) or set(ALL_TYPES)
        if not types <= set(ALL_TYPES):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(types)
            for name in _names(services, kind)
        ]
    )


def _names(services: AdminServices, kind: int) -> Iterator[str]:
    image = services.quorum.image
    if kind == ResourceType.TOPIC:
        yield from image.topics.names
    elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        yield from (str(broker_id) for broker_id in image.brokers)
    else:
        yield from (resource.name for resource in image.configs if resource.type == kind)
