"""RenewDelegationToken (API key 39). Extend the life of a delegation token."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    hmac: bytes = field("0+")
    renew_period_ms: Int64 = field("0+")


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    error_code: Int16 = field("0+")
    expiry_timestamp_ms: Int64 = field("0+")
    throttle_time_ms: Int32 = field("0+")
