"""DescribeGroups: classic groups and their members.

Versions 0-6: 3 adds the client's authorized operations, 4 static members, 6 answers GROUP_ID_NOT_FOUND for a group that
does not exist.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.security.authorizer import GROUP_OPERATIONS, Operation, group_resource

VERSIONS = (0, 6)


def handle(services: GroupServices, request: Request, message: DescribeGroupsRequest) -> None:
    response = DescribeGroupsResponse()
    answer = request.park(mute=True)
    caller = caller_of(request)

    def described(part: DescribeGroupsResponse) -> None:
        for group in part.groups:
            if message.include_authorized_operations and not group.error_code:
                group.authorized_operations = request.allowed_of(GROUP_OPERATIONS, group_resource(group.group_id))
        response.groups += part.groups
        gathering.one_more()

    def ask_for(group_id: str) -> None:
        def refusal(code: ErrorCode) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group_id, error_code=code)])

        if not request.may(Operation.DESCRIBE, group_resource(group_id)):
            described(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        asked = DescribeGroupsRequest(groups=[group_id])
        services.coordinators.groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.describe_groups(asked, token, caller, now_ms),
            Waiting(described, refusal),
        )

    names = dict.fromkeys(message.groups)
    gathering = Gathering(len(names), lambda: answer(response))
    ask_each(services.coordinators.groups.upkeep, request, names, ask_for)
