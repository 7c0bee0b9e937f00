"""CreateDelegationToken: makes a token for the client, or for another user. Versions 1-3: 3 adds the owner."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import may_use_tokens
from penstock.broker.net.request import Request
from penstock.controller.tokens import created_response, token_owner
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.security.authorizer import Operation, Resource, ResourceKind

VERSIONS = (1, 3)


def handle(
    services: AdminServices, request: Request, message: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | None:
    requester = request.principal
    owner = token_owner(message, requester)

    def refusal(error: KafkaError) -> CreateDelegationTokenResponse:
        return created_response(owner, requester, request.version, error.code)

    if not may_use_tokens(request):
        return refusal(KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    user = Resource(ResourceKind.USER, str(owner))
    if owner != requester and not request.may(Operation.CREATE_TOKENS, user):
        return refusal(KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED))
    if any(renewer.principal_type != "User" for renewer in message.renewers):
        return refusal(KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE))
    now_ms, version = services.clock.now_ms, request.version
    services.forwarding.forward(
        request,
        lambda controller: controller.create_delegation_token(message, requester, now_ms(), version),
        refusal,
        about=[f"a delegation token of {owner}"],
    )
    return None
