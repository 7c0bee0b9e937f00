"""RenewDelegationToken: extends the life of a token. Versions 1-2."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import change_token
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

VERSIONS = (1, 2)


def handle(
    services: AdminServices, request: Request, message: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | None:
    def refusal(error: KafkaError) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)

    def renew(controller: Controller) -> Result[RenewDelegationTokenResponse]:
        return controller.renew_delegation_token(message, principal, clock.now_ms())

    clock, principal = services.clock, request.principal
    return change_token(services, request, renew, refusal)
