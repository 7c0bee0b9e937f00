"""AllocateProducerIds: allocates a block of producer ids to a broker. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: ControllerServices, request: Request, message: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse | None:
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.allocate_producer_ids(message),
        lambda error: AllocateProducerIdsResponse(error_code=error.code),
    )
