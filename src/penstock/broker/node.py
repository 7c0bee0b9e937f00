"""A node: everything put together, started in order, stopped in order.

Start: the data directories are formatted, if they are new; the metadata quorum is joined. A controller is then at work.
A broker binds its listeners and registers; once the metadata is replayed up to its registration it knows which logs are
its own, opens them, and recovers them if the last stop was not clean; it asks to be unfenced, takes part in its
partitions, and only then can clients connect. Stop is the same backwards, and ends with the clean-shutdown marker.
After a failure that makes the disk or the metadata doubtful the node ends at once, without that marker, and lets the
next start sort it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from penstock.broker import apis, controller_apis
from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.controller_presence import ControllerPresence
from penstock.broker.metadata.controller_upkeep import ControllerUpkeep
from penstock.broker.metadata.departed import DepartedBrokers
from penstock.broker.metadata.formatting import NodeIdentity, format_or_load, needs_cluster_id
from penstock.broker.metadata.lifecycle import BrokerLifecycle
from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.metadata.producer_ids import ProducerIds
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.endpoint import MetricsEndpoint
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.peers import PeerFailed, Peers
from penstock.broker.net.router import Router
from penstock.broker.net.server import ConnectionLimits
from penstock.broker.partitions.fetch_sessions import FetchSessions
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.handover import Handover
from penstock.broker.partitions.repair import Repairs
from penstock.broker.partitions.replica import Wakeups
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.searches import Searches
from penstock.broker.storage.assignment import Assignment
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.broker.storage.storage import Storage
from penstock.io.clock import Clock, Randomness
from penstock.io.files import FileSystem
from penstock.io.neighbours import Neighbours, NoNeighbours
from penstock.io.processes import Processes
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid, uuid_text
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.security.authorizer import AllowAll, Authorizer
from penstock.settings.explain import BrokerLayers
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

IDLE_CHECKS_PER_PERIOD = 4
AUTO_CREATE_TIMEOUT_S = 15.0
RESIGN_S = 2.0
ASK_CLUSTER_ID_S = 1.0
CONTROLLERS = 2  # the endpoint type of DescribeCluster


@owned_by_loop()
class Node:
    def __init__(
        self,
        settings: NodeSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        processes: Processes,
        neighbours: Neighbours | None = None,
        authorizer: Authorizer | None = None,
        unusable_directories: Mapping[str, str] | None = None,
    ) -> None:
        """`unusable_directories`: log directories that are known to be of no use, and why."""
        self._unusable_directories = unusable_directories or {}
        self.static_settings = settings
        self.settings = settings
        self.loop = loop
        self.files = files
        self.clock = clock
        self.randomness = randomness
        self.processes = processes
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.neighbourhood = Neighbourhood(
            neighbours or NoNeighbours(), is_watched=settings.penstock_local_death_detection
        )
        self.failure: asyncio.Future[str] = loop.create_future()
        self.peers = Peers(loop, f"penstock-{settings.node_id}")
        self.limits = ConnectionLimits(
            settings.max_connections,
            settings.max_connections_per_ip,
            settings.connection_overrides,
            settings.penstock_max_parked_requests,
        )
        self.metrics = Counters()
        self.wakeups = Wakeups()
        self.listeners = Listeners(self)
        self.identity: NodeIdentity
        self.quorum: MetadataQuorum
        self._upkeep: asyncio.Task[None] | None = None
        self._leader_known = asyncio.Event()
        # Of the controller's role.
        self.controller = ControllerChannel(self, "controller")
        self.controller_router = Router(self, controller_apis.CONTROLLER_APIS, forwards=False)
        self.controller_upkeep = ControllerUpkeep(self)
        self._presence = ControllerPresence(self)
        # Of the broker's role.
        self.broker_epoch = -1
        self.registered_host = ""
        self.router = Router(self, apis.BROKER_APIS)
        self.replicas = Replicas()
        self.assignment = Assignment(self)
        self.directory_assignments = DirectoryAssignments(self)
        self.repairs = Repairs(self)
        self.flusher = Flusher(loop, self.wakeups.run, lambda replica, why: self.storage.flush_failed(replica, why))
        self.searches = Searches(loop)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots, self._new_fetch_session_id
        )
        self.producer_ids = ProducerIds(self)
        self.coordinators = Coordinators(self)
        self.lifecycle = BrokerLifecycle(self)
        self.handover = Handover(self)
        self.topics_being_created: set[str] = set()
        self.departed = DepartedBrokers(loop.time, settings.broker_session_timeout_ms / 1000)
        self.metrics_endpoint = MetricsEndpoint(self)
        self.unadvertised_listeners = frozenset(
            endpoint.name
            for endpoint in settings.broker_endpoints
            if endpoint.wildcard and not settings.advertised_listeners
        )
        self.storage: Storage
        self._is_serving = False

    # -- what handlers ask ------------------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether clients of this broker can work with it."""
        return self._is_serving

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole cluster: there is no way for others to reach its quorum."""
        return self.static_settings.is_controller and not self.static_settings.controller_listener_names

    def elapsed_ms(self) -> int:
        """For what is measured: nobody sets this clock."""
        return int(self.loop.time() * 1000)

    @property
    def image(self) -> MetadataImage:
        """The metadata as committed."""
        return self.quorum.image

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def setting_layers(self) -> BrokerLayers:
        image = self.image
        return BrokerLayers(
            self.static_settings.properties,
            image.config(ResourceType.BROKER, ""),
            image.config(ResourceType.BROKER, str(self.settings.node_id)),
        )

    def controller_id_for_clients(self) -> int:
        """Clients are sent to a broker, which passes on what is the controller's: to this one, as good as any."""
        return self.settings.node_id

    def offline_replicas(self, partition: Partition) -> list[int]:
        """Those of brokers that are not there, and those in directories that are not."""
        brokers = self.image.brokers
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if replica not in brokers or brokers[replica].fenced or not brokers[replica].has_online(directory)
        ]

    def auto_create_topics(self, request: CreateTopicsRequest) -> None:
        """Ask for topics that somebody wants to use; nobody waits for the answer."""
        names = {topic.name for topic in request.topics}
        self.topics_being_created |= names

        def done(outcome: CreateTopicsResponse | PeerFailed) -> None:
            self.topics_being_created -= names
            if isinstance(outcome, PeerFailed):
                logger.warning("cannot create %s: %s", ", ".join(sorted(names)), outcome.message)
                return
            for topic in outcome.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("cannot create %s: %s", topic.name, topic.error_message)

        self.controller.send(request, done, timeout=AUTO_CREATE_TIMEOUT_S)

    def fail(self, reason: str) -> None:
        """The disk or the metadata cannot be trusted any more: end, and let the next start sort it out."""
        logger.critical("stopping: %s", reason)
        if not self.failure.done():
            self.failure.set_result(reason)

    def _new_id(self) -> Uuid:
        """An id for a topic or a directory; Kafka reserves those that begin with zeros, and leads text with no dash."""
        while True:
            uuid = self.randomness.bytes(16)
            if any(uuid[:8]) and not uuid_text(uuid).startswith("-"):
                return uuid

    def _new_fetch_session_id(self) -> int:
        return int.from_bytes(self.randomness.bytes(4), "big") & 0x7FFFFFFF

    # -- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for notice in self.settings.notices:
            logger.warning("%s", notice)
        cluster_id = self.settings.penstock_cluster_id or None
        if cluster_id is None and needs_cluster_id(self.files, self.settings):
            cluster_id = await self._ask_cluster_id()
        self.identity = format_or_load(
            self.files, self.settings, self._new_id, self.clock.now_ms(), cluster_id, self._unusable_directories
        )
        self._announce()
        await self.listeners.open_controllers()
        self.quorum = MetadataQuorum(
            files=self.files,
            clock=self.clock,
            randomness=self.randomness,
            loop=self.loop,
            settings=self.settings,
            identity=self.identity,
            peers=self.peers,
            new_id=self._new_id,
            on_commit=lambda _, delta: self._committed(delta),
            on_fatal=lambda error: self.fail(f"the metadata log failed: {error}"),
            on_leader=self._controller_changed,
            controller_endpoints=self.listeners.quorum_endpoints(),
            is_dead=self._is_dead_controller,
        )
        self.quorum.open()
        self.neighbourhood.look_around(self.image)
        self._controller_changed()
        self._apply_dynamic_settings()
        await self.listeners.serve(self.listeners.of_controllers)
        await self.metrics_endpoint.open()
        if self.settings.is_broker:
            await self._start_broker()
        self._upkeep = self.loop.create_task(self._keep_up())

    def _announce(self) -> None:
        """To the other nodes of this machine, before the cluster hears of it."""
        if self.settings.is_broker:
            self.neighbourhood.announce(self.lifecycle.incarnation_id)
        if self.settings.is_controller:
            self.neighbourhood.announce(self._presence.incarnation_id)

    def _is_dead_controller(self, node_id: int, host: str, refused: bool) -> bool:
        known = self.image.controllers.get(node_id)
        return self.neighbourhood.is_dead(None if known is None else known.incarnation_id, host, refused=refused)

    async def _ask_cluster_id(self) -> str:
        """A new node belongs to the cluster whose quorum its settings name."""
        settings = self.settings
        servers = settings.quorum_bootstrap_servers or tuple(
            (voter.host, voter.port) for voter in settings.quorum_voters
        )
        logger.info("asking the quorum which cluster this is")
        while True:
            for host, port in servers:
                future: asyncio.Future[DescribeClusterResponse | PeerFailed] = self.loop.create_future()
                request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
                self.peers.at(host, port).send(request, future.set_result, timeout=ASK_CLUSTER_ID_S)
                answer = await future
                if not isinstance(answer, PeerFailed) and answer.cluster_id:
                    return answer.cluster_id

    async def _start_broker(self) -> None:
        self.storage = Storage(self)
        await self.listeners.open_brokers()
        if not self.is_alone:
            await self._leader_known.wait()
        local_host = None if self.is_alone else self.peers.local_host()
        registered = self.listeners.registered_by_broker(local_host)
        self.registered_host = next((each.host for each in registered if each.name in self.unadvertised_listeners), "")
        await self.lifecycle.register(registered, self._previous_broker_epoch())
        self._apply_dynamic_settings()
        self.assignment.load()
        self.assignment.registered()
        await self.lifecycle.unfence()
        await self.storage.settle()
        self._is_serving = True
        await self.listeners.serve(self.listeners.of_brokers)

    def _previous_broker_epoch(self) -> int:
        """That of a clean stop of all directories, if there was one; otherwise data may be lost."""
        epochs = {
            directory.previous_broker_epoch if directory.clean_shutdown else -1
            for directory in self.storage.directories
        }
        return epochs.pop() if len(epochs) == 1 else -1

    # -- the metadata changed ---------------------------------------------------------------------------------------

    def _committed(self, delta: MetadataDelta) -> None:
        self.neighbourhood.look_around(self.image)
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._apply_dynamic_settings()
            self.lifecycle.settings_changed()
        if self.settings.is_broker:
            self.departed.committed(delta, self.image)
            self.assignment.committed(delta)
            self.coordinators.committed(delta)
            self.lifecycle.committed()
            self.handover.committed()
        self._make_known()

    def _controller_changed(self) -> None:
        """Another node leads the quorum, or this one began or ceased to be the active controller."""
        if self.quorum.controller_id >= 0:
            self._leader_known.set()
        self.controller_upkeep.controller_changed()
        self.controller.controller_changed()
        if self.settings.is_broker:
            self.lifecycle.controller_changed()
        self._make_known()

    def _make_known(self) -> None:
        if self.settings.is_controller and not self.is_alone:
            self._presence.check()

    def _apply_dynamic_settings(self) -> None:
        layers = self.setting_layers
        self.settings = self.static_settings.with_dynamic(layers.cluster, layers.broker)
        self.limits.total_max = self.settings.max_connections
        self.limits.per_address_max = self.settings.max_connections_per_ip
        self.limits.per_address_overrides = self.settings.connection_overrides

    # -- upkeep -----------------------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                if self.settings.is_broker:
                    self.storage.start_upkeep(tasks)
                if self.settings.connections_max_idle_ms >= 0:
                    tasks.create_task(self._close_idle_connections(self.settings.connections_max_idle_ms / 1000))
        except* Exception as errors:
            logger.exception("upkeep failed")
            self.fail(f"upkeep failed: {errors.exceptions[0]}")

    async def _close_idle_connections(self, idle_max: float) -> None:
        while True:
            await asyncio.sleep(max(0.1, idle_max / IDLE_CHECKS_PER_PERIOD))
            for listener in self.listeners.all:
                listener.close_idle(idle_max)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """A clean stop: leaderships handed over, no new requests, everything on disk, marked as such."""
        if self._is_serving and not self.is_alone and self.settings.controlled_shutdown_enable:
            await self.handover.prepare()
            await self.lifecycle.take_leave()
            await self.handover.finish()
        for listener in self.listeners.of_brokers:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
        self.lifecycle.close()
        self._presence.close()
        if self.settings.is_broker:
            self.coordinators.close()
            self.assignment.close()
            self.directory_assignments.close()
            await self.storage.close(self.broker_epoch)
        await self._leave_quorum()
        self.controller_upkeep.close()
        self.controller.close()
        for listener in self.listeners.of_controllers:
            await listener.close()
        await self.metrics_endpoint.close()
        await self.quorum.close()
        self.peers.close()
        self.neighbourhood.close()

    async def _leave_quorum(self) -> None:
        """An active controller lets another take over before it goes, so that nobody has to find out."""
        if self.is_alone or not self.settings.is_controller:
            return
        self.quorum.resign()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN_S):
                while not self.quorum.may_leave:
                    self._leader_known.clear()
                    await self._leader_known.wait()

    async def abandon(self) -> None:
        """End without touching the disk again."""
        await self.metrics_endpoint.close()
        for listener in self.listeners.all:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
        self.coordinators.close()
        self.lifecycle.close()
        self.controller_upkeep.close()
        self.peers.close()
        self.neighbourhood.close()
