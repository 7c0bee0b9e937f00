"""ReadShareGroupStateSummary: the start offsets of share partitions, without their batches.

Versions 0-1: 1 adds the number of records that are done.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.share_states import SUMMARY
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 1)


def handle(
    services: GroupServices, request: Request, message: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        refusal: ReadShareGroupStateSummaryResponse = SUMMARY.refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return refusal
    services.coordinators.share_states.answer(SUMMARY, message, request.park())
    return None
