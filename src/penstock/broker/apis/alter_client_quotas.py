"""AlterClientQuotas: sets and removes quotas of clients. Versions 0-1."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.client_quotas import refused
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: AlterClientQuotasRequest
) -> AlterClientQuotasResponse | None:
    def refusal(error: KafkaError) -> AlterClientQuotasResponse:
        return refused(message, error)

    if not request.may(Operation.ALTER_CONFIGS, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    services.forwarding.forward(request, lambda controller: controller.alter_client_quotas(message), refusal)
    return None
