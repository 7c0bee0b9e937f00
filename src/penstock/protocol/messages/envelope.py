"""Envelope (API key 58). A broker forwards a client request to the controller, with its principal and address."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: bytes = field("0+")
    request_principal: bytes | None = field("0+", nullable="0+")
    client_host_address: bytes = field("0+")


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field("0+", nullable="0+", default=None)
    error_code: Int16 = field("0+")
