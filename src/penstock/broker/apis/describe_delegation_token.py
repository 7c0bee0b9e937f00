"""DescribeDelegationToken: the tokens that the client may see. Versions 1-3: 3 adds the requester.

A client sees the tokens that it owns or may renew, and with the permission others.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.apis.services import AdminServices
from penstock.broker.apis.token_requests import may_use_tokens
from penstock.broker.net.request import Request
from penstock.controller.tokens import REQUESTER_NAMED_SINCE
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.security.authorizer import Operation, Resource, ResourceKind
from penstock.security.principal import Principal
from penstock.security.tokens import DelegationToken, token_hmac

VERSIONS = (1, 3)


def handle(
    services: AdminServices, request: Request, message: DescribeDelegationTokenRequest
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    if not may_use_tokens(request):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    secret = services.settings.static.delegation_token_secret_key
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if message.owners is not None:
        owners = {Principal(owner.principal_type, owner.principal_name) for owner in message.owners}
    response = DescribeDelegationTokenResponse()
    for token in services.quorum.image.delegation_tokens.values():
        if (owners is None or token.owner in owners) and _may_see(request, token):
            response.tokens.append(_described(token, secret, request.version))
        yield
    return response


def _may_see(request: Request, token: DelegationToken) -> bool:
    return (
        token.may_be_renewed_by(request.principal)
        or request.principal == token.requester
        or request.could(Operation.DESCRIBE, Resource(ResourceKind.DELEGATION_TOKEN, token.token_id))
        or request.could(Operation.DESCRIBE_TOKENS, Resource(ResourceKind.USER, str(token.owner)))
    )


def _described(token: DelegationToken, secret: str, version: int) -> DescribedDelegationToken:
    is_requester_named = version >= REQUESTER_NAMED_SINCE
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if is_requester_named else "",
        token_requester_principal_name=token.requester.name if is_requester_named else "",
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
