"""The controller role of a node: its APIs, and its periodic work while it is the active controller."""

from __future__ import annotations

import asyncio

from penstock.broker.apis import ADMIN_APIS
from penstock.broker.apis.services import AdminServices
from penstock.broker.controller_apis import CONTROLLER_APIS
from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.controller_presence import ControllerPresence
from penstock.broker.metadata.controller_upkeep import ControllerUpkeep
from penstock.broker.metadata.forwarding import Forwarding
from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.registration import Registration
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.peers import Peers
from penstock.broker.net.router import Router
from penstock.io.clock import Clock
from penstock.model.ids import Uuid
from penstock.security.authorizer import Authorizer
from penstock.settings.live import LiveSettings


class ControllerRole:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        cluster_id: str,
        incarnation_id: Uuid,
        registration: Registration,
        loop: asyncio.AbstractEventLoop,
        authorizer: Authorizer,
        quorum: MetadataQuorum,
        controller: ControllerChannel,
        peers: Peers,
        neighbourhood: Neighbourhood,
        router: Router,
        listeners: Listeners,
        clock: Clock,
    ) -> None:
        """`registration`: of the broker in this process. `router`: of the controller listeners; it has no APIs yet."""
        self._is_alone = settings.static.is_alone
        self._upkeep = ControllerUpkeep(
            settings=settings,
            loop=loop,
            quorum=quorum,
            peers=peers,
            neighbourhood=neighbourhood,
            registration=registration,
            clock=clock,
        )
        self._presence = ControllerPresence(
            node_id=settings.static.node_id,
            incarnation_id=incarnation_id,
            listeners=listeners.registered_by_controller(),
            loop=loop,
            quorum=quorum,
            controller=controller,
        )
        forwarding = Forwarding(quorum, controller, settings)
        for_admin = AdminServices(
            clock=clock,
            settings=settings,
            quorum=quorum,
            forwarding=forwarding,
            routes=router.routes,
            address=None,
            telemetry=None,
            listeners=listeners,
        )
        for_nodes = ControllerServices(
            cluster_id=cluster_id,
            authorizer=authorizer,
            quorum=quorum,
            upkeep=self._upkeep,
            forwarding=forwarding,
            routes=router.routes,
        )
        router.serve(ADMIN_APIS, for_admin)
        router.serve(CONTROLLER_APIS, for_nodes)
        for listener in listeners.of_controllers:
            listener.on_closed = self._upkeep.connection_closed

    def controller_changed(self) -> None:
        """Another node leads the quorum, or this one became or stopped being the active controller."""
        self._upkeep.controller_changed()

    def make_known(self) -> None:
        """Register this controller, unless the metadata already contains it."""
        if not self._is_alone:
            self._presence.check()

    def close(self) -> None:
        self._presence.close()
        self._upkeep.close()
