"""LeaveGroup: removes a member from a classic group at its own request, or several at an administrator's.

Versions 0-5: 3 adds several members and static members, 5 a reason.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask_group
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

VERSIONS = (0, 5)


def handle(services: GroupServices, request: Request, message: LeaveGroupRequest) -> LeaveGroupResponse | None:
    def refusal(code: ErrorCode) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=code)

    return ask_group(
        services.coordinators.groups,
        request,
        message.group_id,
        lambda shard, token, caller, now_ms: shard.leave_group(message, token, caller, now_ms),
        refusal,
    )
