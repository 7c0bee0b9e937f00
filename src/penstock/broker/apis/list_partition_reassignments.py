"""ListPartitionReassignments: lists partitions that are being reassigned. Version 0."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 0)


def handle(
    services: AdminServices, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | None:
    return services.forwarding.forward_allowed(
        Operation.DESCRIBE,
        request,
        lambda controller: controller.list_partition_reassignments(message),
        lambda error: ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message),
    )
