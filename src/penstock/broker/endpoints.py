"""Which address a client is told for each broker.

The answer uses the listener that was asked on. A broker that advertises nothing and binds a wildcard has no address of
its own to tell; the one that this very client used to reach it is right by construction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.connection import Connection
from penstock.metadata.cluster import BrokerRegistration, NodeEndpoint

if TYPE_CHECKING:
    from penstock.broker.node import Node


def reachable_at(node: Node, connection: Connection, broker: BrokerRegistration) -> NodeEndpoint | None:
    """None if the broker has no listener of the name that was asked on."""
    endpoint = broker.endpoints.get(connection.listener.name)
    if endpoint is None:
        return None
    if broker.broker_id == node.settings.node_id and connection.listener.name in node.unadvertised_listeners:
        return endpoint._replace(host=connection.local_host)
    return endpoint
