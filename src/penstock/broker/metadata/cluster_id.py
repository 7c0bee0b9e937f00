"""Asks the configured quorum for the cluster id: a new node belongs to that quorum's cluster."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.broker.net.peers import PeerFailed, Peers
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

ASK_S: Final = 1.0
CONTROLLERS: Final = 2  # the endpoint type of DescribeCluster


async def ask_cluster_id(settings: NodeSettings, controllers: Peers) -> str:
    """Returns when a controller has answered."""
    servers = settings.quorum_bootstrap_servers or tuple((voter.host, voter.port) for voter in settings.quorum_voters)
    logger.info("asking the quorum which cluster this is")
    while True:
        for host, port in servers:
            future: asyncio.Future[DescribeClusterResponse | PeerFailed] = asyncio.get_running_loop().create_future()
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            controllers.at(host, port).send(request, future.set_result, timeout=ASK_S)
            answer = await future
            if not isinstance(answer, PeerFailed) and answer.cluster_id:
                return answer.cluster_id
