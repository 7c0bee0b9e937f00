"""ControllerRegistration: controllers register with the active one, with their endpoints and supported features."""

from __future__ import annotations

from penstock.controller.result import Result
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.metadata_records import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)


def register_controller(request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Result([record], ControllerRegistrationResponse(error_message=None))
