"""AlterUserScramCredentials: sets and removes SCRAM credentials of users. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | None:
    def refusal(error: KafkaError) -> AlterUserScramCredentialsResponse:
        names = dict.fromkeys([each.name for each in message.deletions] + [each.name for each in message.upsertions])
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
                for name in names
            ]
        )

    if not request.may(Operation.ALTER, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    services.forwarding.forward(request, lambda controller: controller.alter_user_scram_credentials(message), refusal)
    return None
