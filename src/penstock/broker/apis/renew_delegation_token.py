"""RenewDelegationToken: extends the life of a token. Versions 1-2."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import may_use_tokens
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

VERSIONS = (1, 2)


def handle(
    services: AdminServices, request: Request, message: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | None:
    def refusal(error: KafkaError) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)

    if not may_use_tokens(request):
        return refusal(KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    clock, principal = services.clock, request.principal
    services.forwarding.forward(
        request,
        lambda controller: controller.renew_delegation_token(message, principal, clock.now_ms()),
        refusal,
        about=["a delegation token"],
    )
    return None
