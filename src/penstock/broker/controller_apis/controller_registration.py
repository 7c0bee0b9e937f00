"""ControllerRegistration: a controller tells where it listens and what it supports. Version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import forward
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.CONTROLLER_REGISTRATION
VERSIONS = (0, 0)


def handle(
    node: Node, request: Request, message: ControllerRegistrationRequest
) -> ControllerRegistrationResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return ControllerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    forward(
        node,
        request,
        lambda controller: controller.register_controller(message),
        lambda error: ControllerRegistrationResponse(error_code=error.code),
    )
    return None
