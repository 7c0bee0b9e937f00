"""DeleteShareGroupState: the group coordinator deletes the state of share partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.share_states import DELETE
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        refusal: DeleteShareGroupStateResponse = DELETE.refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    services.coordinators.share_states.answer(DELETE, message, request.park())
    return None
