"""Delegation tokens: made, renewed, ended, and removed when they have expired.

A token's HMAC is a function of its id and the secret of the cluster; requests name a token by its HMAC.
"""

from __future__ import annotations

import base64
from typing import Final

from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.metadata.image import MetadataImage, token_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.metadata_records import RemoveDelegationTokenRecord
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from penstock.security.principal import Principal, is_storable
from penstock.security.tokens import DelegationToken, TokenHmacs, token_hmac
from penstock.settings.sasl import SaslSettings

REQUESTER_NAMED_SINCE: Final = 3
RENEWERS_MAX: Final = 65_536  # characters of all: each renewal, a small request, writes all of them
_LONG_MAX: Final = 2**63 - 1


class TokenHandlers:
    def __init__(
        self, image: MetadataImage, settings: SaslSettings, now_ms: int, hmacs: TokenHmacs | None = None
    ) -> None:
        """`hmacs`: of the tokens, for those who keep them between requests."""
        self._hmacs = hmacs or TokenHmacs()
        self._image = image
        self._settings = settings
        self._now_ms = now_ms

    @property
    def _secret(self) -> str:
        secret = self._settings.delegation_token_secret_key
        if secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return secret

    def create(
        self,
        request: CreateDelegationTokenRequest,
        requester: Principal,
        new_id: Uuid,
        version: int = REQUESTER_NAMED_SINCE,
    ) -> Result[CreateDelegationTokenResponse]:
        """`version`: of the request, and so of the response."""
        secret, settings, now_ms = self._secret, self._settings, self._now_ms
        if any(renewer.principal_type != "User" for renewer in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers = tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers)
        owner = token_owner(request, requester)
        if not all(map(is_storable, (owner, *renewers))):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The name of a principal is empty or too long.")
        if sum(len(str(renewer)) for renewer in renewers) > RENEWERS_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The renewers have more than {RENEWERS_MAX} characters.")
        lifetime_ms = settings.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        max_at_ms = min(_LONG_MAX, now_ms + lifetime_ms)
        token = DelegationToken(
            base64.urlsafe_b64encode(new_id).rstrip(b"=").decode("ascii"),
            owner,
            requester,
            renewers,
            now_ms,
            max_at_ms,
            min(max_at_ms, now_ms + settings.delegation_token_expiry_time_ms),
        )
        response = created_response(token.owner, requester, version)
        response.issue_timestamp_ms = token.issued_at_ms
        response.expiry_timestamp_ms = token.expires_at_ms
        response.max_timestamp_ms = token.max_at_ms
        response.token_id = token.token_id
        response.hmac = token_hmac(secret, token.token_id)
        return Result([token_record(token)], response)

    def renew(self, request: RenewDelegationTokenRequest, principal: Principal) -> Result[RenewDelegationTokenResponse]:
        token = self._token(request.hmac)
        if token.is_expired(self._now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        self._check_renewer(token, principal)
        period_ms = self._settings.delegation_token_expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        expires_at_ms = min(token.max_at_ms, self._now_ms + period_ms)
        record = token_record(token._replace(expires_at_ms=expires_at_ms))
        return Result([record], RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms))

    def expire(
        self, request: ExpireDelegationTokenRequest, principal: Principal
    ) -> Result[ExpireDelegationTokenResponse]:
        token = self._token(request.hmac)
        self._check_renewer(token, principal)
        if request.expiry_time_period_ms < 0:
            response = ExpireDelegationTokenResponse(expiry_timestamp_ms=self._now_ms)
            return Result([RemoveDelegationTokenRecord(token_id=token.token_id)], response)
        if token.is_expired(self._now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        expires_at_ms = min(token.max_at_ms, self._now_ms + request.expiry_time_period_ms)
        record = token_record(token._replace(expires_at_ms=expires_at_ms))
        return Result([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms))

    def sweep(self) -> Result[None]:
        """Periodic: remove what has expired."""
        expired = [token for token in self._image.delegation_tokens.values() if token.is_expired(self._now_ms)]
        records: list[Message] = [
            RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired[:MAX_RECORDS_PER_REQUEST]
        ]
        return Result(records, None)

    def _token(self, given: bytes) -> DelegationToken:
        secret = self._secret
        token = self._hmacs.find(self._image.delegation_tokens, secret, bytes(given))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    @staticmethod
    def _check_renewer(token: DelegationToken, principal: Principal) -> None:
        if not token.may_be_renewed_by(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def token_owner(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def created_response(
    owner: Principal, requester: Principal, version: int, error: ErrorCode = ErrorCode.NONE
) -> CreateDelegationTokenResponse:
    is_named = version >= REQUESTER_NAMED_SINCE
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if is_named else "",
        token_requester_principal_name=requester.name if is_named else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
