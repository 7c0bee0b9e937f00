"""BrokerRegistration: a broker joins the cluster, or comes back to it.

Versions 0-4: 2 adds log directories, 3 the epoch of the registration before, if that ended with a clean stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import forward
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.BROKER_REGISTRATION
VERSIONS = (0, 4)


def handle(node: Node, request: Request, message: BrokerRegistrationRequest) -> BrokerRegistrationResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    session_alive = node.controller_upkeep.session_alive(message.broker_id)
    forward(
        node,
        request,
        lambda controller: controller.register_broker(message, session_alive=session_alive),
        lambda error: BrokerRegistrationResponse(error_code=error.code),
    )
    return None
