"""AlterPartitionReassignments: starts or cancels reassignments of partitions.

Versions 0-1: 1 can require an unchanged number of replicas.
"""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | None:
    def refusal(error: KafkaError) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

    if not request.may(Operation.ALTER, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    services.forwarding.forward(
        request,
        lambda controller: controller.alter_partition_reassignments(message),
        refusal,
        about=(topic.name for topic in message.topics),
    )
    return None
