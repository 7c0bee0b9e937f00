"""ShareGroupHeartbeat: the one membership request of share groups (KIP-932). Version 1."""

from __future__ import annotations

from typing import Final

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import member_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.security.authorizer import Operation, group_resource, topic_resource

VERSIONS = (1, 1)

# The length of a UUID as text.
MEMBER_ID_LENGTH_MAX: Final = 36


def handle(
    services: GroupServices, request: Request, message: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | None:
    def refusal(code: ErrorCode, text: str = "") -> ShareGroupHeartbeatResponse:
        return ShareGroupHeartbeatResponse(error_code=code, error_message=text or None)

    if not services.coordinators.serves_share_groups:
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not request.may(Operation.READ, group_resource(message.group_id)):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not 0 < len(message.member_id) <= MEMBER_ID_LENGTH_MAX:
        return refusal(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    if any(not request.may(Operation.DESCRIBE, topic_resource(name)) for name in message.subscribed_topic_names or ()):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    services.coordinators.share_groups.heartbeat(message, member_of(request), request.park())
    return None
