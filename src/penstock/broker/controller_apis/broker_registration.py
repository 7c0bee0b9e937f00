"""BrokerRegistration: registers a broker that joins the cluster or returns to it.

Versions 0-4: 2 adds log directories, 3 the epoch of the previous registration, if that ended with a clean shutdown.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.BROKER_REGISTRATION
VERSIONS = (0, 4)


def handle(
    services: ControllerServices, request: Request, message: BrokerRegistrationRequest
) -> BrokerRegistrationResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    session_alive = services.upkeep.session_alive(message.broker_id)
    services.forwarding.forward(
        request,
        lambda controller: controller.register_broker(message, session_alive=session_alive),
        lambda error: BrokerRegistrationResponse(error_code=error.code),
    )
    return None
