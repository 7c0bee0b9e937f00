"""Heartbeat: a member of a classic group is alive. Versions 0-4: 3 adds static members.

While the group is loading, the response is success, as in Kafka; the next heartbeat gets the actual state.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask_group
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = (0, 4)


def handle(services: GroupServices, request: Request, message: HeartbeatRequest) -> HeartbeatResponse | None:
    def refusal(code: ErrorCode) -> HeartbeatResponse:
        code_for_client = ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code
        return HeartbeatResponse(error_code=code_for_client)

    return ask_group(
        services.coordinators.groups,
        request,
        message.group_id,
        lambda shard, token, caller, now_ms: shard.heartbeat(message, token, caller, now_ms),
        refusal,
    )
