"""UnregisterBroker: removes the registration of a broker that will not come back. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | None:
    return services.forwarding.forward_allowed(
        Operation.ALTER,
        request,
        lambda controller: controller.unregister_broker(message),
        lambda error: UnregisterBrokerResponse(error_code=error.code, error_message=error.message),
        about=[f"broker {message.broker_id}"],
    )
