"""Drives the Raft state machine: feeds it inputs one at a time, and makes its decisions durable before they are sent.

Theory of operation:

- Every event (a request, an answer, a timer, a finished sync) is an input. Inputs are handled one at a time; while a
  worker thread writes the result of one of them, the others wait in a queue.
- Only the driver writes to the log; the active controller's batches come in through `append`.
- A worker thread syncs an election before anything is sent or answered. Log records are written on the loop, as
  everywhere, and synced by a worker thread in parallel to everything else. The finished sync is an input again
  (`flushed`), so many records share one sync. Only a truncation and the installation of a snapshot wait for a running
  sync.
- One timer runs, for the earliest deadline. A later deadline does not reset it; the timer checks again when it fires.
- While the node opens, nothing is served and no client waits: every step runs synchronously, in place.

A disk failure, or an error that the state machine reports as fatal, ends the node: `on_fatal` is called once, and
nothing happens after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from penstock.broker.log_limiter import SparingLog
from penstock.broker.metadata.raft_wire import answer_from_wire, request_to_wire
from penstock.broker.metadata.recovery import control_records
from penstock.broker.metadata.store import MetadataStore, disk_is_full
from penstock.broker.net.peers import PeerFailed, Peers
from penstock.log.log import NoRoom
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import QuorumConfiguration
from penstock.model.errors import KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import Answer, Fetch, FetchAnswer, FetchSnapshot, FetchSnapshotAnswer, Request
from penstock.raft.raft import Raft
from penstock.raft.ready import (
    AppendControl,
    AppendFetched,
    ControlRecord,
    InstallSnapshot,
    LeaderAndEpoch,
    LogEffect,
    QuorumReply,
    ReadLog,
    Ready,
    Send,
    StartSnapshot,
    TruncateTo,
    WriteSnapshot,
)
from penstock.raft.settings import RaftSettings
from penstock.records.batch import CorruptBatch
from penstock.records.control import build_quorum_batch

logger = logging.getLogger("penstock.quorum")

Input = Callable[[int], Ready]
IsDead = Callable[[int, str, bool], bool]  # node id, host, whether a connection was refused
RETRY_SYNC_S = 0.5

# The leader holds fetches back, so other requests must not queue behind them.
FETCH_CHANNEL = "quorum-fetch"
ELECTION_CHANNEL = "quorum"


class QuorumEvents(Protocol):
    """Receives the events of the quorum."""

    def leader_changed(self, leader: LeaderAndEpoch) -> None: ...

    def control_appended(self, last_offset: int, epoch: int) -> None:
        """This node, as the leader, appended control records."""
        ...

    def committed(self, high_watermark: int) -> None: ...

    def synced(self) -> None:
        """More of the log is on disk."""
        ...

    def fetched(self, asked_at: float, high_watermark: int) -> None:
        """The leader has answered a fetch that was sent at `asked_at`, by the loop's clock."""
        ...

    def snapshot_installed(self, image: MetadataImage) -> None:
        """The log starts after the snapshot now."""
        ...

    def failed(self, error: BaseException) -> None: ...


