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
from penstock.broker.authentication.node_logins import NodeLogins
from penstock.broker.broker_role import BrokerRole
from penstock.broker.controller_role import ControllerRole
from penstock.broker.metadata import lifecycle
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.formatting import NodeIdentity, format_or_load, needs_cluster_id
from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.registration import Registration
from penstock.broker.metrics.collecting import collect
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.endpoint import MetricsEndpoint
from penstock.broker.metrics.node_metrics import NodeSources
from penstock.broker.metrics.protection import Protection
from penstock.broker.net.audit import Audit
from penstock.broker.net.inter_node_security import InterNodeSecurity
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.peers import PeerFailed, Peers
from penstock.broker.net.router import Router
from penstock.broker.net.throttling import Throttling
from penstock.broker.partitions.audit_topic import AuditTopic
from penstock.broker.partitions.wakeups import Wakeups
from penstock.io.environment import Environment
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid, uuid_text
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.authorizer import CLUSTER, AllowAll, Authorizer, Operation
from penstock.security.principal import parse_principal
from penstock.settings.acls import locked_out
from penstock.settings.live import LiveSettings
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

IDLE_CHECKS_PER_PERIOD = 4
RESIGN_S = 2.0
ASK_CLUSTER_ID_S = 1.0
CERTIFICATES_CHECKED_EVERY_S = 10.0
CONTROLLERS = 2  # the endpoint type of DescribeCluster


