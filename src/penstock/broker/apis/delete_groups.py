"""DeleteGroups: deletes groups of any kind that have no members, with all their offsets.

Versions 0-3: 3 adds error messages, which Kafka sends only for errors of plug-ins.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.questions import Gathering, caller_of
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from penstock.security.authorizer import Operation, group_resource

VERSIONS = (0, 3)


def handle(services: GroupServices, request: Request, message: DeleteGroupsRequest) -> None:
    response = DeleteGroupsResponse()
    answer = request.park()
    caller = caller_of(request)
    names = list(dict.fromkeys(message.groups_names))

    def deleted(part: DeleteGroupsResponse) -> None:
        response.results += part.results
        gathering.one_more()

    def ask_for(group_id: str) -> None:
        def refusal(code: ErrorCode) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=code)])

        if not request.may(Operation.DELETE, group_resource(group_id)):
            deleted(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        services.coordinators.share_groups.delete_group(group_id, caller, deleted)

    gathering = Gathering(len(names), lambda: answer(response))
    for each in names:
        ask_for(each)
