"""DescribeCluster on a controller: the nodes of the quorum that have registered.

Versions 0-2: 1 adds the type of nodes to return, 2 fenced brokers.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 2)

CONTROLLERS = 2


def handle(services: ControllerServices, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    # Nodes that join ask for the cluster's id.
    if not request.could(Operation.CLUSTER_ACTION, CLUSTER) and not request.may(Operation.ALTER, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClusterResponse(error_code=code, error_message=code.text)
    response = DescribeClusterResponse(
        cluster_id=services.cluster_id, controller_id=services.quorum.controller_id, endpoint_type=CONTROLLERS
    )
    if message.endpoint_type != CONTROLLERS and request.version >= 1:
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response.error_message = "this listener answers for controllers only"
        return response
    listener = request.connection.listener.name
    registered = services.quorum.image.controllers
    for voter in services.quorum.voters:
        controller = registered.get(voter.key.node_id)
        endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in voter.endpoints}
        if controller is not None:
            endpoints |= {name: (each.host, each.port) for name, each in controller.endpoints.items()}
        if listener in endpoints:
            host, port = endpoints[listener]
            response.brokers.append(DescribeClusterBroker(broker_id=voter.key.node_id, host=host, port=port))
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = request.allowed_of_cluster()
    return response
