"""AlterUserScramCredentials: sets and removes SCRAM credentials of users. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import KafkaError
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | None:
    names = list(
        dict.fromkeys([*(each.name for each in message.deletions), *(each.name for each in message.upsertions)])
    )

    def refusal(error: KafkaError) -> AlterUserScramCredentialsResponse:
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
                for name in names
            ]
        )

    return services.forwarding.forward_allowed(
        Operation.ALTER,
        request,
        lambda controller: controller.alter_user_scram_credentials(message),
        refusal,
        about=(f"user {name}" for name in names),
    )
