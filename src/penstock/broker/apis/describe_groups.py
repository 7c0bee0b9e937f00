"""DescribeGroups: classic groups and their members.

Versions 0-6: 3 adds the client's authorized operations, 4 static members, 6 answers GROUP_ID_NOT_FOUND for a group that
does not exist.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import ask_shards, caller_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.security.authorizer import GROUP_OPERATIONS, Operation, group_resource

VERSIONS = (0, 6)


def handle(services: GroupServices, request: Request, message: DescribeGroupsRequest) -> None:
    response = DescribeGroupsResponse()
    answer = request.park(mute=True)
    caller = caller_of(request)

    def check(group_id: str) -> ErrorCode:
        is_allowed = request.may(Operation.DESCRIBE, group_resource(group_id))
        return ErrorCode.NONE if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED

    def take(part: DescribeGroupsResponse) -> None:
        for group in part.groups:
            if message.include_authorized_operations and not group.error_code:
                group.authorized_operations = request.allowed_of(GROUP_OPERATIONS, group_resource(group.group_id))
        response.groups += part.groups

    ask_shards(
        services.coordinators.groups,
        request,
        dict.fromkeys(message.groups),
        lambda shard, group_id, token, now_ms: shard.describe_groups(
            DescribeGroupsRequest(groups=[group_id]), token, caller, now_ms
        ),
        check=check,
        refusal=lambda group_id, code: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code)]
        ),
        take=take,
        done=lambda: answer(response),
    )
