"""ListGroups: the groups that this broker coordinates. Versions 0-5: 4 adds states and a filter by state, 5 types."""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.coordinators.questions import Gathering, ask_each, caller_of
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.net.request import Request
from penstock.groups.descriptions import shortened
from penstock.groups.shard import GroupShard
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.security.authorizer import CLUSTER, Operation, group_resource

VERSIONS = (0, 5)


def handle(services: GroupServices, request: Request, message: ListGroupsRequest) -> None:
    response = ListGroupsResponse()
    wanted = shortened(message)
    partitions = list(services.coordinators.groups.partitions.values())
    may_see_all = request.could(Operation.DESCRIBE, CLUSTER)
    answer = request.park(mute=True)
    caller = caller_of(request)

    def listed(part: ListGroupsResponse) -> None:
        if part.error_code and part.error_code != ErrorCode.NOT_COORDINATOR:
            response.error_code = part.error_code
        response.groups += [
            group
            for group in part.groups
            if may_see_all or request.could(Operation.DESCRIBE, group_resource(group.group_id))
        ]
        gathering.one_more()

    def done() -> None:
        answer(ListGroupsResponse(error_code=response.error_code) if response.error_code else response)

    def ask(partition: CoordinatorPartition[GroupShard]) -> None:
        partition.submit(
            lambda shard, token, now_ms: shard.list_groups(wanted, token, caller, now_ms),
            Waiting(listed, lambda code: ListGroupsResponse(error_code=code)),
        )

    gathering = Gathering(len(partitions), done)
    ask_each(services.coordinators.groups.upkeep, request, partitions, ask)
