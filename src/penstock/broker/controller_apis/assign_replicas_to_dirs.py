"""AssignReplicasToDirs: a broker reports the log directories of its replicas. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ASSIGN_REPLICAS_TO_DIRS
VERSIONS = (0, 0)


def handle(
    services: ControllerServices, request: Request, message: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return AssignReplicasToDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services.forwarding.forward(
        request,
        lambda controller: controller.assign_replicas_to_dirs(message),
        lambda error: AssignReplicasToDirsResponse(error_code=error.code),
    )
    return None
