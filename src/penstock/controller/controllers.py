"""ControllerRegistration: controllers register with the active one, with their endpoints and supported features."""

from __future__ import annotations

from penstock.controller.result import Result
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.metadata_records import RegisterControllerRecord


def register_controller(request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=list(request.listeners),
        features=list(request.features),
    )
    return Result([record], ControllerRegistrationResponse(error_message=None))