@owned_by_loop()
class RaftDriver:
    def __init__(
        self,
        *,
        raft: Raft,
        store: MetadataStore,
        settings: RaftSettings,
        listener: str,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        events: QuorumEvents,
        must_sync: bool,
        executor: Executor | None = None,
        is_dead: IsDead = lambda node_id, host, refused: False,
    ) -> None:
        """`now_ms`: the wall clock, for batches. `must_sync`: False for an observer, which does not count for commits.
        `is_dead`: whether the process of a node that does not answer is certainly gone."""
        self.raft = raft
        self.is_failed = False
        self._store = store
        self._listener = listener
        self._peers = peers
        self._loop = loop
        self._failures_log = SparingLog(logger, loop.time)
        self._now_ms = now_ms
        self._events = events
        self._must_sync = must_sync
        self._executor = executor
        self._is_dead = is_dead
        self._request_timeout_ms = settings.request_timeout_ms
        self._timeout_s = (settings.request_timeout_ms + settings.fetch_max_wait_ms) / 1000
        self._inputs: deque[Input] = deque()
        self.is_busy = False
        self._is_opening = True
        self._is_closed = False
        self._syncing: asyncio.Future[int] | None = None
        self._after_sync: Callable[[], None] | None = None
        self._working: asyncio.Future[Any] | None = None  # an election or a snapshot, on a thread
        self._deadline: int | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0
        self._append_is_news = False
        self._no_room_until = 0.0

    # -- inputs ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the state machine; a quorum of one has a leader when this returns."""
        log = self._store.log
        log.flushed(log.flush())
        self._input(self.raft.start)
        while not self.is_failed and self._must_sync and self._store.synced_offset < self._store.end_offset:
            log.flushed(log.flush())
            self._input(self.raft.flushed)
        self._is_opening = False

    def request(self, request: Request, answer: Callable[[Any], None]) -> None:
        """A request from another node; `answer` gets its Answer now or later, or never if this node ends first."""
        self._input(lambda now: self.raft.requested(now, answer, request))

    def append(self, batch: bytearray, now_ms: int) -> None:
        """Append a batch of the active controller. All batches of one turn of the loop are one input."""
        self._store.log.append_preassigned(batch, now_ms)
        if self._is_opening:
            self._input(self.raft.appended)
        elif not self._append_is_news:
            self._append_is_news = True
            self._loop.call_soon(self._tell_appended)

    def _tell_appended(self) -> None:
        self._append_is_news = False
        self._input(self.raft.appended)

    def log_start_moved(self) -> None:
        self._input(self.raft.log_start_moved)

    def resign(self, epoch: int) -> None:
        self._input(lambda now: self.raft.resign(now, epoch))

    def shut_down(self) -> None:
        self._input(self.raft.shutdown)

    def upgrade_kraft_version(
        self, kraft_version: int, *, validate_only: bool, done: Callable[[KafkaError | None], None]
    ) -> None:
        """`done` gets an error if it cannot start; it is complete when the log up to its current end is committed."""

        def upgrade(now: int) -> Ready:
            try:
                ready = self.raft.upgrade_kraft_version(now, kraft_version, validate_only=validate_only)
            except KafkaError as error:
                done(error)
                return self.raft.tick(now)
            self._loop.call_soon(done, None)
            return ready

        self._input(upgrade)

    def _input(self, act: Input) -> None:
        self._inputs.append(act)
        self._take_inputs()

    # -- a step ----------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return int(self._loop.time() * 1000)

    def _take_inputs(self) -> None:
        while self._inputs and not self.is_busy and not self.is_failed and not self._is_closed:
            act = self._inputs.popleft()
            self.is_busy = True
            try:
                self._persist(act(self._now()))
            except Exception as error:
                logger.exception("a step of the quorum failed")
                self._fail(error)
                return
        if not self.is_busy:
            self._sync_if_due()

    def _go_on(self, step: Callable[[], None]) -> None:
        """Continue a step that had to wait, and then handle the inputs that waited behind it."""
        if self.is_failed or self._is_closed:
            return
        try:
            step()
        except Exception as error:
            logger.exception("a step of the quorum failed")
            self._fail(error)
            return
        self._take_inputs()

    def _in_thread(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """`then` continues the step; queued inputs follow."""
        if self._is_opening:
            then(work())
            return

        def worked(future: asyncio.Future[Any]) -> None:
            self._working = None
            if future.cancelled() or self.is_failed:
                return
            error = future.exception()
            if error is not None:
                self._fail(error)
            else:
                self._go_on(lambda: then(future.result()))

        self._working = self._loop.run_in_executor(self._executor, work)
        self._working.add_done_callback(worked)

    def _persist(self, ready: Ready) -> None:
        election = ready.election
        if election is None:
            self._apply(ready)
            return
        write = partial(self._store.write_election, election, self.raft.kraft_version, self.raft.voters.node_ids)
        self._in_thread(write, lambda _: self._apply(ready))

    def _apply(self, ready: Ready) -> None:
        if self._syncing is not None and any(isinstance(effect, TruncateTo | InstallSnapshot) for effect in ready.log):
            # The running sync must not count for the data that replaces what it syncs.
            self._after_sync = lambda: self._apply(ready)
            return
        control: list[tuple[int, ControlRecord]] = []
        for effect in ready.log:
            if isinstance(effect, InstallSnapshot):
                self._in_thread(
                    self._store.finish_download(effect.snapshot),
                    partial(self._install, ready, effect.snapshot),
                )
                return
            control += self._change_log(effect)
        if ready.log:
            self._inputs.appendleft(lambda now: self.raft.appended(now, control))
        self._finish(ready)

    def _change_log(self, effect: LogEffect) -> list[tuple[int, ControlRecord]]:
        """Returns the control records in what was fetched."""
        store = self._store
        match effect:
            case TruncateTo(offset):
                logger.info("metadata: truncating from %d to %d", store.end_offset, offset)
                store.log.truncate_to(offset)
            case AppendControl(base_offset, epoch, records):
                assert base_offset == store.end_offset, f"the log ends at {store.end_offset}, not at {base_offset}"
                now_ms = self._now_ms()
                batch = build_quorum_batch(records, timestamp=now_ms, base_offset=base_offset, leader_epoch=epoch)
                store.log.append_preassigned(batch, now_ms)
                self._events.control_appended(store.end_offset - 1, epoch)
            case AppendFetched(records):
                return self._append_fetched(records)
            case StartSnapshot(snapshot):
                logger.info("metadata: fetching the snapshot at %d", snapshot.offset)
                store.start_download(snapshot)
            case WriteSnapshot(snapshot, position, data):
                store.write_download(snapshot, position, data)
        return []

    def _append_fetched(self, records: Any) -> list[tuple[int, ControlRecord]]:
        """On damaged data or a full disk nothing is appended, and the quorum fetches again after a pause."""
        end = self._store.end_offset
        try:
            self._store.log.append_preassigned(records, self._now_ms())
        except CorruptBatch as error:
            self._failures_log.log(logging.ERROR, "what the leader sent of the metadata log cannot be used: %s", error)
        except KafkaError as error:
            if not disk_is_full(error):
                raise
            self._failures_log.log(logging.ERROR, "the metadata log cannot be continued: %s", error.message)
        if self._store.end_offset == end:
            return []
        return [(offset, record) for offset, record in control_records(records) if offset < self._store.end_offset]

    def _install(
        self, ready: Ready, snapshot: OffsetAndEpoch, content: tuple[MetadataImage, QuorumConfiguration] | None
    ) -> None:
        if content is None:
            self._inputs.appendleft(self.raft.appended)
        else:
            image, quorum = content
            self._store.begin_at(snapshot)
            logger.info("metadata: installed the snapshot at %d", snapshot.offset)
            self._events.snapshot_installed(image)
            self._inputs.appendleft(
                lambda now: self.raft.snapshot_installed(now, snapshot, quorum.kraft_version, quorum.voters)
            )
        self._finish(ready)

    def _finish(self, ready: Ready) -> None:
        for send in ready.sends:
            self._send(send)
        for reply in ready.replies:
            self._reply(reply)
        if ready.leader is not None:
            self._events.leader_changed(ready.leader)
        if ready.high_watermark is not None:
            self._events.committed(ready.high_watermark)
        self._set_deadline(ready.deadline)
        self.is_busy = False

    # -- messages --------------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        channel = FETCH_CHANNEL if isinstance(send.request, Fetch | FetchSnapshot) else ELECTION_CHANNEL
        peer = self._peers.at(send.to.host, send.to.port, channel)
        asked_at = self._loop.time()

        def done(outcome: Message | PeerFailed) -> None:
            if isinstance(outcome, PeerFailed):
                is_dead = self._is_dead(send.to.node_id, send.to.host, outcome.refused)
                self._input(lambda now: self.raft.request_failed(now, send.request_id, is_dead=is_dead))
                return
            answer: Answer | None = None
            try:
                answer = answer_from_wire(outcome, self._listener)
            except (KafkaError, ValueError) as error:
                self._failures_log.log(logging.ERROR, "%s does not answer as a node of the quorum: %s", peer, error)
            if answer is None:
                self._input(lambda now: self.raft.request_failed(now, send.request_id))
            else:
                if isinstance(answer, FetchAnswer) and not answer.error and answer.high_watermark >= 0:
                    self._events.fetched(asked_at, answer.high_watermark)
                self._input(lambda now: self.raft.answered(now, send.request_id, answer))

        peer.send(request_to_wire(send.request, self._request_timeout_ms), done, timeout=self._timeout_s)

    def _reply(self, reply: QuorumReply) -> None:
        answer, read = reply.answer, reply.read
        if isinstance(read, ReadLog) and isinstance(answer, FetchAnswer):
            answer = replace(answer, records=self.read_log(read.offset, read.max_bytes, self._store.end_offset))
        elif read is not None and not isinstance(read, ReadLog) and isinstance(answer, FetchSnapshotAnswer):
            data = self._store.read_snapshot_part(read.snapshot, read.position, read.max_bytes)
            answer = replace(answer, data=data)
        token: Any = reply.token
        token(answer)

    def read_log(self, offset: int, max_bytes: int, end: int) -> bytes:
        """Whole batches below `end`. Nearly always from memory: old data is in a snapshot."""
        log = self._store.log
        found = log.read_cached(offset, max_bytes, end) or log.read(offset, max_bytes, end)
        return bytes(found.data)

    # -- time ------------------------------------------------------------------------------------------------------

    def _set_deadline(self, deadline: int | None) -> None:
        self._deadline = deadline
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline / 1000, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        deadline = self._deadline
        if deadline is None or self.is_failed or self._is_closed:
            return
        # Trust the timer, however a fraction of a millisecond is rounded; otherwise it would be set again forever.
        reached = max(self._now(), self._timer_at)
        if reached < deadline:
            self._set_deadline(deadline)
        else:
            self._input(lambda now: self.raft.tick(max(now, reached)))

    # -- syncing ---------------------------------------------------------------------------------------------------

    def _sync_if_due(self) -> None:
        if (
            self._syncing is None
            and self._must_sync
            and not self._is_opening
            and not self.is_failed
            and not self._is_closed
            and self._store.synced_offset < self._store.end_offset
            and self._loop.time() >= self._no_room_until
        ):
            self._syncing = self._loop.run_in_executor(self._executor, self._store.log.flush)
            self._syncing.add_done_callback(self._synced)

    def _synced(self, future: asyncio.Future[int]) -> None:
        self._syncing = None
        if self.is_failed or future.cancelled():
            return
        error = future.exception()
        if error is not None and not isinstance(error, NoRoom):
            self._fail(error)
            return
        after, self._after_sync = self._after_sync, None
        if error is None:
            self._store.log.flushed(future.result())
            self._events.synced()
            self._inputs.append(self.raft.flushed)
        else:
            logger.error("the metadata log cannot be synced, trying again: %s", error)
            self._no_room_until = self._loop.time() + RETRY_SYNC_S
            self._loop.call_later(RETRY_SYNC_S, self._sync_if_due)
        self._go_on(after or (lambda: None))

    # -- shutdown --------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        if self.is_failed:
            return
        self.is_failed = True
        if self._timer is not None:
            self._timer.cancel()
        self._events.failed(error)

    @property
    def under_way(self) -> list[asyncio.Future[Any]]:
        """The futures that must finish before the files are closed."""
        running = (self._syncing, self._working)
        return [future for future in running if future is not None and not future.done()]

    def close(self) -> None:
        self._is_closed = True
        self._inputs.clear()
        if self._timer is not None:
            self._timer.cancel()
