"""UnregisterController: removes the registration of a controller that left the quorum (KIP-1312). Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: UnregisterControllerRequest
) -> UnregisterControllerResponse | None:
    return services.forwarding.forward_allowed(
        Operation.ALTER,
        request,
        lambda controller: controller.unregister_controller(message, services.quorum.voters.node_ids),
        lambda error: UnregisterControllerResponse(error_code=error.code, error_message=error.message),
        about=[f"controller {message.controller_id}"],
    )
