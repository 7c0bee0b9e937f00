"""SaslHandshake: chooses a SASL mechanism. Versions 0-1.

Requests that belong to an authentication do not come here: `broker.authentication` handles them. What comes here is
out of place, on a connection that needs no authentication or is past it.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

VERSIONS = (0, 1)


def handle(services: AdminServices, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
