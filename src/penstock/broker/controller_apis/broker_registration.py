"""BrokerRegistration: registers a broker that joins the cluster or returns to it.

Versions 0-4: 2 adds log directories, 3 the epoch of the previous registration, if that ended with a clean shutdown. The
response has no field for a reason, so the controller logs it.
"""

from __future__ import annotations

import logging

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 4)

logger = logging.getLogger("penstock.lifecycle")


def handle(
    services: ControllerServices, request: Request, message: BrokerRegistrationRequest
) -> BrokerRegistrationResponse | None:
    session_alive = services.upkeep.session_alive(message.broker_id)
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.register_broker(message, session_alive=session_alive),
        lambda error: _refused(message.broker_id, error),
    )


def _refused(broker_id: int, error: KafkaError) -> BrokerRegistrationResponse:
    if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        logger.warning("broker %d is refused: %s", broker_id, error.message)
    return BrokerRegistrationResponse(error_code=error.code)
