"""UnregisterBroker: removes the registration of a broker that will not come back. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.UNREGISTER_BROKER
VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: UnregisterBrokerRequest
) -> UnregisterBrokerResponse | None:
    def refusal(error: KafkaError) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)

    if not request.may(Operation.ALTER, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    services.forwarding.forward(
        request,
        lambda controller: controller.unregister_broker(message),
        refusal,
        about=[f"broker {message.broker_id}"],
    )
    return None
