"""Chooses the address of each broker that a client receives.

The answer contains the registered addresses of the listener that received the request. A broker with a wildcard
listener and without `advertised.listeners` registers the address of its machine as the controller sees it. A client
that connected over loopback may not be able to use that address, or only by a detour. It therefore receives, for all
brokers on this machine, the address it used to reach this one. So all brokers give the same answer to the same client.

A single-node cluster has no controller on another machine that could see its address. An unadvertised wildcard listener
then answers with the address that this client used to reach it, which is right by construction. `advertised.listeners`
wins where it is set.
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
        """Note the listeners that this broker registered."""
        self._registered_host = next((each.host for each in listeners if each.name in self._unadvertised), "")

    def reachable_at(self, connection: Connection, broker: BrokerRegistration) -> NodeEndpoint | None:
        """The broker's address for this client; None if it has no listener with the name that received the request."""
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
