"""Which address a client is told for each broker.

The answer uses the listener that was asked on, and gives the addresses that brokers have registered. Where a broker
advertises nothing and binds a wildcard, that is the address of its machine as the controller sees it. A client that
came over loopback may not be able to use that one, or only by a detour: it is given brokers on this machine as it found
this one. So all brokers answer alike to the same client.

A cluster of one has no controller to see its address. What it tells is the address that this very client used to reach
it, which is right by construction.
"""

from __future__ import annotations

from penstock.broker.net.connection import Connection
from penstock.broker.net.peers import is_loopback
from penstock.metadata.cluster import BrokerRegistration, NodeEndpoint
from penstock.protocol.messages.broker_registration import Listener
from penstock.settings.node import NodeSettings


class Endpoints:
    def __init__(self, settings: NodeSettings) -> None:
        self._is_alone = settings.is_alone
        self._unadvertised = frozenset(
            endpoint.name
            for endpoint in settings.broker_endpoints
            if endpoint.wildcard and not settings.advertised_listeners
        )
        self._registered_host = ""

    def registered(self, listeners: list[Listener]) -> None:
        """What this broker itself says where it is."""
        self._registered_host = next((each.host for each in listeners if each.name in self._unadvertised), "")

    def reachable_at(self, connection: Connection, broker: BrokerRegistration) -> NodeEndpoint | None:
        """None if the broker has no listener of the name that was asked on."""
        name = connection.listener.name
        endpoint = broker.endpoints.get(name)
        if endpoint is None:
            return None
        if name in self._unadvertised:
            if self._is_alone:
                return endpoint._replace(host=connection.local_host)
            if is_loopback(connection.peer_host) and endpoint.host == self._registered_host:
                return endpoint._replace(host=connection.local_host)
        return endpoint
