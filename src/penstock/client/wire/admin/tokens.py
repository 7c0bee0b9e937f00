"""Delegation tokens: made, renewed, ended and listed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from penstock.security.principal import Principal, parse_principal


@dataclass(frozen=True, slots=True)
class DelegationTokenDescription:
    token_id: str
    # The password of the token. It is a secret, and not part of `repr`.
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int

    def __repr__(self) -> str:
        return f"DelegationTokenDescription({self.token_id!r}, owner={self.owner!r}, hmac hidden)"


class Tokens:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationTokenDescription:
        """Make a token of the user that is logged in, or of another `owner` (`User:alice`)."""
        principal = parse_principal(owner) if owner is not None else None
        names = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=principal.type if principal else None,
            owner_principal_name=principal.name if principal else None,
            renewers=[
                CreatableRenewers(principal_type=each.type, principal_name=each.name)
                for each in map(parse_principal, names)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        response = self._cluster.request(request, CreateDelegationTokenResponse)
        raise_for(response.error_code, None, "cannot make a delegation token")
        return DelegationTokenDescription(
            token_id=response.token_id,
            hmac=bytes(response.hmac),
            owner=str(Principal(response.principal_type, response.principal_name)),
            requester=str(Principal(response.token_requester_principal_type, response.token_requester_principal_name)),
            renewers=names,
            issued_at_ms=response.issue_timestamp_ms,
            expires_at_ms=response.expiry_timestamp_ms,
            max_at_ms=response.max_timestamp_ms,
        )

    def renew(self, hmac: bytes, period_ms: int = -1) -> int:
        """Returns when the token expires now, in milliseconds since 1970."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        response = self._cluster.request(request, RenewDelegationTokenResponse)
        raise_for(response.error_code, None, "cannot renew the delegation token")
        return response.expiry_timestamp_ms

    def expire(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let the token expire after this time, or with a negative time at once."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        response = self._cluster.request(request, ExpireDelegationTokenResponse)
        raise_for(response.error_code, None, "cannot end the delegation token")
        return response.expiry_timestamp_ms

    def list(self, owners: Iterable[str] = ()) -> list[DelegationTokenDescription]:
        """The tokens of these owners, or all that the user may see."""
        wanted = [
            DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
            for each in map(parse_principal, owners)
        ]
        response = self._cluster.request(
            DescribeDelegationTokenRequest(owners=wanted or None), DescribeDelegationTokenResponse
        )
        raise_for(response.error_code, None, "cannot list delegation tokens")
        return [
            DelegationTokenDescription(
                token_id=token.token_id,
                hmac=bytes(token.hmac),
                owner=str(Principal(token.principal_type, token.principal_name)),
                requester=str(Principal(token.token_requester_principal_type, token.token_requester_principal_name)),
                renewers=tuple(str(Principal(each.principal_type, each.principal_name)) for each in token.renewers),
                issued_at_ms=token.issue_timestamp,
                expires_at_ms=token.expiry_timestamp,
                max_at_ms=token.max_timestamp,
            )
            for token in response.tokens
        ]
