"""ConsumerGroupDescribe: groups of the new protocol and their members. Versions 0-1: 1 adds the member type."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from penstock.security.authorizer import GROUP_OPERATIONS, Operation, group_resource, topic_resource

VERSIONS = (0, 1)


def handle(services: GroupServices, request: Request, message: ConsumerGroupDescribeRequest) -> None:
    response = ConsumerGroupDescribeResponse()
    answer = request.park()
    caller = caller_of(request)

    def described(part: ConsumerGroupDescribeResponse) -> None:
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
        def refusal(code: ErrorCode) -> ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(groups=[DescribedGroup(group_id=group_id, error_code=code)])

        if not services.coordinators.serves_consumer_groups:
            described(refusal(ErrorCode.UNSUPPORTED_VERSION))
            return
        if not request.may(Operation.DESCRIBE, group_resource(group_id)):
            described(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        asked = ConsumerGroupDescribeRequest(group_ids=[group_id])
        services.coordinators.groups.submit(
            group_id,
            lambda shard, token, now_ms: shard.consumer_group_describe(asked, token, caller, now_ms),
            Waiting(described, refusal),
        )

    names = dict.fromkeys(message.group_ids)
    gathering = Gathering(len(names), lambda: answer(response))
    ask_each(services.coordinators.groups.upkeep, names, ask_for)


def _topics_of(group: DescribedGroup) -> set[str]:
    return {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }
