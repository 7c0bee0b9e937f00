"""WriteShareGroupState: the leader of a partition writes what has changed in its share partitions.

Versions 0-1: 1 adds the number of records that are done.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.share_states import WRITE
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 1)


def handle(
    services: GroupServices, request: Request, message: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        refusal: WriteShareGroupStateResponse = WRITE.refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    services.coordinators.share_states.answer(WRITE, message, request.park())
    return None
