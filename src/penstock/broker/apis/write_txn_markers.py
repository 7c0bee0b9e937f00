"""WriteTxnMarkers: a transaction coordinator sends the outcome of transactions to partition leaders.

Versions 1-2: 2 adds the transaction version.
"""

from __future__ import annotations

from penstock.broker.apis.services import TransactionServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (1, 2)


def handle(
    services: TransactionServices, request: Request, message: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | None:
    if not request.could(Operation.ALTER, CLUSTER) and not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return _refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services.coordinators.marker_writer.write(message, request.park())
    return None


def _refusal(message: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )
