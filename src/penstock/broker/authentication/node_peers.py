"""The connections of this node to other nodes: with the login and the TLS that the listeners of those ask for."""

from __future__ import annotations

import asyncio

from penstock.broker.authentication.node_logins import NodeLogins
from penstock.broker.net.inter_node_security import InterNodeSecurity
from penstock.broker.net.peers import Peers
from penstock.io.clock import Clock, Randomness
from penstock.settings.live import LiveSettings


class NodePeers:
    def __init__(
        self, settings: LiveSettings, loop: asyncio.AbstractEventLoop, randomness: Randomness, clock: Clock
    ) -> None:
        self.security = InterNodeSecurity(settings)
        logins = NodeLogins(settings.static, randomness, clock)
        client_id = f"penstock-{settings.static.node_id}"
        self.controllers = Peers(loop, client_id, login=logins.to_controllers, tls=self.security.to_controllers)
        self.brokers = Peers(loop, client_id, login=logins.to_brokers, tls=self.security.to_brokers)

    def close(self) -> None:
        self.controllers.close()
        self.brokers.close()
