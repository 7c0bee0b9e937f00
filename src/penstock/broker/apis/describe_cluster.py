"""DescribeCluster: the cluster's id, brokers and controller.

Versions 0-2: 1 selects brokers or controllers, 2 adds fenced brokers.
"""

from __future__ import annotations

from penstock.broker.apis.services import ClusterServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

VERSIONS = (0, 2)

BROKERS = 1


def handle(services: ClusterServices, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    if message.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if message.endpoint_type == 2
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this listener answers for brokers only",
            cluster_id=services.cluster_id,
        )
    response = DescribeClusterResponse(cluster_id=services.cluster_id, controller_id=services.settings.static.node_id)
    for broker in services.metadata.image.brokers.values():
        if broker.fenced and not message.include_fenced_brokers:
            continue
        endpoint = services.endpoints.reachable_at(request.connection, broker)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
            )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = request.allowed_of_cluster()
    return response
