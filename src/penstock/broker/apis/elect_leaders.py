"""ElectLeaders: elects preferred leaders, or any leader where there is none. Versions 0-2: 1 adds the election type."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 2)


def handle(services: AdminServices, request: Request, message: ElectLeadersRequest) -> ElectLeadersResponse | None:
    topics = message.topic_partitions
    return services.forwarding.forward_allowed(
        Operation.ALTER,
        request,
        lambda controller: controller.elect_leaders(message),
        lambda error: ElectLeadersResponse(error_code=error.code),
        about=["all topics"] if topics is None else (each.topic for each in topics),
    )
