"""BrokerHeartbeat: a broker is alive, and may ask to be unfenced or to stop.

Versions 0-2: 1 adds failed log directories, 2 cordoned ones. The controller remembers the connection: when it ends, the
broker may have died.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 2)


def handle(
    services: ControllerServices, request: Request, message: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse | None:
    upkeep = services.upkeep
    refused = services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.broker_heartbeat(message, upkeep.now_ms()),
        lambda error: BrokerHeartbeatResponse(error_code=error.code),
    )
    if refused is None:
        upkeep.heard_of(message.broker_id, message.broker_epoch, request.connection)
    return refused
