"""AlterClientQuotas: sets and removes quotas of clients. Versions 0-1."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.client_quotas import refused
from penstock.model.errors import KafkaError
from penstock.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: AlterClientQuotasRequest
) -> AlterClientQuotasResponse | None:
    def refusal(error: KafkaError) -> AlterClientQuotasResponse:
        return refused(message, error)

    return services.forwarding.forward_allowed(
        Operation.ALTER_CONFIGS,
        request,
        lambda controller: controller.alter_client_quotas(message),
        refusal,
        about=(
            "quotas of " + ", ".join(f"{part.entity_type} {part.entity_name or 'default'}" for part in entry.entity)
            for entry in message.entries
        ),
    )
