"""SaslHandshake (API key 17). Choose a SASL mechanism."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: str = field("0+")


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: Int16 = field("0+")
    mechanisms: list[str] = field("0+")
