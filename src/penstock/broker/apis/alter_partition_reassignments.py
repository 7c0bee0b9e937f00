"""AlterPartitionReassignments: starts or cancels reassignments of partitions.

Versions 0-1: 1 can require an unchanged number of replicas.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | None:
    return services.forwarding.forward_allowed(
        Operation.ALTER,
        request,
        lambda controller: controller.alter_partition_reassignments(message),
        lambda error: AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message),
        about=(topic.name for topic in message.topics),
    )
