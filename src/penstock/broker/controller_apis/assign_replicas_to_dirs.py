"""AssignReplicasToDirs: a broker tells in which of its directories replicas are. Version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import forward
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.ASSIGN_REPLICAS_TO_DIRS
VERSIONS = (0, 0)


def handle(node: Node, request: Request, message: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    forward(
        node,
        request,
        lambda controller: controller.assign_replicas_to_dirs(message),
        lambda error: AssignReplicasToDirsResponse(error_code=error.code),
    )
    return None
