"""AlterPartition: a partition leader requests a change of its in-sync replicas.

Versions 2-3: 3 adds broker epochs, so that a replica that restarted meanwhile cannot join.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.security.authorizer import Operation

VERSIONS = (2, 3)


def handle(
    services: ControllerServices, request: Request, message: AlterPartitionRequest
) -> AlterPartitionResponse | None:
    return services.forwarding.forward_allowed(
        Operation.CLUSTER_ACTION,
        request,
        lambda controller: controller.alter_partition(message),
        lambda error: AlterPartitionResponse(error_code=error.code),
    )
