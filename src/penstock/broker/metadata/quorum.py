"""This node's part in the metadata quorum: the committed image and, while the node leads, the active controller.

Theory of operation:

- `raft/` makes the quorum's own decisions, and `raft_driver.py` drives it. This module uses the log they agree on.
- Every node, voter or observer, replays committed records into `image`, and passes the delta to `on_commit`. It catches
  up in slices, so that other work continues.
- The controller is active on the leader only, and only after everything that earlier leaders wrote is committed and
  replayed. A handler runs at once on the controller's image, which is ahead of the committed one. Its records are
  replayed and appended together, and its answer waits until they are committed. An answer without records may depend on
  uncommitted records, so it waits for those.
- Every node that may lead keeps its controller, image and indexes at the committed state. A failover then costs an
  election and no pass over the partitions, however many there are.
- When leadership is lost, the controller returns to the committed image, and waiting requests get NOT_CONTROLLER: their
  changes may or may not be committed.
- A handler with too much for one batch returns `Unfinished`, and is called again, with others in between.
- A full disk refuses the change, which the log has undone. After any other failed write or sync the state on disk is
  unknown: `on_fatal` is called, and the node stops.
- A snapshot is the committed image, written by a worker thread while the next batches are in progress.
- Records that this software does not serve are kept, and named in the log once. A node that has such records, or a
  metadata.version that it does not serve, does not lead: it hands the quorum over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple, TypeVar

from penstock.broker.metadata.formatting import NodeIdentity
from penstock.broker.metadata.freshness import Freshness
from penstock.broker.metadata.quorum_description import QuorumDescription, describe
from penstock.broker.metadata.raft_driver import IsDead, RaftDriver
from penstock.broker.metadata.recovery import MetadataLost
from penstock.broker.metadata.snapshots import MetadataSnapshots
from penstock.broker.metadata.store import MetadataStore, disk_is_full
from penstock.broker.net.peers import Peers
from penstock.controller.controller import Controller
from penstock.controller.result import Result, Unfinished
from penstock.io.clock import Clock, Randomness
from penstock.io.files import FileSystem
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.difference import delta_between
from penstock.metadata.features import KRAFT_VERSION, why_not_lead
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.serde import decode_record, encode_record
from penstock.metadata.snapshot import MAX_BATCH_BYTES, DecodedSnapshot, QuorumConfiguration, SnapshotId
from penstock.metadata.unserved import kinds_of
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.codec import UnencodableMessage
from penstock.protocol.declaration import Message
from penstock.raft.messages import Request
from penstock.raft.raft import Raft
from penstock.raft.ready import LeaderAndEpoch, QuorumNode
from penstock.raft.roles import Follower, Prospective, Role
from penstock.raft.settings import RaftSettings
from penstock.raft.voter_history import VoterHistory
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.builder import NewRecord, build_batch
from penstock.records.record import iterate_records
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.quorum")

Response = TypeVar("Response")
Operation = Callable[[Controller], Result[Response]]
Done = Callable[[Any], None]

REPLAY_SLICE_BYTES: Final = 32 * 1024
NOBODY: Final = -1


class Pending(NamedTuple):
    """An action to run when the log is committed below `offset`."""

    offset: int
    # The change that the records made; None if there were no records.
    change: tuple[MetadataImage, MetadataDelta] | None
    done: Done | None
    outcome: object


class MetadataQuorum:
    def __init__(
        self,
        *,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        loop: asyncio.AbstractEventLoop,
        settings: NodeSettings,
        identity: NodeIdentity,
        peers: Peers,
        new_id: Callable[[], Uuid],
        on_commit: Callable[[MetadataImage, MetadataDelta], None],
        on_fatal: Callable[[BaseException], None],
        on_leader: Callable[[], None] = lambda: None,
        controller_endpoints: tuple[VoterEndpoint, ...] = (),
        executor: Executor | None = None,
        is_dead: IsDead = lambda node_id, host, refused: False,
    ) -> None:
        """`on_commit` gets every committed change, in order. `on_leader` is called when another node leads, or when
        this node becomes the active controller or stops being it. `on_fatal` is called once, and no callback after it.
        `is_dead` says whether a controller that does not answer is certainly dead."""
        self.controller = Controller(settings, identity.cluster_id, new_id)
        self.image = EMPTY_IMAGE
        self.listener = settings.quorum_listener
        self._clock = clock
        self._randomness = randomness
        self._loop = loop
        self._settings = settings
        self._executor = executor
        self._on_commit = on_commit
        self._on_fatal = on_fatal
        self._on_leader = on_leader
        self._is_dead = is_dead
        self._peers = peers
        self.identity = identity
        self._local = Voter(
            ReplicaKey(settings.node_id, identity.directories[settings.metadata_directory]), controller_endpoints
        )
        self._store = MetadataStore(files, settings)
        self.snapshots = MetadataSnapshots(
            self._store,
            settings,
            loop=loop,
            now_ms=clock.now_ms,
            executor=executor,
            on_log_trimmed=lambda: self.driver.log_start_moved(),
        )
        self.driver: RaftDriver
        self._bootstrap: DecodedSnapshot | None = None
        self._pending: deque[Pending] = deque()
        self._committed = 0
        self._freshness = Freshness()
        self._named_unserved: set[str] = set()
        self._leader = LeaderAndEpoch(NOBODY, 0)
        self._claimed_epoch: int | None = None
        self._replaying_later = False
        self._is_opening = True
        self._failed = False
        self._is_closed = False

    # -- start ---------------------------------------------------------------------------------------------------------

    def open(self) -> MetadataImage:
        """Recover the state from disk and join the quorum. Returns the image to start from; for the only voter this is
        everything. Blocks: nothing is served before it anyway."""
        settings = self._settings
        now_ms = self._clock.now_ms()
        history = VoterHistory(_static_voters(settings, self.listener))
        recovered = self._store.recover(now_ms, history, can_fetch_again=not settings.is_controller)
        self._bootstrap = recovered.bootstrap
        self.image = recovered.image
        self._name_unserved(self.image)
        if settings.is_controller:
            self.controller.reset(self.image)
        self.snapshots.begin_with(recovered.last_snapshot)
        raft_settings = RaftSettings.of(settings)
        raft = Raft(
            local=self._local,
            cluster_id=self.identity.cluster_id,
            listener=self.listener,
            log=self._store,
            history=history,
            election=self._store.read_election(),
            bootstrap=_bootstrap_servers(settings),
            settings=raft_settings,
            random_below=self._random_below,
            can_become_voter=settings.is_controller,
            now=int(self._loop.time() * 1000),
        )
        if settings.is_alone and not raft.voters.is_only_voter(self._local.key):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"cannot lead the metadata quorum: the voters are {list(raft.voters.node_ids)}, and this is node "
                f"{settings.node_id}, or its disk was replaced",
            )
        self._committed = raft.high_watermark
        self.driver = RaftDriver(
            raft=raft,
            store=self._store,
            settings=raft_settings,
            listener=self.listener,
            peers=self._peers,
            loop=self._loop,
            now_ms=self._clock.now_ms,
            events=self,
            must_sync=settings.is_controller,
            executor=self._executor,
            is_dead=self._is_dead,
        )
        self.driver.open()
        self._is_opening = False
        logger.info(
            "metadata: epoch %d, %d topics, log up to %d after the snapshot at %d",
            self.epoch,
            len(self.image.topics),
            self._store.end_offset,
            recovered.last_snapshot.offset,
        )
        return self.image

    def _random_below(self, bound: int) -> int:
        return int.from_bytes(self._randomness.bytes(8), "big") % bound

    # -- state for readers ---------------------------------------------------------------------------------------------

    @property
    def _raft(self) -> Raft:
        return self.driver.raft

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._claimed_epoch is not None and self._claimed_epoch == self._raft.leading_epoch

    @property
    def controller_id(self) -> int:
        """The id of the quorum's leader, as far as this node knows, or -1."""
        return self._raft.leader.leader_id

    @property
    def controller_endpoint(self) -> tuple[str, int] | None:
        """The endpoint of the leader, if another node leads."""
        role = self._raft.role
        endpoints = role.leader_endpoints if isinstance(role, Follower | Prospective) else ()
        listener = self._settings.quorum_listener
        return next(((each.host, each.port) for each in endpoints if each.listener == listener), None)

    @property
    def role(self) -> Role:
        """Read-only."""
        return self._raft.role

    @property
    def is_voter(self) -> bool:
        return self._raft.is_voter

    @property
    def voters(self) -> VoterSet:
        return self._raft.voters

    @property
    def kraft_version(self) -> int:
        return self._raft.kraft_version

    @property
    def log_end_offset(self) -> int:
        return self._store.end_offset

    @property
    def high_watermark(self) -> int:
        return self._committed

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that this node knows to be committed is in the image."""
        return self.image.offset + 1 >= self._committed

    def has_all_of(self, moment: float) -> bool:
        """Whether the image has everything that was committed at that moment, by the loop's clock."""
        return self.is_active or self._freshness.as_of(self.image.offset + 1) >= moment

    @property
    def is_loaded(self) -> bool:
        """Whether the image has everything that was committed before the current leader: its first record follows."""
        return self.is_active or (self.controller_id >= 0 and self.image.epoch == self.epoch and self.is_caught_up)

    @property
    def features(self) -> dict[str, int]:
        """The finalized feature levels, including the quorum's own."""
        features = dict(self.image.features)
        if self._raft.kraft_version:
            features[KRAFT_VERSION] = self._raft.kraft_version
        return features

    def describe(self) -> QuorumDescription:
        return describe(
            self._raft,
            high_watermark=self._committed,
            log_end_offset=self._store.end_offset,
            now_ms=self._clock.now_ms(),
            elapsed_ms=int(self._loop.time() * 1000),
        )

    # -- requests from other nodes -------------------------------------------------------------------------------------

    def request(self, request: Request, answer: Callable[[Any], None]) -> None:
        """A request of the quorum protocol; `answer` gets its Answer."""
        self.driver.request(request, answer)

    def upgrade_kraft_version(
        self, kraft_version: int, *, validate_only: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        """Upgrade from fixed voters to voters in the log. `done` gets an error if the upgrade cannot start; operations
        submitted after it are answered when it is committed."""

        def begun(error: KafkaError | None) -> None:
            self.controller.kraft_version = self._raft.kraft_version
            done(error)

        self.driver.upgrade_kraft_version(kraft_version, validate_only=validate_only, done=begun)

    # -- operations ----------------------------------------------------------------------------------------------------

    def submit(self, operation: Operation[Response], done: Callable[[Response | KafkaError], None]) -> None:
        """Run a handler now; `done` gets its response, or the KafkaError it raised, once that is final."""
        if self._failed or self._is_closed or not self.is_active:
            done(not_controller())
            return
        change = None
        result: Result[Any]
        try:
            result = operation(self.controller)
        except KafkaError as error:
            result = Result([], error)
        if result.records:
            before = self.controller.image
            try:
                change = self._append(result.records)
            except KafkaError as error:
                if not disk_is_full(error):
                    self._fail(error)
                    done(not_controller())
                    return
                self.controller.reset(before)
                done(error)
                return
            except UnencodableMessage as error:
                logger.error("metadata: a change is refused, because it cannot be stored: %s", error)
                self.controller.reset(before)
                done(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The change cannot be stored."))
                return
        end = self._store.end_offset
        if isinstance(result, Unfinished):
            self._pending.append(Pending(end, change, None, None))
            self._loop.call_soon(self.submit, operation, done)
        elif end <= self._committed:
            done(result.response)
        else:
            self._pending.append(Pending(end, change, done, result.response))

    async def call(self, operation: Operation[Response]) -> Response:
        """Like `submit`, as a coroutine; raises the KafkaError."""
        future: asyncio.Future[Response | KafkaError] = self._loop.create_future()

        def done(outcome: Response | KafkaError) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit(operation, done)
        outcome = await future
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def _append(self, records: list[Message]) -> tuple[MetadataImage, MetadataDelta]:
        """Replay first: an invalid record must not get into the log."""
        assert self._claimed_epoch is not None
        epoch, now_ms = self._claimed_epoch, self._clock.now_ms()
        base_offset = self._store.end_offset
        before = self.controller.image
        delta = self.controller.replay(records, base_offset + len(records) - 1, epoch, now_ms)
        version = before.metadata_version or self.controller.image.metadata_version
        values: list[NewRecord] = [(now_ms, None, encode_record(record, version), ()) for record in records]
        batch = build_batch(values, base_offset=base_offset, leader_epoch=epoch)
        self.driver.append(batch, now_ms)
        self.snapshots.count(len(batch))
        return self.controller.image, delta

    # -- events of the quorum ------------------------------------------------------------------------------------------

    def leader_changed(self, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        if self._claimed_epoch is not None and not self.is_active:
            self._give_up()
        logger.info(
            "metadata: epoch %d is led by %s", leader.epoch, "no node" if leader.leader_id < 0 else leader.leader_id
        )
        self._claim_if_caught_up()
        self._on_leader()

    def control_appended(self, last_offset: int, epoch: int) -> None:
        if self._claimed_epoch == epoch:
            delta = self.controller.replay([], last_offset, epoch, self._clock.now_ms())
            self._pending.append(Pending(last_offset + 1, (self.controller.image, delta), None, None))

    def committed(self, high_watermark: int) -> None:
        self._committed = high_watermark
        self._publish_own()
        if not self._replaying_later:
            self._replay()

    def synced(self) -> None:
        self.snapshots.write_if_synced()

    def fetched(self, asked_at: float, high_watermark: int) -> None:
        self._freshness.answered(asked_at, high_watermark, self.image.offset + 1)

    def snapshot_installed(self, image: MetadataImage) -> None:
        delta = delta_between(self.image, image)
        self.image = image
        self._name_unserved(image)
        if self._settings.is_controller:
            self.controller.reset(image)
        self.snapshots.begin_with(SnapshotId(image.offset + 1, image.epoch))
        self._on_commit(image, delta)

    def failed(self, error: BaseException) -> None:
        self._fail(error)

    def _claim_if_caught_up(self) -> None:
        """Become the active controller, once everything from earlier leaders is in the image."""
        leader = self._leader
        if leader.start_offset is None or self._claimed_epoch is not None or self._raft.leading_epoch != leader.epoch:
            return
        if self._committed <= leader.start_offset or self.image.offset + 1 < self._store.end_offset:
            return
        if (reason := self._why_not_lead()) is not None:
            logger.error("metadata: this node hands the quorum over: %s; another controller must lead", reason)
            self.driver.resign(leader.epoch)
            return
        self.controller.reset(self.image)
        self.controller.kraft_version = self._raft.kraft_version
        self._claimed_epoch = leader.epoch
        # Before any decision: decisions depend on which brokers may still send heartbeats.
        self.controller.heartbeats.activate(self.image.brokers, int(self._loop.time() * 1000))
        bootstrap = [] if self._bootstrap is None else self._bootstrap.records
        if self.image.metadata_version == 0 and not bootstrap:
            raise MetadataLost(f"{self._store.directory} has neither records nor a checkpoint to begin with")
        self.submit(lambda controller: controller.activate(bootstrap), _activated)
        logger.info("metadata: this node is the active controller of epoch %d", leader.epoch)
        self._on_leader()

    def _why_not_lead(self) -> str | None:
        if self.image.unserved:
            return f"it does not serve metadata records of {'; '.join(kinds_of(self.image.unserved))}"
        return why_not_lead(self.image.features)

    def _name_unserved(self, image: MetadataImage) -> None:
        for kind in kinds_of(image.unserved):
            if kind not in self._named_unserved:
                self._named_unserved.add(kind)
                logger.warning(
                    "metadata: this version of Penstock does not serve records of %s: they are kept as they are", kind
                )

    def _give_up(self) -> None:
        """Another node leads, or none does."""
        logger.info("metadata: this node is no longer the active controller")
        self._claimed_epoch = None
        self._publish_own()
        self.controller.reset(self.image)
        self._abandon_pending()

    def _publish_own(self) -> None:
        """Publish what this node appended as the leader: it has been replayed already."""
        while self._pending and self._pending[0].offset <= self._committed:
            pending = self._pending.popleft()
            if pending.change is not None:
                self.image, delta = pending.change
                if delta.records:
                    self._on_commit(self.image, delta)
            if pending.done is not None:
                pending.done(pending.outcome)
        if not self._failed and self.snapshots.is_due(self.image):
            self.snapshot()

    def _replay_later(self) -> None:
        self._replaying_later = False
        if self._failed or self._is_closed:
            return
        try:
            self._replay()
        except Exception as error:
            logger.exception("the metadata log cannot be replayed")
            self._fail(error)

    def _replay(self) -> None:
        """Replay records from other leaders, one slice at a time."""
        while self._claimed_epoch is None and self.image.offset + 1 < self._committed:
            self._replay_slice()
            if self._is_opening:
                continue
            if self.snapshots.is_due(self.image):
                self.snapshot()
            if self.image.offset + 1 < self._committed:
                self._replaying_later = True
                self._loop.call_soon(self._replay_later)
                return
        self._claim_if_caught_up()

    def _replay_slice(self) -> None:
        data = self.driver.read_log(self.image.offset + 1, REPLAY_SLICE_BYTES, self._committed)
        delta = MetadataDelta(self.image)
        last = None
        for position, header in iterate_headers(data):
            check_crc(data, position, header)
            last = header
            if header.is_control or header.base_offset <= self.image.offset:
                continue
            for record in iterate_records(data, position, header, max_size=MAX_BATCH_BYTES):
                delta.replay(decode_record(record.value))
        if last is None:
            raise MetadataLost(f"{self._store.directory}: nothing can be read at offset {self.image.offset + 1}")
        self.image = delta.apply(last.last_offset, last.leader_epoch, last.max_timestamp)
        if delta.unserved:
            self._name_unserved(self.image)
        if self._settings.is_controller:
            self.controller.follow(self.image, delta)
        self.snapshots.count(len(data))
        if delta.records:
            self._on_commit(self.image, delta)

    def _fail(self, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        logger.critical("the metadata log failed, this node stops: %r", error)
        self._on_fatal(error)
        # The next start shows whether these were committed; until then no client gets an answer that says so.
        self._abandon_pending()

    def _abandon_pending(self) -> None:
        abandoned, self._pending = self._pending, deque()
        for pending in abandoned:
            if pending.done is not None:
                pending.done(not_controller())

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Write a snapshot of the committed image now; the log starts a new segment after it."""
        raft, image = self._raft, self.image
        kraft_version = raft.kraft_version_at(image.offset)
        voters = raft.voters_at(image.offset) if kraft_version else None
        self.snapshots.write(image, QuorumConfiguration(kraft_version, voters), lambda: self._committed)

    # -- stop ----------------------------------------------------------------------------------------------------------

    def resign(self) -> None:
        """Hand over to another controller, if there can be one."""
        self.driver.shut_down()

    @property
    def may_leave(self) -> bool:
        """After `resign`: whether another node leads now, or none is needed."""
        return self._failed or self._raft.is_shutdown_complete

    async def close(self) -> None:
        """Finish the accepted operations, then close the files."""
        while not self._failed and (running := [*self.driver.under_way, *self.snapshots.under_way]):
            await asyncio.wait(running)
        self._is_closed = True
        self.driver.close()
        self.snapshots.close()
        self._store.close(clean=not self._failed)


def not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")


def _activated(outcome: KafkaError | None) -> None:
    if outcome is not None and outcome.code is not ErrorCode.NOT_CONTROLLER:
        logger.error("what the controller before left undone stays so for now: %s", outcome.message)


def _static_voters(settings: NodeSettings, listener: str) -> VoterSet:
    return VoterSet.of(
        Voter(ReplicaKey(voter.node_id), (VoterEndpoint(listener, voter.host, voter.port),))
        for voter in settings.quorum_voters
    )


def _bootstrap_servers(settings: NodeSettings) -> list[QuorumNode]:
    servers = [
        QuorumNode(-2 - number, host, port) for number, (host, port) in enumerate(settings.quorum_bootstrap_servers)
    ]
    return servers or [QuorumNode(voter.node_id, voter.host, voter.port) for voter in settings.quorum_voters]
