"""The runtime of the metadata log on the node that leads it.

**Order.** A handler runs on the controller's newest image. Its records are replayed on that image and appended to the
log at once, as one batch, so that the next handler sees them. They are committed when the log is synced up to them (the
quorum has one voter). Only then is the new image published and the answer given; answers without records wait as well
if they were computed from something that is not committed yet.

**Group commit.** A sync runs on a worker thread. What is appended meanwhile waits for the next one, which covers all of
it.

**Failure.** A sync of the metadata log that fails leaves it unknown what is on disk, so the node stops: it commits
nothing, answers what waits with NOT_CONTROLLER, as a controller that resigns does, and tells its owner through
`on_fatal`. The next start finds out what was written. The same goes for a write that fails, unless the disk is just
full: then the log is as it was, the change is taken back, and the request is refused.

**Snapshots** are written from a committed image on a worker thread while the log goes on. The log begins a new segment
then, so that what the snapshot replaces can be deleted as a whole.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple, TypeVar

from penstock.broker.formatting import NodeIdentity
from penstock.broker.metadata_store import MetadataLost, MetadataStore, Recovered
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.io.clock import Clock
from penstock.io.files import FileSystem
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import KRAFT_VERSION
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.serde import encode_record
from penstock.metadata.snapshot import QuorumConfiguration, SnapshotId
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.raft.leadership import NotAlone, QuorumHistory, lead_alone
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.records.builder import NewRecord, build_batch
from penstock.records.control import build_quorum_batch
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.quorum")

Response = TypeVar("Response")
Operation = Callable[[Controller], Result[Response]]
Done = Callable[[Any], None]


class Pending(NamedTuple):
    """Something to do once the log is committed below `offset`."""

    offset: int
    # What the records changed; None where there were none.
    change: tuple[MetadataImage, MetadataDelta] | None
    done: Done | None
    outcome: object


class QuorumDescription(NamedTuple):
    """What DescribeQuorum tells."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[Voter, ...]


