"""The broker role of a node: its partitions, their storage, their coordinators, and the APIs for clients.

This module builds the parts in the order of their dependencies. Where two parts need each other, the earlier one gets a
callback. The parts themselves are in their own modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker import apis
from penstock.broker.apis import init_producer_id, services
from penstock.broker.apis.broker_router import BrokerRouter
from penstock.broker.apis.fetch_follower_plain import PlainFollowerFetch
from penstock.broker.apis.fetch_plain import PlainFetch
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.apis.produce_run import ProduceRun
from penstock.broker.apis.schema_validation import SchemaValidation
from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.coordinators.internal_topics import internal_topic
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.departed import DepartedBrokers
from penstock.broker.metadata.formatting import NodeIdentity
from penstock.broker.metadata.forwarding import Forwarding
from penstock.broker.metadata.lifecycle import BrokerLifecycle
from penstock.broker.metadata.producer_ids import ProducerIds
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.registration import Registration
from penstock.broker.metadata.topic_creation import TopicCreation
from penstock.broker.metrics.broker_metrics import BrokerSources
from penstock.broker.metrics.coordinator_metrics import CoordinatorSources
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.share_metrics import ShareSources
from penstock.broker.net.endpoints import Endpoints
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.peers import Peers
from penstock.broker.net.server import ConnectionLimits
from penstock.broker.partitions.balancer import Balancer
from penstock.broker.partitions.fetch_sessions import FetchSessions
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.follower_fetch import FollowerFetches
from penstock.broker.partitions.handover import Handover
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.repair import Repairs
from penstock.broker.partitions.replica import Replica, ReplicaContext
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.replication import Replication
from penstock.broker.partitions.searches import Searches
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.shares.dead_letter_queue import DeadLetterQueue
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.broker.storage.assignment import Assignment
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.broker.storage.storage import Storage
from penstock.broker.telemetry import ClientTelemetry
from penstock.io.environment import Environment
from penstock.log.cleaner import Cleaner
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import ResourceType
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.broker_registration import Listener
from penstock.security.authorizer import Authorizer
from penstock.settings.live import LiveSettings
from penstock.telemetry.instances import ClientInstances


@owned_by_loop()
class BrokerRole:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        environment: Environment,
        identity: NodeIdentity,
        incarnation_id: Uuid,
        registration: Registration,
        quorum: MetadataQuorum,
        controller: ControllerChannel,
        heartbeats: ControllerChannel,
        peers: Peers,
        listeners: Listeners,
        wakeups: Wakeups,
        counters: Counters,
        authorizer: Authorizer,
        fail: Callable[[str], None],
    ) -> None:
        """`heartbeats`: a channel to the controller that carries only heartbeats."""
        loop = environment.loop
        self.is_serving = False
        self._is_stopping = False
        self._settings = settings
        self._environment = environment
        self._registration = registration
        self._quorum = quorum
        self._controller = controller
        self._wakeups = wakeups
        self._counters = counters
        self._throttling = listeners.throttling
        self._fail = fail
        self._brokers = Brokers(quorum, peers, settings.static.inter_broker_listener)
        self._endpoints = Endpoints(settings.static)
        self._departed = DepartedBrokers(loop.time, settings.static.broker_session_timeout_ms / 1000)
        self._fetch_sessions = FetchSessions(
            settings.static.max_incremental_fetch_session_cache_slots, self._new_session_id
        )
        self.directory_assignments = DirectoryAssignments(loop, registration, controller, quorum)
        self.replicas = Replicas()
        flusher = Flusher(loop, wakeups.run, lambda replica, why: self.storage.flush_failed(replica, why))
        cleaner = self._new_cleaner()
        self.repairs = self._new_repairs(flusher, cleaner)
        self.replication = self._new_replication(flusher, listeners.hang_up)
        self.storage = self._new_storage(identity, flusher, cleaner, listeners.rewritten)
        self.lifecycle = self._new_lifecycle(identity.cluster_id, incarnation_id, heartbeats)
        hints = self._new_hints()
        producer_ids = ProducerIds(registration, controller)
        self._topic_creation = TopicCreation(controller, quorum)
        self._balancer = self._new_balancer()
        self.coordinators = self._new_coordinators(hints, producer_ids)
        self.shares = self._new_shares()
        self._assignment = self._new_assignment()
        self.handover = self._new_handover(hints, listeners.limits)
        self.for_produce = self._new_produce_services(hints)
        followers = self._new_follower_fetches(hints)
        self.router = self._new_router(authorizer, followers)
        self._serve_records(hints, followers)
        self._serve_coordinators(producer_ids)
        self.telemetry = self._serve_telemetry()
        self._serve_cluster(identity, listeners)

    # -- the parts --------------------------------------------------------------------------------------------------

    def _new_cleaner(self) -> Cleaner:
        files, clock, processes = self._environment.files, self._environment.clock, self._environment.processes
        return Cleaner(files, clock, processes, lambda: list(self.replicas), lambda: self._settings.now)

    def _new_router(self, authorizer: Authorizer, followers: FollowerFetches) -> BrokerRouter:
        plain_produce = PlainProduce(self.for_produce, authorizer)
        return BrokerRouter(
            self._environment.loop,
            authorizer,
            self._counters.requests,
            plain_produce=plain_produce,
            handle_run=ProduceRun(plain_produce, self._environment.clock).handle,
            plain_fetch=PlainFetch(self.replicas, self._settings, authorizer),
            plain_follower_fetch=PlainFollowerFetch(followers, authorizer),
            throttling=self._throttling,
        )

    def _new_produce_services(self, hints: LeaderHints) -> services.ProduceServices:
        return services.ProduceServices(
            loop=self._environment.loop,
            clock=self._environment.clock,
            replicas=self.replicas,
            hints=hints,
            wakeups=self._wakeups,
            handover=self.handover,
            verification=self.coordinators.verification,
            schemas=SchemaValidation(self._settings.static),
        )

    def _new_hints(self) -> LeaderHints:
        return LeaderHints(
            self._quorum,
            self._endpoints,
            is_offline=self.storage.is_offline,
            is_surely_alive=lambda: self.lifecycle.is_surely_alive,
        )

    def _new_follower_fetches(self, hints: LeaderHints) -> FollowerFetches:
        return FollowerFetches(
            loop=self._environment.loop,
            replicas=self.replicas,
            hints=hints,
            wakeups=self._wakeups,
            sessions=self.replication.followers,
            throttle=self.replication.throttles.leading,
            counts=self._counters.replication,
            latency=self._counters.requests.follower_fetch,
        )

    def _new_session_id(self) -> int:
        return int.from_bytes(self._environment.randomness.bytes(4), "big") & 0x7FFFFFFF

    def _new_repairs(self, flusher: Flusher, cleaner: Cleaner) -> Repairs:
        return Repairs(
            settings=self._settings,
            loop=self._environment.loop,
            files=self._environment.files,
            brokers=self._brokers,
            flusher=flusher,
            cleaner=cleaner,
            wakeups=self._wakeups,
            fail=self._fail,
        )

    def _new_balancer(self) -> Balancer:
        return Balancer(
            settings=self._settings,
            loop=self._environment.loop,
            metadata=self._quorum,
            brokers=self._brokers,
            controller=self._controller,
        )

    def _new_replication(self, flusher: Flusher, hang_up: Callable[[], None]) -> Replication:
        return Replication(
            settings=self._settings,
            loop=self._environment.loop,
            registration=self._registration,
            controller=self._controller,
            brokers=self._brokers,
            replicas=self.replicas,
            flusher=flusher,
            wakeups=self._wakeups,
            new_session_id=self._new_session_id,
            store_log_starts=lambda: self.storage.write_checkpoints(),
            hang_up=hang_up,
        )

    def _new_storage(
        self, identity: NodeIdentity, flusher: Flusher, cleaner: Cleaner, rewritten: Callable[[], None]
    ) -> Storage:
        environment = self._environment
        context = ReplicaContext(
            broker_id=self._registration.broker_id,
            clock=environment.clock,
            elapsed_ms=lambda: int(environment.loop.time() * 1000),
            wakeups=self._wakeups,
            flusher=flusher,
            lag_max_ms=self._settings.now.replica_lag_time_max_ms,
            registered=self._brokers.active_epoch,
            propose=self.replication.proposals.propose,
            start_moved=self.replication.fetchers.start_moved,
            repair=self.repairs.want,
            rewritten=rewritten,
            counts=self._counters.replication,
        )
        return Storage(
            settings=self._settings,
            identity=identity,
            loop=environment.loop,
            files=environment.files,
            clock=environment.clock,
            randomness=environment.randomness,
            metadata=self._quorum,
            context=context,
            replicas=self.replicas,
            flusher=flusher,
            cleaner=cleaner,
            directory_assignments=self.directory_assignments,
            on_replica_failed=lambda replica: self._assignment.failed(replica),
            on_directory_failed=lambda directory_id, path: self.lifecycle.directory_failed(directory_id, path),
            fail=self._fail,
        )

    def _new_lifecycle(self, cluster_id: str, incarnation_id: Uuid, heartbeats: ControllerChannel) -> BrokerLifecycle:
        return BrokerLifecycle(
            settings=self._settings,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            registration=self._registration,
            loop=self._environment.loop,
            clock=self._environment.clock,
            metadata=self._quorum,
            has_all_of=self._quorum.has_all_of,
            channel=heartbeats,
            directories=self.storage.log_directories,
            reports=self.directory_assignments,
            on_registered_again=lambda: self._assignment.registered(),
            fail=self._fail,
        )

    def _new_coordinators(self, hints: LeaderHints, producer_ids: ProducerIds) -> Coordinators:
        return Coordinators(
            settings=self._settings,
            loop=self._environment.loop,
            clock=self._environment.clock,
            randomness=self._environment.randomness,
            metadata=self._quorum,
            brokers=self._brokers,
            replicas=self.replicas,
            hints=hints,
            wakeups=self._wakeups,
            producer_ids=producer_ids,
            is_surely_alive=lambda: self.lifecycle.is_surely_alive,
            create_topic=lambda name: self._topic_creation.ask([internal_topic(name, self._settings.now)]),
            delete_before=self.storage.delete_before,
        )

    def _new_shares(self) -> SharePartitions:
        loop, clock = self._environment.loop, self._environment.clock
        dead_letters = DeadLetterQueue(
            settings=self._settings,
            metadata=self._quorum,
            loop=loop,
            clock=clock,
            brokers=self._brokers,
            topic_creation=self._topic_creation,
        )
        return SharePartitions(
            self.coordinators.share_states,
            settings=self._settings,
            metadata=self._quorum,
            loop=loop,
            clock=clock,
            dead_letters=dead_letters,
        )

    def _new_assignment(self) -> Assignment:
        return Assignment(
            settings=self._settings,
            loop=self._environment.loop,
            registration=self._registration,
            metadata=self._quorum,
            replicas=self.replicas,
            wakeups=self._wakeups,
            storage=self.storage,
            directory_assignments=self.directory_assignments,
            replication=self.replication,
            on_changed=self._replica_changed,
        )

    def _replica_changed(self, replica: Replica) -> None:
        self.coordinators.replica_changed(replica)
        self.shares.replica_changed(replica)

    def _new_handover(self, hints: LeaderHints, limits: ConnectionLimits) -> Handover:
        return Handover(
            broker_id=self._registration.broker_id,
            loop=self._environment.loop,
            metadata=self._quorum,
            brokers=self._brokers,
            replicas=self.replicas,
            limits=limits,
            hints=hints,
        )

    # -- the APIs ---------------------------------------------------------------------------------------------------

    def _serve_records(self, hints: LeaderHints, followers: FollowerFetches) -> None:
        environment = self._environment
        for_fetch = services.FetchServices(
            loop=environment.loop,
            settings=self._settings,
            metadata=self._quorum,
            replicas=self.replicas,
            hints=hints,
            sessions=self._fetch_sessions,
            followers=followers,
        )
        for_logs = services.LogServices(
            loop=environment.loop,
            files=environment.files,
            metadata=self._quorum,
            replicas=self.replicas,
            hints=hints,
            searches=Searches(environment.loop),
            storage=self.storage,
        )
        for_shares = services.ShareServices(
            loop=environment.loop,
            settings=self._settings,
            metadata=self._quorum,
            replicas=self.replicas,
            hints=hints,
            coordinators=self.coordinators,
            shares=self.shares,
        )
        self.router.serve(apis.PRODUCE_APIS, self.for_produce)
        self.router.serve(apis.FETCH_APIS, for_fetch)
        self.router.serve(apis.SHARE_APIS, for_shares)
        self.router.serve(apis.LOG_APIS, for_logs)

    def _serve_coordinators(self, producer_ids: ProducerIds) -> None:
        for_groups = services.GroupServices(
            metadata=self._quorum,
            coordinators=self.coordinators,
            lifecycle=self.lifecycle,
            topic_creation=self._topic_creation,
        )
        for_transactions = services.TransactionServices(
            clock=self._environment.clock,
            metadata=self._quorum,
            replicas=self.replicas,
            coordinators=self.coordinators,
            producer_ids=producer_ids,
        )
        self.router.serve(apis.GROUP_APIS, for_groups)
        self.router.serve(apis.TRANSACTION_APIS, for_transactions)
        if not self._settings.static.transaction_two_phase_commit_enable:
            # Two-phase commit with other systems is opt-in; without it, the versions that offer it are not served.
            self.router.serve_below(ApiKey.INIT_PRODUCER_ID, init_producer_id.TWO_PHASE_COMMIT_SINCE)

    def _serve_cluster(self, identity: NodeIdentity, listeners: Listeners) -> None:
        for_clients = services.ClusterServices(
            cluster_id=identity.cluster_id,
            settings=self._settings,
            metadata=self._quorum,
            endpoints=self._endpoints,
            departed=self._departed,
            coordinators=self.coordinators,
            topic_creation=self._topic_creation,
        )
        for_admin = services.AdminServices(
            clock=self._environment.clock,
            settings=self._settings,
            quorum=self._quorum,
            forwarding=Forwarding(self._quorum, self._controller, self._settings),
            routes=self.router.routes,
            address=(identity.cluster_id, identity.node_id),
            telemetry=self.telemetry,
            listeners=listeners,
        )
        self.router.serve(apis.CLUSTER_APIS, for_clients)
        self.router.serve(apis.ADMIN_APIS, for_admin)
        self.router.serve(apis.BROKER_ADMIN_APIS, for_admin)

    def _serve_telemetry(self) -> ClientTelemetry:
        randomness = self._environment.randomness
        telemetry = ClientTelemetry(
            loop=self._environment.loop,
            clock=self._environment.clock,
            settings=self._settings,
            metadata=self._quorum,
            instances=ClientInstances(lambda: randomness.bytes(16)),
        )
        self.router.serve(apis.TELEMETRY_APIS, services.TelemetryServices(telemetry=telemetry))
        return telemetry

    # -- start ------------------------------------------------------------------------------------------------------

    async def register(self, listeners: list[Listener]) -> None:
        """Register; returns when this node has replayed the metadata up to the registration."""
        self._endpoints.registered(listeners)
        await self.lifecycle.register(listeners, self._previous_broker_epoch())

    async def take_part(self) -> None:
        """Open the logs assigned to this broker and ask to be unfenced; returns when clients may connect."""
        self._assignment.load()
        self._assignment.registered()
        await self.lifecycle.unfence()
        await self.storage.settle()
        self.is_serving = True

    def _previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean stop, if all directories share it; -1 otherwise: data may be lost."""
        epochs = {
            directory.previous_broker_epoch if directory.clean_shutdown else -1
            for directory in self.storage.directories
        }
        return epochs.pop() if len(epochs) == 1 else -1

    def start_upkeep(self, tasks: asyncio.TaskGroup) -> None:
        self.storage.start_upkeep(tasks)
        tasks.create_task(self.repairs.run())
        tasks.create_task(self._balancer.run())

    @property
    def epoch(self) -> int:
        """The broker epoch of the registration; -1 before that."""
        return self._registration.broker_epoch

    # -- events -----------------------------------------------------------------------------------------------------

    def committed(self, delta: MetadataDelta) -> None:
        """The metadata changed; the node's own settings are already updated."""
        if self._is_stopping:
            return  # threads close the logs: the next process acts on it
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self.lifecycle.settings_changed()
        self._departed.committed(delta, self._quorum.image)
        self._assignment.committed(delta)
        self.coordinators.committed(delta)
        self.lifecycle.committed()
        self.handover.committed()

    def controller_changed(self) -> None:
        self.lifecycle.controller_changed()

    def metrics(self) -> tuple[BrokerSources, CoordinatorSources, ShareSources]:
        return (
            BrokerSources(
                files=self._environment.files,
                settings=self._settings,
                counters=self._counters,
                replicas=self.replicas,
                storage=self.storage,
                fetch_sessions=self._fetch_sessions,
                follower_sessions=self.replication.followers,
                telemetry=self.telemetry,
            ),
            CoordinatorSources(
                loop=self._environment.loop,
                clock=self._environment.clock,
                settings=self._settings,
                counters=self._counters,
                metadata=self._quorum,
                brokers=self._brokers,
                replicas=self.replicas,
                coordinators=self.coordinators,
            ),
            ShareSources(
                loop=self._environment.loop,
                settings=self._settings,
                counters=self._counters,
                coordinators=self.coordinators,
                partitions=self.shares,
            ),
        )

    # -- stop -------------------------------------------------------------------------------------------------------

    async def take_leave(self) -> None:
        """Hand over the partitions that this broker leads."""
        await self.handover.prepare()
        await self.lifecycle.take_leave()
        await self.handover.finish()

    async def close(self) -> None:
        """Stop cleanly: flush everything to disk and write the clean-shutdown markers."""
        self.abandon()
        self._assignment.close()
        self.directory_assignments.close()
        await self.storage.close(self.epoch)

    def abandon(self) -> None:
        """Stop without touching the disk again."""
        self._is_stopping = True
        self.lifecycle.close()
        self.shares.close()
        self.coordinators.close()
