"""DescribeDelegationToken (API key 41). List delegation tokens."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    # Null: the tokens of all owners.
    owners: list[DescribeDelegationTokenOwner] | None = field("0+", nullable="0+")


class DescribeDelegationTokenOwner(Message):
    principal_type: str = field("0+")
    principal_name: str = field("0+")


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    error_code: Int16 = field("0+")
    tokens: list[DescribedDelegationToken] = field("0+")
    throttle_time_ms: Int32 = field("0+")


class DescribedDelegationToken(Message):
    principal_type: str = field("0+")
    principal_name: str = field("0+")
    token_requester_principal_type: str = field("3+")
    token_requester_principal_name: str = field("3+")
    issue_timestamp: Int64 = field("0+")
    expiry_timestamp: Int64 = field("0+")
    max_timestamp: Int64 = field("0+")
    token_id: str = field("0+")
    hmac: bytes = field("0+")
    renewers: list[DescribedDelegationTokenRenewer] = field("0+")


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = field("0+")
    principal_name: str = field("0+")
