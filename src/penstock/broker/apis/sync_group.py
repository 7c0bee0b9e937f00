"""SyncGroup: the leader of a classic group sends the assignment, and each member receives its part.

Versions 0-5: 3 adds static members, 5 the protocol type and name, which it requires.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask_group
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS = (0, 5)

PROTOCOL_SINCE = 5


def handle(services: GroupServices, request: Request, message: SyncGroupRequest) -> SyncGroupResponse | None:
    def refusal(code: ErrorCode) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=code)

    if request.version >= PROTOCOL_SINCE and (message.protocol_type is None or message.protocol_name is None):
        return refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask_group(
        services.coordinators.groups,
        request,
        message.group_id,
        lambda shard, token, caller, now_ms: shard.sync_group(message, token, caller, now_ms),
        refusal,
    )