@owned_by_loop()
class Node:
    def __init__(
        self,
        settings: NodeSettings,
        environment: Environment,
        *,
        authorizer: Authorizer | None = None,
        unusable_directories: Mapping[str, str] | None = None,
    ) -> None:
        """`unusable_directories`: log directories that are known to be unusable, with the reason for each."""
        loop = environment.loop
        self.settings = LiveSettings(settings)
        self.failure: asyncio.Future[str] = loop.create_future()
        self._environment = environment
        self._acls: AclAuthorizer | None = None
        if settings.has_acls and authorizer is None:
            self._acls = authorizer = AclAuthorizer(
                settings.super_user_names,
                allow_without_acl=settings.allow_everyone_if_no_acl_found,
                is_loaded=lambda: self.quorum.is_loaded,
                on_refused=Audit(loop.time).refused,
            )
        self._authorizer: Authorizer = authorizer or AllowAll()
        self._is_open = False
        self._unusable_directories = unusable_directories or {}
        self._neighbourhood = Neighbourhood(environment.neighbours, is_watched=settings.penstock_local_death_detection)
        self._registration = Registration(settings.node_id)
        logins = NodeLogins(settings, environment.randomness)
        self._security = InterNodeSecurity(self.settings)
        client_id = f"penstock-{settings.node_id}"
        self._controller_peers = Peers(loop, client_id, login=logins.to_controllers, tls=self._security.to_controllers)
        self._broker_peers = Peers(loop, client_id, login=logins.to_brokers, tls=self._security.to_brokers)
        self._counters = Counters()
        self._wakeups = Wakeups()
        self.authentications = ListenerAuthentications(
            settings, loop=loop, clock=environment.clock, randomness=environment.randomness, image=lambda: self.image
        )
        self._throttling = Throttling(settings, loop.time)
        self.listeners = Listeners(
            self.settings,
            loop=loop,
            after_reads=self._wakeups.run,
            plain_latency=self._counters.requests.produce,
            gates_of=self.authentications.gates_of,
            throttling=self._throttling,
        )
        self._metrics_endpoint = MetricsEndpoint(
            settings.metrics_endpoint,
            loop,
            self._counters.loop_lag,
            self._collect,
            Protection(settings, settings.properties),
        )
        self.identity: NodeIdentity
        self.quorum: MetadataQuorum
        self._to_controller: ControllerChannel
        self.controller: ControllerRole | None = None
        self.broker: BrokerRole | None = None
        self._leader_known = asyncio.Event()
        self._certificates_may_have_changed = asyncio.Event()
        self._upkeep: asyncio.Task[None] | None = None
        self._audit_topic: AuditTopic | None = None

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

    async def start(self) -> None:
        settings = self.settings.static
        for notice in settings.notices:
            logger.warning("%s", notice)
        self._check_certificate()
        randomness = self._environment.randomness
        controller_incarnation, broker_incarnation = randomness.bytes(16), randomness.bytes(16)
        await self._identify()
        if settings.is_broker:
            self._neighbourhood.announce(broker_incarnation)
        if settings.is_controller:
            self._neighbourhood.announce(controller_incarnation)
        router = Router(self._environment.loop, self._authorizer, self._counters.requests, forwards=False)
        await self.listeners.open_controllers(router.handle_message)
        self.quorum = self._new_quorum()
        self._to_controller = self._channel(router, "controller")
        if settings.is_controller:
            self.controller = self._new_controller(router, controller_incarnation)
        self.quorum.open()
        self._is_open = True
        if self._acls is not None:
            self._acls.load(self.image.acls)
        self._neighbourhood.look_around(self.image)
        self._controller_changed()
        self._apply_dynamic_settings()
        self._apply_quotas()
        await self.listeners.serve(self.listeners.of_controllers)
        await self._metrics_endpoint.open()
        if settings.is_broker:
            self.broker = self._new_broker(router, broker_incarnation)
            await self._start_broker(self.broker)
        self._audit_topic = self._new_audit_topic()
        self._upkeep = self._environment.loop.create_task(self._keep_up())

    async def _identify(self) -> None:
        settings, files = self.settings.static, self._environment.files
        cluster_id = settings.penstock_cluster_id or None
        if cluster_id is None and needs_cluster_id(files, settings):
            cluster_id = await self._ask_cluster_id()
        now_ms = self._environment.clock.now_ms()
        self.identity = format_or_load(files, settings, self._new_id, now_ms, cluster_id, self._unusable_directories)

    async def _ask_cluster_id(self) -> str:
        """Ask the configured quorum for the cluster id: a new node belongs to that quorum's cluster."""
        settings = self.settings.static
        servers = settings.quorum_bootstrap_servers or tuple(
            (voter.host, voter.port) for voter in settings.quorum_voters
        )
        logger.info("asking the quorum which cluster this is")
        while True:
            for host, port in servers:
                future: asyncio.Future[DescribeClusterResponse | PeerFailed] = self._environment.loop.create_future()
                request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
                self._controller_peers.at(host, port).send(request, future.set_result, timeout=ASK_CLUSTER_ID_S)
                answer = await future
                if not isinstance(answer, PeerFailed) and answer.cluster_id:
                    return answer.cluster_id

    def _is_dead_controller(self, node_id: int, host: str, refused: bool) -> bool:
        known = self.image.controllers.get(node_id)
        return self._neighbourhood.is_dead(None if known is None else known.incarnation_id, host, refused=refused)

    def _new_quorum(self) -> MetadataQuorum:
        return MetadataQuorum(
            files=self._environment.files,
            clock=self._environment.clock,
            randomness=self._environment.randomness,
            loop=self._environment.loop,
            settings=self.settings.static,
            identity=self.identity,
            peers=self._controller_peers,
            new_id=self._new_id,
            on_commit=lambda _, delta: self._committed(delta),
            on_fatal=lambda error: self._fail(f"the metadata log failed: {error}"),
            on_leader=self._controller_changed,
            controller_endpoints=self.listeners.quorum_endpoints(),
            is_dead=self._is_dead_controller,
        )

    def _channel(self, router: Router, name: str) -> ControllerChannel:
        return ControllerChannel(self._environment.loop, self.quorum, self._controller_peers, router.ask, name)

    def _new_controller(self, router: Router, incarnation_id: Uuid) -> ControllerRole:
        return ControllerRole(
            settings=self.settings,
            cluster_id=self.identity.cluster_id,
            incarnation_id=incarnation_id,
            registration=self._registration,
            loop=self._environment.loop,
            authorizer=self._authorizer,
            quorum=self.quorum,
            controller=self._to_controller,
            peers=self._broker_peers,
            neighbourhood=self._neighbourhood,
            router=router,
            listeners=self.listeners,
            clock=self._environment.clock,
            throttling=self._throttling,
        )

    def _new_broker(self, controller_router: Router, incarnation_id: Uuid) -> BrokerRole:
        return BrokerRole(
            settings=self.settings,
            environment=self._environment,
            identity=self.identity,
            incarnation_id=incarnation_id,
            registration=self._registration,
            quorum=self.quorum,
            controller=self._to_controller,
            heartbeats=self._channel(controller_router, lifecycle.CHANNEL),
            peers=self._broker_peers,
            listeners=self.listeners,
            wakeups=self._wakeups,
            counters=self._counters,
            authorizer=self._authorizer,
            throttling=self._throttling,
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
            brokers=Brokers(self.quorum, self._broker_peers, settings.inter_broker_listener),
            replica_of=(lambda topic, index: None) if broker is None else broker.replicas.get,
            after_append=self._wakeups.run,
        )

    async def _start_broker(self, broker: BrokerRole) -> None:
        await self.listeners.open_brokers(broker.router.handle, broker.router.handle_run)
        local_host = None
        if not self.settings.static.is_alone:
            await self._leader_known.wait()
            local_host = self._controller_peers.local_host()
        await broker.register(self.listeners.registered_by_broker(local_host))
        self._apply_dynamic_settings()
        self._check_own_access(local_host)
        await broker.take_part()
        await self.listeners.serve(self.listeners.of_brokers)

    def _check_certificate(self) -> None:
        """Controllers must answer each other before any ACL is loaded."""
        settings = self.settings.static
        principal = self._security.principal_at(settings.quorum_listener) if settings.is_controller else None
        if self._acls is not None and principal is not None and principal not in settings.super_user_names:
            raise KafkaError(ErrorCode.INVALID_CONFIG, locked_out(settings, settings.quorum_listener, principal))

    def _check_own_access(self, local_host: str | None) -> None:
        """Brokers send each other requests: without the right to do so, no partition would have followers."""
        settings = self.settings.static
        listener = settings.inter_broker_listener
        principal = settings.own_principals.get(listener) or self._security.principal_at(listener)
        if self._acls is None or principal is None or local_host is None:
            return
        if not self._acls.authorize(parse_principal(principal), local_host, Operation.CLUSTER_ACTION, CLUSTER):
            raise KafkaError(ErrorCode.INVALID_CONFIG, locked_out(settings, listener, principal))

    # -- the metadata changed ---------------------------------------------------------------------------------------

    def _committed(self, delta: MetadataDelta) -> None:
        self._neighbourhood.look_around(self.image)
        if self._acls is not None and self._is_open and (delta.added_acls or delta.removed_acls):
            self._acls.change(delta.added_acls.values(), delta.removed_acls.values())
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._apply_dynamic_settings()
        if delta.quotas_changed:
            self._apply_quotas()
        if self.broker is not None:
            self.broker.committed(delta)
        if self.controller is not None:
            self.controller.make_known()

    def _controller_changed(self) -> None:
        """Another node leads the quorum, or this one became or stopped being the active controller."""
        if self.quorum.controller_id >= 0:
            self._leader_known.set()
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
        self._certificates_may_have_changed.set()

    def _apply_quotas(self) -> None:
        self._throttling.set(self.image.client_quotas)
        self.listeners.quotas_changed()

    # -- upkeep -----------------------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        idle_max_ms = self.settings.now.connections_max_idle_ms
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.broker is not None:
                    self.broker.start_upkeep(tasks)
                if self._audit_topic is not None:
                    tasks.create_task(self._audit_topic.run())
                if self.listeners.use_tls or self._security.uses_tls or self._metrics_endpoint.protection.uses_tls:
                    tasks.create_task(self._renew_certificates())
                if idle_max_ms >= 0:
                    tasks.create_task(self._close_idle_connections(idle_max_ms / 1000))
        except* Exception as errors:
            logger.exception("upkeep failed")
            self._fail(f"upkeep failed: {errors.exceptions[0]}")

    async def _renew_certificates(self) -> None:
        """Look for changed key and trust stores now and then, and after a setting has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CERTIFICATES_CHECKED_EVERY_S):
                    await self._certificates_may_have_changed.wait()
            self._certificates_may_have_changed.clear()
            # Deriving keys from the passwords of stores takes longer than the loop may be held.
            await asyncio.to_thread(self.listeners.renew_certificates)
            await asyncio.to_thread(self._security.renew)
            await asyncio.to_thread(self._metrics_endpoint.protection.renew)

    async def _close_idle_connections(self, idle_max: float) -> None:
        while True:
            await asyncio.sleep(max(0.1, idle_max / IDLE_CHECKS_PER_PERIOD))
            for listener in self.listeners.all:
                listener.close_idle(idle_max)

    async def _collect(self) -> bytes:
        node = NodeSources(
            clock=self._environment.clock,
            settings=self.settings,
            counters=self._counters,
            listeners=self.listeners,
            authentications=self.authentications.counts,
            quorum=self.quorum,
            throttling=self._throttling,
            audit_topic=self._audit_topic,
        )
        if self.broker is None or not self.broker.is_serving:
            return await collect(node)
        return await collect(node, *self.broker.metrics())

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop cleanly: hand over leaderships, accept no new requests, flush everything and mark it as clean."""
        settings, broker = self.settings.now, self.broker
        if self._audit_topic is not None:
            await self._audit_topic.finish()
        if broker is not None and broker.is_serving and settings.controlled_shutdown_enable and not settings.is_alone:
            await broker.take_leave()
        for listener in self.listeners.of_brokers:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
        if broker is not None:
            await broker.close()
        await self._leave_quorum()
        self._to_controller.close()
        if self.controller is not None:
            self.controller.close()
        for listener in self.listeners.of_controllers:
            await listener.close()
        await self._metrics_endpoint.close()
        await self.quorum.close()
        self._controller_peers.close()
        self._broker_peers.close()
        self._neighbourhood.close()

    async def _leave_quorum(self) -> None:
        """An active controller resigns before it stops, so that the others need not detect its absence."""
        if self.settings.static.is_alone or self.controller is None:
            return
        self.quorum.resign()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN_S):
                while not self.quorum.may_leave:
                    self._leader_known.clear()
                    await self._leader_known.wait()

    async def abandon(self) -> None:
        """Stop without touching the disk again."""
        if self._audit_topic is not None:
            self._audit_topic.forget()
        await self._metrics_endpoint.close()
        for listener in self.listeners.all:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self.broker is not None:
            self.broker.abandon()
        if self.controller is not None:
            self.controller.close()
        self._controller_peers.close()
        self._broker_peers.close()
        self._neighbourhood.close()
