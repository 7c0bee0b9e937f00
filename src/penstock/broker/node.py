"""A node: builds its parts, starts them in order, and stops them in order.

Start: the node formats its data directories if they are new, and joins the metadata quorum. A controller is then
working. A broker binds its listeners and registers. Once it has replayed the metadata up to its registration, it knows
which logs it holds; it opens them, and recovers them if the last stop was not clean. It asks to be unfenced and leads
or follows its partitions; only then can clients connect. Stop is the same in reverse and ends with the clean-shutdown
marker. After a failure that makes the disk or the metadata doubtful, the node stops at once, without that marker, and
leaves recovery to the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from penstock.broker.authentication.listener_authentication import ListenerAuthentications
from penstock.broker.authentication.node_access import NodeAccess
from penstock.broker.authentication.node_peers import NodePeers
from penstock.broker.broker_role import BrokerRole
from penstock.broker.controller_role import ControllerRole
from penstock.broker.metadata import lifecycle
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.cluster_id import ask_cluster_id
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.formatting import NodeIdentity, format_or_load, needs_cluster_id
from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.registration import Registration
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.publishing import NodeMetrics, SourcesOfBroker
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.router import Router
from penstock.broker.node_upkeep import NodeUpkeep
from penstock.broker.partitions.audit_topic import AuditTopic
from penstock.broker.partitions.wakeups import Wakeups
from penstock.io.environment import Environment
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.model.ids import Uuid, uuid_text
from penstock.model.ownership import owned_by_loop
from penstock.security.authorizer import Authorizer
from penstock.settings.live import LiveSettings
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

RESIGN_S = 2.0


@owned_by_loop()
class Node:
    def __init__(
        self, settings: NodeSettings, environment: Environment, *, authorizer: Authorizer | None = None
    ) -> None:
        """`authorizer`: used instead of the one that the settings name."""
        loop = environment.loop
        self.settings = LiveSettings(settings)
        self.failure: asyncio.Future[str] = loop.create_future()
        self._environment = environment
        self._neighbourhood = Neighbourhood(environment.neighbours, is_watched=settings.penstock_local_death_detection)
        self._peers = NodePeers(self.settings, loop, environment.randomness, environment.clock)
        self._access = NodeAccess(
            settings,
            self._peers.security,
            now=loop.time,
            is_quorum_loaded=lambda: self.quorum.is_loaded,
            authorizer=authorizer,
        )
        self._wakeups = Wakeups(loop)
        authentications = ListenerAuthentications(
            settings, loop=loop, clock=environment.clock, randomness=environment.randomness, image=lambda: self.image
        )
        counters = Counters()
        self.listeners = Listeners(
            self.settings,
            loop=loop,
            after_reads=self._wakeups.run,
            plain_latency=counters.requests.produce,
            gates_of=authentications.gates_of,
        )
        self.metrics = NodeMetrics(
            self.settings,
            environment,
            counters,
            self.listeners,
            authentications.counts,
            quorum=lambda: self.quorum,
            audit_topic=lambda: None if self._upkeep is None else self._upkeep.audit_topic,
            broker=self._metrics_of_broker,
        )
        self.quorum: MetadataQuorum
        self._to_controller: ControllerChannel
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None
        self._upkeep: NodeUpkeep | None = None

    @property
    def identity(self) -> NodeIdentity:
        return self.quorum.identity

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.quorum.image

    def _fail(self, reason: str) -> None:
        """Stop, because the disk or the metadata can no longer be trusted; the next start recovers."""
        logger.critical("stopping: %s", reason)
        if not self.failure.done():
            self.failure.set_result(reason)

    def _new_id(self) -> Uuid:
        """A new id for a topic or a directory.

        Kafka reserves ids that begin with zeros, and avoids ids whose text begins with a dash.
        """
        while True:
            uuid = self._environment.randomness.bytes(16)
            if any(uuid[:8]) and not uuid_text(uuid).startswith("-"):
                return uuid

    # -- start ------------------------------------------------------------------------------------------------------

    async def start(self, unusable_directories: Mapping[str, str] | None = None) -> None:
        """`unusable_directories`: log directories that are known to be unusable, with the reason for each."""
        settings = self.settings.static
        for notice in settings.notices:
            logger.warning("%s", notice)
        self._access.check_controller()
        randomness = self._environment.randomness
        controller_incarnation, broker_incarnation = randomness.bytes(16), randomness.bytes(16)
        identity = await self._identify(unusable_directories or {})
        if settings.is_broker:
            self._neighbourhood.announce(broker_incarnation)
        if settings.is_controller:
            self._neighbourhood.announce(controller_incarnation)
        requests = self.metrics.counters.requests
        router = Router(self._environment.loop, self._access.authorizer, requests, forwards=False)
        await self.listeners.open_controllers(router.handle_message)
        self.quorum = self._new_quorum(identity)
        self._to_controller = self._channel(router, "controller")
        registration = Registration(settings.node_id)
        if settings.is_controller:
            self.controller = self._new_controller(router, controller_incarnation, registration)
        self.quorum.open()
        self._access.load(self.image)
        self._neighbourhood.look_around(self.image)
        self._controller_changed()
        self._apply_dynamic_settings()
        self.listeners.set_quotas(self.image.client_quotas)
        await self.listeners.serve(self.listeners.of_controllers)
        await self.metrics.open()
        if settings.is_broker:
            self.broker = self._new_broker(router, broker_incarnation, registration)
            await self._start_broker(self.broker)
        self._upkeep = NodeUpkeep(
            self._environment.loop,
            self.listeners,
            [self._peers.security, self.metrics.protection],
            idle_max_ms=self.settings.now.connections_max_idle_ms,
            broker=self.broker,
            audit_topic=self._new_audit_topic(),
            fail=self._fail,
        )

    async def _identify(self, unusable_directories: Mapping[str, str]) -> NodeIdentity:
        settings, files = self.settings.static, self._environment.files
        cluster_id = settings.penstock_cluster_id or None
        if cluster_id is None and needs_cluster_id(files, settings):
            cluster_id = await ask_cluster_id(settings, self._peers.controllers)
        now_ms = self._environment.clock.now_ms()
        return format_or_load(files, settings, self._new_id, now_ms, cluster_id, unusable_directories)

    def _is_dead_controller(self, node_id: int, host: str, refused: bool) -> bool:
        known = self.image.controllers.get(node_id)
        return self._neighbourhood.is_dead(None if known is None else known.incarnation_id, host, refused=refused)

    def _new_quorum(self, identity: NodeIdentity) -> MetadataQuorum:
        return MetadataQuorum(
            files=self._environment.files,
            clock=self._environment.clock,
            randomness=self._environment.randomness,
            loop=self._environment.loop,
            settings=self.settings.static,
            identity=identity,
            peers=self._peers.controllers,
            new_id=self._new_id,
            on_commit=lambda _, delta: self._committed(delta),
            on_fatal=lambda error: self._fail(f"the metadata log failed: {error}"),
            on_leader=self._controller_changed,
            controller_endpoints=self.listeners.quorum_endpoints(),
            is_dead=self._is_dead_controller,
        )

    def _channel(self, router: Router, name: str) -> ControllerChannel:
        return ControllerChannel(self._environment.loop, self.quorum, self._peers.controllers, router.ask, name)

    def _new_controller(self, router: Router, incarnation_id: Uuid, registration: Registration) -> ControllerRole:
        return ControllerRole(
            settings=self.settings,
            cluster_id=self.identity.cluster_id,
            incarnation_id=incarnation_id,
            registration=registration,
            loop=self._environment.loop,
            authorizer=self._access.authorizer,
            quorum=self.quorum,
            controller=self._to_controller,
            peers=self._peers.brokers,
            neighbourhood=self._neighbourhood,
            router=router,
            listeners=self.listeners,
            clock=self._environment.clock,
        )

    def _new_broker(self, controller_router: Router, incarnation_id: Uuid, registration: Registration) -> BrokerRole:
        return BrokerRole(
            settings=self.settings,
            environment=self._environment,
            identity=self.identity,
            incarnation_id=incarnation_id,
            registration=registration,
            quorum=self.quorum,
            controller=self._to_controller,
            heartbeats=self._channel(controller_router, lifecycle.CHANNEL),
            peers=self._peers.brokers,
            listeners=self.listeners,
            wakeups=self._wakeups,
            counters=self.metrics.counters,
            authorizer=self._access.authorizer,
            fail=self._fail,
        )

    def _new_audit_topic(self) -> AuditTopic | None:
        settings, broker = self.settings.static, self.broker
        if not settings.penstock_audit_topic:
            return None
        return AuditTopic(
            settings.penstock_audit_topic,
            settings.penstock_audit_max_queued_events,
            node_id=settings.node_id,
            clock=self._environment.clock,
            metadata=self.quorum,
            brokers=Brokers(self.quorum, self._peers.brokers, settings.inter_broker_listener),
            replica_of=(lambda topic, index: None) if broker is None else broker.replicas.get,
            after_append=self._wakeups.run,
        )

    async def _start_broker(self, broker: BrokerRole) -> None:
        await self.listeners.open_brokers(broker.router.handle, broker.router.handle_run)
        local_host = None
        if not self.settings.static.is_alone:
            await self._to_controller.leader_known.wait()
            local_host = self._peers.controllers.local_host()
        await broker.register(self.listeners.registered_by_broker(local_host))
        self._apply_dynamic_settings()
        self._access.check_broker(local_host)
        await broker.take_part()
        await self.listeners.serve(self.listeners.of_brokers)

    # -- the metadata changed ---------------------------------------------------------------------------------------

    def _committed(self, delta: MetadataDelta) -> None:
        self._neighbourhood.look_around(self.image)
        self._access.committed(delta)
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._apply_dynamic_settings()
        if delta.quotas_changed:
            self.listeners.set_quotas(self.image.client_quotas)
        if self.broker is not None:
            self.broker.committed(delta)
        if self.controller is not None:
            self.controller.make_known()

    def _controller_changed(self) -> None:
        """Another node leads the quorum, or this one became or stopped being the active controller."""
        if self.controller is not None:
            self.controller.controller_changed()
        self._to_controller.controller_changed()
        if self.broker is not None:
            self.broker.controller_changed()
        if self.controller is not None:
            self.controller.make_known()

    def _apply_dynamic_settings(self) -> None:
        cluster = self.image.config(ResourceType.BROKER, "")
        self.settings.set_dynamic(cluster, self.image.config(ResourceType.BROKER, str(self.settings.static.node_id)))
        self.listeners.settings_changed()
        if self._upkeep is not None:
            self._upkeep.settings_changed()

    def _metrics_of_broker(self) -> SourcesOfBroker | None:
        return self.broker.metrics() if self.broker is not None and self.broker.is_serving else None

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop cleanly: hand over leaderships, accept no new requests, flush everything and mark it as clean."""
        settings, broker = self.settings.now, self.broker
        if self._upkeep is not None:
            await self._upkeep.finish_audit()
        if broker is not None and broker.is_serving and settings.controlled_shutdown_enable and not settings.is_alone:
            await broker.take_leave()
        for listener in self.listeners.of_brokers:
            await listener.close()
        if self._upkeep is not None:
            await self._upkeep.stop()
        if broker is not None:
            await broker.close()
        await self._leave_quorum()
        self._to_controller.close()
        if self.controller is not None:
            self.controller.close()
        for listener in self.listeners.of_controllers:
            await listener.close()
        await self.metrics.close()
        await self.quorum.close()
        self._peers.close()
        self._neighbourhood.close()

    async def _leave_quorum(self) -> None:
        """An active controller resigns before it stops, so that the others need not detect its absence."""
        if self.settings.static.is_alone or self.controller is None:
            return
        self.quorum.resign()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN_S):
                while not self.quorum.may_leave:
                    self._to_controller.leader_known.clear()
                    await self._to_controller.leader_known.wait()

    async def abandon(self) -> None:
        """Stop without touching the disk again."""
        if self._upkeep is not None:
            self._upkeep.abandon()
        await self.metrics.close()
        for listener in self.listeners.all:
            await listener.close()
        if self.broker is not None:
            self.broker.abandon()
        if self.controller is not None:
            self.controller.close()
        self._peers.close()
        self._neighbourhood.close()
