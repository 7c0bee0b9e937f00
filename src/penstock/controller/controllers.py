"""Controllers register with the active one, with their endpoints and supported features. An operator removes the
registration of a controller that will not return."""

from __future__ import annotations

from collections.abc import Container

from penstock.controller.result import Result
from penstock.metadata.features import METADATA_4_4_IV2
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.protocol.messages.metadata_records import RegisterControllerRecord, UnregisterControllerRecord
from penstock.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def register_controller(request: ControllerRegistrationRequest) -> Result[ControllerRegistrationResponse]:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=list(request.listeners),
        features=list(request.features),
    )
    return Result([record], ControllerRegistrationResponse(error_message=None))


def unregister_controller(
    image: MetadataImage, request: UnregisterControllerRequest, voters: Container[int]
) -> Result[UnregisterControllerResponse]:
    controller_id = request.controller_id
    if controller_id in voters:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot unregister controller {controller_id} because it is part of the voter set.",
        )
    if image.metadata_version < METADATA_4_4_IV2:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in image.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    record = UnregisterControllerRecord(controller_id=controller_id)
    return Result([record], UnregisterControllerResponse(error_message=None))
