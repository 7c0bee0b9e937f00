"""ListPartitionReassignments: which partitions are being moved. Version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import forward
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(
    node: Node, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | None:
    def refusal(error: KafkaError) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

    if not request.may(Operation.DESCRIBE, CLUSTER):
        return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    forward(node, request, lambda controller: controller.list_partition_reassignments(message), refusal)
    return None