class MetadataQuorum:
    def __init__(
        self,
        *,
        files: FileSystem,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        settings: NodeSettings,
        identity: NodeIdentity,
        new_id: Callable[[], Uuid],
        on_commit: Callable[[MetadataImage, MetadataDelta], None],
        on_fatal: Callable[[BaseException], None],
        executor: Executor | None = None,
    ) -> None:
        """`on_commit` gets every committed change, in order; `on_fatal` is called once, after which nothing is."""
        self.controller = Controller(settings, identity.cluster_id, new_id)
        self.image = EMPTY_IMAGE
        self.epoch = 0
        self._clock = clock
        self._loop = loop
        self._settings = settings
        self._executor = executor
        self._on_commit = on_commit
        self._on_fatal = on_fatal
        self._local = ReplicaKey(settings.node_id, identity.directories[settings.metadata_directory])
        self._store = MetadataStore(files, settings)
        self._quorum = QuorumConfiguration()
        self._pending: deque[Pending] = deque()
        self._committed = 0
        self._syncing: asyncio.Future[int] | None = None
        self._snapshotting: asyncio.Future[SnapshotId] | None = None
        self._removing: asyncio.Future[None] | None = None
        self._last_snapshot = SnapshotId(0, 0)
        self._last_snapshot_ms = 0
        self._bytes_since_snapshot = 0
        self._failed = False
        self._closed = False

    # -- start ---------------------------------------------------------------------------------------------------------

    def open(self) -> MetadataImage:
        """Recover, become leader, and return the image to start from. Blocks: nothing is served before it anyway."""
        now_ms = self._clock.now_ms()
        recovered = self._store.recover(now_ms)
        self._quorum = recovered.quorum
        self.controller.reset(recovered.image)
        self.controller.kraft_version = recovered.quorum.kraft_version
        self._last_snapshot = recovered.last_snapshot
        self._last_snapshot_ms = now_ms
        self._lead(recovered, now_ms)
        if recovered.image.metadata_version == 0:
            if recovered.bootstrap is None:
                raise MetadataLost(f"{self._store.directory} has neither records nor a checkpoint to begin with")
            self._append(recovered.bootstrap.records, now_ms)
        log = self._store.log
        log.flushed(log.flush())
        self._committed = log.log_end_offset
        self.image = self.controller.image
        self._bytes_since_snapshot = recovered.bytes_after_snapshot
        logger.info(
            "metadata: leading epoch %d, %d topics, %d records after the snapshot at %d",
            self.epoch,
            len(self.image.topics),
            log.log_end_offset - self._last_snapshot.offset,
            self._last_snapshot.offset,
        )
        return self.image

    def _lead(self, recovered: Recovered, now_ms: int) -> None:
        history = QuorumHistory(self._store.read_election(), max(recovered.image.epoch, 0), recovered.quorum_in_log)
        try:
            leadership = lead_alone(self._local, self._voters(), self._quorum.kraft_version, history)
        except NotAlone as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"cannot lead the metadata quorum: {error}") from error
        self.epoch = leadership.election.epoch
        self._store.write_election(leadership.election, self._quorum.kraft_version, self._voters().node_ids)
        batch = build_quorum_batch(
            leadership.records,
            timestamp=now_ms,
            base_offset=self._store.log.log_end_offset,
            leader_epoch=self.epoch,
        )
        self._store.log.append_as_follower(batch, now_ms)
        self.controller.replay([], self._store.log.log_end_offset - 1, self.epoch, now_ms)

    def _voters(self) -> VoterSet:
        if self._quorum.voters is not None:
            return self._quorum.voters
        return VoterSet.of(Voter(ReplicaKey(voter.node_id)) for voter in self._settings.quorum_voters)

    # -- what others may know ------------------------------------------------------------------------------------------

    @property
    def features(self) -> dict[str, int]:
        """The finalized levels, the quorum's own among them."""
        features = dict(self.image.features)
        if self._quorum.kraft_version:
            features[KRAFT_VERSION] = self._quorum.kraft_version
        return features

    def describe(self) -> QuorumDescription:
        return QuorumDescription(
            self._local.node_id,
            self.epoch,
            self._committed,
            self._store.log.log_end_offset,
            self._voters().voters,
        )

    # -- operations ----------------------------------------------------------------------------------------------------

    def submit(self, operation: Operation[Response], done: Callable[[Response | KafkaError], None]) -> None:
        """Run a handler now; `done` gets its response, or the KafkaError it raised, once that is true for good."""
        if self._failed or self._closed:
            done(_stopping())
            return
        change = None
        outcome: Response | KafkaError
        try:
            records, outcome = operation(self.controller)
        except KafkaError as error:
            records, outcome = [], error
        if records:
            before = self.controller.image
            try:
                change = self._append(records, self._clock.now_ms())
            except KafkaError as error:
                if not _disk_is_full(error):
                    self._fail(error)
                    done(_stopping())
                    return
                self.controller.reset(before)
                outcome = error
        end = self._store.log.log_end_offset
        if end == self._committed:
            done(outcome)
            return
        self._pending.append(Pending(end, change, done, outcome))
        self._sync()

    async def call(self, operation: Operation[Response]) -> Response:
        """As `submit`, for those who can wait; raises the KafkaError."""
        future: asyncio.Future[Response | KafkaError] = self._loop.create_future()

        def done(outcome: Response | KafkaError) -> None:
            if not future.done():
                future.set_result(outcome)

        self.submit(operation, done)
        outcome = await future
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def _append(self, records: list[Message], now_ms: int) -> tuple[MetadataImage, MetadataDelta]:
        """Replayed first: a record that does not fit must not get into the log."""
        log = self._store.log
        base_offset = log.log_end_offset
        before = self.controller.image
        delta = self.controller.replay(records, base_offset + len(records) - 1, self.epoch, now_ms)
        version = before.metadata_version or self.controller.image.metadata_version
        values: list[NewRecord] = [(now_ms, None, encode_record(record, version), ()) for record in records]
        batch = build_batch(values, base_offset=base_offset, leader_epoch=self.epoch)
        log.append_as_follower(batch, now_ms)
        self._bytes_since_snapshot += len(batch)
        return self.controller.image, delta

    # -- commit --------------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        if self._syncing is None and self._pending and not self._failed:
            self._syncing = self._loop.run_in_executor(self._executor, self._store.log.flush)
            self._syncing.add_done_callback(self._synced)

    def _synced(self, future: asyncio.Future[int]) -> None:
        self._syncing = None
        if self._failed or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self._fail(error)
            return
        self._store.log.flushed(future.result())
        self._commit(future.result())
        self._sync()

    def _commit(self, offset: int) -> None:
        self._committed = offset
        while self._pending and self._pending[0].offset <= offset:
            pending = self._pending.popleft()
            if pending.change is not None:
                self.image, delta = pending.change
                try:
                    self._on_commit(self.image, delta)
                except Exception as error:
                    # Half-applied metadata is worse than none: whoever failed may have lost any part of it.
                    self._fail(error)
                    raise
            if pending.done is not None:
                pending.done(pending.outcome)
        self._snapshot_if_due()

    def _fail(self, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        logger.critical("the metadata log failed, this node stops: %r", error)
        self._on_fatal(error)
        # Whether these came true, the next start will tell; until then nobody is told that they did.
        abandoned, self._pending = self._pending, deque()
        for pending in abandoned:
            if pending.done is not None:
                pending.done(_stopping())

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        if self._snapshotting is not None or self._closed or self.image.offset + 1 <= self._last_snapshot.offset:
            return
        interval_ms = self._settings.metadata_log_max_snapshot_interval_ms
        large = self._bytes_since_snapshot > self._settings.metadata_log_max_record_bytes_between_snapshots
        old = 0 < interval_ms <= self._clock.now_ms() - self._last_snapshot_ms
        if large or old:
            self.snapshot()

    def snapshot(self) -> asyncio.Future[SnapshotId]:
        """Write down the committed image now; the log behind it begins a new segment."""
        assert self._snapshotting is None, "one snapshot at a time"
        now_ms = self._clock.now_ms()
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = now_ms
        self._snapshotting = self._loop.run_in_executor(
            self._executor, self._store.write_snapshot, self.image, self._quorum, now_ms
        )
        self._snapshotting.add_done_callback(self._snapshot_written)
        return self._snapshotting

    def _snapshot_written(self, future: asyncio.Future[SnapshotId]) -> None:
        self._snapshotting = None
        if self._failed or self._closed or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            # The log still has everything: no reason to stop, and the next commit that makes one due tries again.
            logger.error("a snapshot of the metadata could not be written: %s", error)
            return
        self._last_snapshot = future.result()
        logger.info("metadata: snapshot at %d", self._last_snapshot.offset)
        try:
            self._trim()
        except (KafkaError, OSError) as failure:
            logger.error("the metadata log could not be trimmed: %s", failure)

    def _trim(self) -> None:
        """Delete what the snapshots that are kept make superfluous."""
        now_ms = self._clock.now_ms()
        log = self._store.log
        log.roll(now_ms)
        paths, start = self._store.expired_snapshots(now_ms)
        log.advance_log_start(min(start, self._committed))
        paths += log.delete_old_segments(now_ms, self._committed)
        if paths:
            self._removing = self._loop.run_in_executor(self._executor, self._store.remove_files, paths)
            self._removing.add_done_callback(self._removed)

    def _removed(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            logger.error("what a snapshot replaced could not be removed: %r", error)

    # -- stop ----------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Finish what was accepted, then let the files go."""
        while not self._failed:
            running = [
                future
                for future in (self._syncing, self._snapshotting, self._removing)
                if future is not None and not future.done()
            ]
            if not running:
                break
            await asyncio.wait(running)
        self._closed = True
        self._store.log.close(clean=not self._failed)


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is stopping.")


def _disk_is_full(error: KafkaError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
