"""ExpireDelegationToken: ends the life of a token. Versions 1-2."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import may_use_tokens
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

VERSIONS = (1, 2)


def handle(
    services: AdminServices, request: Request, message: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | None:
    def refusal(error: KafkaError) -> ExpireDelegationTokenResponse:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)

    if not may_use_tokens(request):
        return refusal(KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    clock, principal = services.clock, request.principal
    services.forwarding.forward(
        request,
        lambda controller: controller.expire_delegation_token(message, principal, clock.now_ms()),
        refusal,
        about=["a delegation token"],
    )
    return None
