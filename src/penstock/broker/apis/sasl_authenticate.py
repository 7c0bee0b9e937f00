"""SaslAuthenticate: carries one step of a SASL exchange. Versions 0-2: 1 adds the session's lifetime.

Requests that belong to an authentication do not come here: `broker.authentication` handles them. What comes here is
out of place, on a connection that needs no authentication or is past it.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

VERSIONS = (0, 2)

_REFUSAL = "SaslAuthenticate request received after successful authentication"


def handle(services: AdminServices, request: Request, message: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_REFUSAL)
