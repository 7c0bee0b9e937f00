"""ShareGroupDescribe: share groups and their members. Version 1."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.security.authorizer import GROUP_OPERATIONS, Operation, group_resource, topic_resource

VERSIONS = (1, 1)


def handle(services: GroupServices, request: Request, message: ShareGroupDescribeRequest) -> None:
    response = ShareGroupDescribeResponse()
    answer = request.park()
    caller = caller_of(request)

    def described(part: ShareGroupDescribeResponse) -> None:
        for index, group in enumerate(part.groups):
            if not all(request.may(Operation.DESCRIBE, topic_resource(topic)) for topic in _topics_of(group)):
                part.groups[index] = DescribedGroup(
                    group_id=group.group_id,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message="The group has described topic(s) that the client is not authorized to describe.",
                )
            elif message.include_authorized_operations and not group.error_code:
                group.authorized_operations = request.allowed_of(GROUP_OPERATIONS, group_resource(group.group_id))
        response.groups += part.groups
        gathering.one_more()

    def ask_for(group_id: str) -> None:
        def refusal(code: ErrorCode) -> ShareGroupDescribeResponse:
            return ShareGroupDescribeResponse(groups=[DescribedGroup(group_id=group_id, error_code=code)])

        if not services.coordinators.serves_share_groups:
            described(refusal(ErrorCode.UNSUPPORTED_VERSION))
            return
        if not request.may(Operation.DESCRIBE, group_resource(group_id)):
            described(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        asked = ShareGroupDescribeRequest(group_ids=[group_id])
        services.coordinators.groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.share_group_describe(asked, token, caller, now_ms),
            Waiting(described, refusal),
        )

    names = dict.fromkeys(message.group_ids)
    gathering = Gathering(len(names), lambda: answer(response))
    ask_each(services.coordinators.groups.upkeep, names, ask_for)


def _topics_of(group: DescribedGroup) -> set[str]:
    return {part.topic_name for member in group.members for part in member.assignment.topic_partitions}
