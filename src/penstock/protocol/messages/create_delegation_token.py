"""CreateDelegationToken (API key 38). Make a delegation token."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    # The default is the principal of the request.
    owner_principal_type: str | None = field("3+", nullable="3+")
    owner_principal_name: str | None = field("3+", nullable="3+")
    renewers: list[CreatableRenewers] = field("0+")
    # -1: the broker's default.
    max_lifetime_ms: Int64 = field("0+")


class CreatableRenewers(Message):
    principal_type: str = field("0+")
    principal_name: str = field("0+")


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    error_code: Int16 = field("0+")
    principal_type: str = field("0+")
    principal_name: str = field("0+")
    token_requester_principal_type: str = field("3+")
    token_requester_principal_name: str = field("3+")
    issue_timestamp_ms: Int64 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    max_timestamp_ms: Int64 = field("0+")
    token_id: str = field("0+")
    hmac: bytes = field("0+")
    throttle_time_ms: Int32 = field("0+")
