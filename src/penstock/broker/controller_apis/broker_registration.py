"""BrokerRegistration: registers a broker that joins the cluster or returns to it.

Versions 0-4: 2 adds log directories, 3 the epoch of the previous registration, if that ended with a clean shutdown.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 4)


def handle(
    services: ControllerServices, request: Request, message: BrokerRegistrationRequest
) -> BrokerRegistrationResponse | None:
    session_alive = services.upkeep.session_alive(message.broker_id)
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.register_broker(message, session_alive=session_alive),
        lambda error: BrokerRegistrationResponse(error_code=error.code),
    )
