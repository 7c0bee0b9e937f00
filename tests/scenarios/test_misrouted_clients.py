"""ApiVersions 5: a client that reached another node than it meant to must bootstrap again (KIP-1242)."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.testing.nodes import RunningNode
from wire import Wire


def greet(wire: Wire, version: int, cluster_id: str | None, node_id: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name="tests", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    response: ApiVersionsResponse = wire.ask(request, version)
    return response


@pytest.mark.parametrize(
    ("cluster", "node", "expected"),
    [
        (True, 0, ErrorCode.NONE),
        (None, None, ErrorCode.NONE),
        (True, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (False, 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        (True, None, ErrorCode.INVALID_REQUEST),
        (None, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_names_the_node_that_it_means(
    broker: RunningNode, cluster: bool | None, node: int | None, expected: ErrorCode
) -> None:
    """`cluster`: this one, another one, or none. `node`: how far its id is from this node's, or none."""
    with Wire(broker) as wire:
        described = wire.ask(DescribeClusterRequest())
        cluster_id = None if cluster is None else described.cluster_id if cluster else "another"
        node_id = -1 if node is None else described.brokers[0].broker_id + node
        response = greet(wire, 5, cluster_id, node_id)
        assert response.error_code == expected
        assert bool(response.api_keys) == (expected == ErrorCode.NONE)
        # Older versions cannot name a node, and the connection is still good.
        assert greet(wire, 4, cluster_id, node_id).error_code == ErrorCode.NONE
