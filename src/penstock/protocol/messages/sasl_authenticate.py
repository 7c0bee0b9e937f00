"""SaslAuthenticate (API key 36). Carry one step of a SASL exchange."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int64


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field("0+")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    auth_bytes: bytes = field("0+")
    session_lifetime_ms: Int64 = field("1+", ignorable=True)
