"""A node: everything put together, started in order, stopped in order.

Start: the data directories are locked and (if new) formatted; the metadata log is replayed; the logs that the metadata
assigns to this broker are opened, and recovered if the last stop was not clean; listeners are bound; the broker
registers, is unfenced, leads its partitions; only then can clients connect. Stop is the same backwards, and ends with
the clean-shutdown marker. After a failure that makes the disk or the metadata doubtful the node ends at once, without
that marker, and lets the next start sort it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import signal
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

from penstock import __version__
from penstock.broker import apis
from penstock.broker.assignment import Assignment
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.flusher import Flusher
from penstock.broker.formatting import NodeIdentity, format_or_load
from penstock.broker.peers import Peers
from penstock.broker.producer_ids import ProducerIds
from penstock.broker.quorum import MetadataQuorum
from penstock.broker.replica import Wakeups
from penstock.broker.replicas import Replicas
from penstock.broker.router import Router
from penstock.broker.server import ConnectionLimits, Listener
from penstock.broker.storage import Storage
from penstock.io.clock import Clock, Randomness, RealClock, RealRandomness
from penstock.io.files import FileSystem, RealFileSystem
from penstock.io.locks import DirectoryLock
from penstock.io.processes import Processes, RealProcesses
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid, uuid_text
from penstock.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from penstock.protocol.messages.broker_registration import Listener as RegisteredListener
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.security.authorizer import AllowAll, Authorizer
from penstock.settings.explain import BrokerLayers
from penstock.settings.listeners import SECURITY_PROTOCOLS, Endpoint
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

WORKER_THREADS = 8
IDLE_CHECKS_PER_PERIOD = 4


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
        authorizer: Authorizer | None = None,
    ) -> None:
        self.static_settings = settings
        self.settings = settings
        self.loop = loop
        self.files = files
        self.clock = clock
        self.randomness = randomness
        self.processes = processes
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.failure: asyncio.Future[str] = loop.create_future()
        self.broker_epoch = -1
        self.replicas = Replicas()
        self.assignment = Assignment(self)
        self.wakeups = Wakeups()
        self.flusher = Flusher(loop, self.wakeups.run, self.fail)
        self.fetch_sessions = FetchSessions(
            settings.max_incremental_fetch_session_cache_slots, self._new_fetch_session_id
        )
        self.producer_ids = ProducerIds(self)
        self.topics_being_created: set[str] = set()
        self.router = Router(self, apis.BROKER_APIS)
        self.limits = ConnectionLimits(
            settings.max_connections,
            settings.max_connections_per_ip,
            settings.connection_overrides,
            settings.penstock_max_parked_requests,
        )
        self.peers = Peers(loop, f"penstock-{settings.node_id}")
        self.listeners: list[Listener] = []
        self.unadvertised_listeners = frozenset(
            endpoint.name
            for endpoint in settings.broker_endpoints
            if endpoint.wildcard and not settings.advertised_listeners
        )
        self.identity: NodeIdentity
        self.quorum: MetadataQuorum
        self.storage: Storage
        self._upkeep: asyncio.Task[None] | None = None

    # -- what handlers ask ------------------------------------------------------------------------------------------

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
        brokers = self.image.brokers
        return [replica for replica in partition.replicas if replica not in brokers or brokers[replica].fenced]

    def auto_create_topics(self, request: CreateTopicsRequest) -> None:
        """Ask for topics that somebody wants to use; nobody waits for the answer."""
        names = {topic.name for topic in request.topics}
        self.topics_being_created |= names

        def done(outcome: CreateTopicsResponse | KafkaError) -> None:
            self.topics_being_created -= names
            if isinstance(outcome, KafkaError):
                logger.warning("cannot create %s: %s", ", ".join(sorted(names)), outcome.message)
                return
            for topic in outcome.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("cannot create %s: %s", topic.name, topic.error_message)

        self.quorum.submit(lambda controller: controller.create_topics(request), done)

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
        self.identity = format_or_load(self.files, self.settings, self._new_id, self.clock.now_ms())
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
        )
        self.quorum.open()
        self._apply_dynamic_settings()
        self.storage = Storage(self, self.settings.log_directories)
        self.assignment.load()
        await self._open_listeners()
        await self._register()
        await self.storage.settle()
        self._upkeep = self.loop.create_task(self._keep_up())
        for listener in self.listeners:
            await self._listen(listener.serve(), listener.name)
            logger.info("listening on %s, port %d", listener.name, listener.port)

    async def _open_listeners(self) -> None:
        receive_buffer = None
        for endpoint in self.settings.broker_endpoints:
            listener = Listener(
                endpoint.name,
                loop=self.loop,
                handle=self.router.handle,
                handle_run=self.router.handle_run,
                after_read=self.wakeups.run,
                limits=self.limits,
                request_bytes_max=self.settings.socket_request_max_bytes,
                small_request_bytes_max=self.settings.penstock_max_small_request_bytes,
                parked_max=self.settings.queued_max_requests,
                socket_buffers=self._socket_buffers(),
                receive_buffer=receive_buffer,
            )
            receive_buffer = listener.receive_buffer
            backlog = self.settings.socket_listen_backlog_size
            await self._listen(listener.open(endpoint.host, endpoint.port, backlog=backlog), endpoint)
            self.listeners.append(listener)

    @staticmethod
    async def _listen(step: Coroutine[object, object, None], where: object) -> None:
        try:
            await step
        except OSError as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"cannot listen on {where}: {error.strerror or error}"
            ) from error

    def _socket_buffers(self) -> dict[int, int]:
        sizes = {
            socket.SO_SNDBUF: self.settings.socket_send_buffer_bytes,
            socket.SO_RCVBUF: self.settings.socket_receive_buffer_bytes,
        }
        return {option: size for option, size in sizes.items() if size >= 0}

    async def _register(self) -> None:
        """Become a broker of the cluster: fenced first, then unfenced, which elects the leaders."""
        request = BrokerRegistrationRequest(
            broker_id=self.settings.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.randomness.bytes(16),
            listeners=[self._registered(endpoint) for endpoint in self.settings.advertised_endpoints],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=self.settings.broker_rack or None,
            log_dirs=[self.identity.directories[path] for path in self.settings.log_directories],
        )
        response = await self.quorum.call(lambda controller: controller.register_broker(request))
        self.broker_epoch = response.broker_epoch
        await self.quorum.call(lambda controller: controller.unfence_broker(self.settings.node_id, self.broker_epoch))

    def _registered(self, endpoint: Endpoint) -> RegisteredListener:
        port = endpoint.port
        if port == 0:
            port = next(listener.port for listener in self.listeners if listener.name == endpoint.name)
        return RegisteredListener(
            name=endpoint.name,
            host=socket.gethostname() if endpoint.wildcard else endpoint.host,
            port=port,
            security_protocol=SECURITY_PROTOCOLS[endpoint.security_protocol],
        )

    # -- the metadata changed ---------------------------------------------------------------------------------------

    def _committed(self, delta: MetadataDelta) -> None:
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._apply_dynamic_settings()
        self.assignment.committed(delta)

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
                self.storage.start_upkeep(tasks)
                if self.settings.connections_max_idle_ms >= 0:
                    tasks.create_task(self._close_idle_connections(self.settings.connections_max_idle_ms / 1000))
        except* Exception as errors:
            logger.exception("upkeep failed")
            self.fail(f"upkeep failed: {errors.exceptions[0]}")

    async def _close_idle_connections(self, idle_max: float) -> None:
        while True:
            await asyncio.sleep(max(0.1, idle_max / IDLE_CHECKS_PER_PERIOD))
            for listener in self.listeners:
                listener.close_idle(idle_max)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """A clean stop: no new requests, everything on disk, marked as such."""
        for listener in self.listeners:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
        await self.storage.close(self.broker_epoch)
        await self.quorum.close()

    async def abandon(self) -> None:
        """End without touching the disk again."""
        for listener in self.listeners:
            await listener.close()
        if self._upkeep is not None:
            self._upkeep.cancel()


def run(settings: NodeSettings) -> None:
    """One node in this process, until SIGTERM or SIGINT; raises KafkaError if it cannot start or has to give up."""
    import uvloop

    configure_logging()
    tune_memory()
    raise_file_limit()
    files = RealFileSystem()
    with contextlib.ExitStack() as locks:
        for path in sorted({*settings.log_directories, settings.metadata_directory}):
            files.make_directories(path)
            locks.enter_context(DirectoryLock(path))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reason = runner.run(_serve(settings, files))
    if reason is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)


async def _serve(settings: NodeSettings, files: FileSystem) -> str | None:
    """None after a clean stop, else why the node gave up."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(WORKER_THREADS, "penstock-worker"))
    node = Node(
        settings,
        loop=loop,
        files=files,
        clock=RealClock(),
        randomness=RealRandomness(),
        processes=RealProcesses(),
    )
    asked_to_stop: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not asked_to_stop.done():
            asked_to_stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await node.start()
    gc.collect()
    gc.freeze()  # what lives this long lives on: the collector need not look at it again
    logger.info("penstock %s, node %d of cluster %s, is ready", __version__, settings.node_id, node.cluster_id)
    waited_for: list[asyncio.Future[None] | asyncio.Future[str]] = [asked_to_stop, node.failure]
    await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
    if node.failure.done():
        await node.abandon()
        return node.failure.result()
    logger.info("stopping")
    await node.stop()
    logger.info("stopped")
    return None


def configure_logging() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )


def raise_file_limit() -> None:
    """As many open files as the system lets us have: one for each partition that is written to, and each client."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tune_memory() -> None:
    """Let glibc keep large buffers instead of mapping and unmapping each: worth a factor of four on 1 MiB fetches."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 32 << 20)
        mallopt(trim_threshold, 128 << 20)
