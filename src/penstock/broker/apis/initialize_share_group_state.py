"""InitializeShareGroupState: the group coordinator starts the state of share partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.share_states import INITIALIZE
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        refusal: InitializeShareGroupStateResponse = INITIALIZE.refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    services.coordinators.share_states.answer(INITIALIZE, message, request.park())
    return None
