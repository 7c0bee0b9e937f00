"""ExpireDelegationToken: ends the life of a token. Versions 1-2."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import change_token
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
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

    def expire(controller: Controller) -> Result[ExpireDelegationTokenResponse]:
        return controller.expire_delegation_token(message, principal, clock.now_ms())

    clock, principal = services.clock, request.principal
    return change_token(services, request, expire, refusal)
