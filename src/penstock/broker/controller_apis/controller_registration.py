"""ControllerRegistration: a controller registers its endpoints and supported features. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.CONTROLLER_REGISTRATION
VERSIONS = (0, 0)


def handle(
    services: ControllerServices, request: Request, message: ControllerRegistrationRequest
) -> ControllerRegistrationResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return ControllerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services.forwarding.forward(
        request,
        lambda controller: controller.register_controller(message),
        lambda error: ControllerRegistrationResponse(error_code=error.code),
    )
    return None
