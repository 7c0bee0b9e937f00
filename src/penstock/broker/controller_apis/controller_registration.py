"""ControllerRegistration: a controller registers its endpoints and supported features. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: ControllerServices, request: Request, message: ControllerRegistrationRequest
) -> ControllerRegistrationResponse | None:
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.register_controller(message),
        lambda error: ControllerRegistrationResponse(error_code=error.code, error_message=error.message),
    )
