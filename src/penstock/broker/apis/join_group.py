"""JoinGroup: joins a classic group and waits for the other members.

Versions 0-9: 1 adds the rebalance timeout, 4 makes a new member join again with the id it gets, 5 adds static members,
7 the protocol type in the response, 8 a reason, 9 lets a static leader keep its assignment.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import member_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.security.authorizer import Operation, group_resource

VERSIONS = (0, 9)

NULL_PROTOCOL_SINCE = 7


def handle(services: GroupServices, request: Request, message: JoinGroupRequest) -> JoinGroupResponse | None:
    def refusal(code: ErrorCode) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=code, member_id=message.member_id)

    def at_request_version(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code and request.version >= NULL_PROTOCOL_SINCE:
            response.protocol_name = None
        return response

    if not request.may(Operation.READ, group_resource(message.group_id)):
        return at_request_version(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    caller = member_of(request)
    answer = request.park()
    services.coordinators.groups.submit(
        message.group_id,
        lambda shard, token, now_ms: shard.join_group(message, token, caller, now_ms),
        Waiting(lambda response: answer(at_request_version(response)), refusal),
    )
    return None
