"""AssignReplicasToDirs: a broker reports the log directories of its replicas. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: ControllerServices, request: Request, message: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse | None:
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.assign_replicas_to_dirs(message),
        lambda error: AssignReplicasToDirsResponse(error_code=error.code),
    )
