"""ReadShareGroupState: the leader of a partition reads the state of its share partitions. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.share_states import READ
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        refusal: ReadShareGroupStateResponse = READ.refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    services.coordinators.share_states.answer(READ, message, request.park())
    return None
