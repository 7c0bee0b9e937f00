"""A simulated node of the quorum: the state machine, and a small runtime that drives it by its laws.

A step persists, then applies the effects on the log, then sends; between any two of these the node may crash. Syncs of
the log take time and run concurrently with everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple, Protocol

from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import Answer, FetchAnswer, FetchSnapshotAnswer, Request
from penstock.raft.raft import Raft
from penstock.raft.ready import (
    AppendControl,
    AppendFetched,
    ControlRecord,
    InstallSnapshot,
    QuorumNode,
    QuorumReply,
    ReadLog,
    ReadSnapshot,
    Ready,
    Send,
    StartSnapshot,
    TruncateTo,
    WriteSnapshot,
)
from penstock.raft.settings import RaftSettings
from penstock.raft.voter_history import BOOTSTRAP_OFFSET, VoterHistory
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.simulator.quorum.disk import Batch, Disk, SimulatedRaftLog, Snapshot, control_records

LISTENER = "CONTROLLER"
CLUSTER_ID = "simulated"
FETCH_BATCHES = 5


class Crashed(Exception):
    """The process ended in the middle of a step."""


class ClientRequest(NamedTuple):
    """The token of a request that did not come from a node."""

    request: Request


class World(Protocol):
    """What a node needs from the simulation around it."""

    def random_below(self, number: int) -> int: ...

    def clock(self, node: SimulatedNode) -> int: ...

    def wake(self, node: SimulatedNode, deadline: int | None) -> None: ...

    def transmit(self, node: SimulatedNode, send: Send) -> None: ...

    def give(self, node: SimulatedNode, token: object, answer: Answer) -> None: ...

    def start_sync(self, node: SimulatedNode, done: Callable[[], None]) -> None: ...

    def may_crash(self, node: SimulatedNode, place: str) -> None:
        """Raises Crashed if the node ends here."""
        ...

    def observe(self, node: SimulatedNode, event: object) -> None:
        """Reports an event to the checkers when it happens."""
        ...


@dataclass(eq=False)
class SimulatedNode:
    world: World
    node_id: int
    disk: Disk
    _: KW_ONLY
    settings: RaftSettings
    static_voters: VoterSet
    bootstrap: tuple[QuorumNode, ...]
    can_become_voter: bool
    # Disks that were removed, with their content.
    former_disks: list[Disk] = field(default_factory=list, init=False)
    raft: Raft | None = field(default=None, init=False)
    # Counts processes: events of an earlier process do not reach this one.
    incarnation: int = field(default=0, init=False)
    _syncing: bool = field(default=False, init=False)
    _part: bytearray = field(default_factory=bytearray, init=False)

    def __post_init__(self) -> None:
        self.log = SimulatedRaftLog(self.disk)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.disk.directory_id)

    @property
    def is_running(self) -> bool:
        return self.raft is not None

    @property
    def endpoint(self) -> VoterEndpoint:
        return VoterEndpoint(LISTENER, f"node-{self.node_id}", 9093)

    # -- starts and stops ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.incarnation += 1
        self._syncing = False
        self.log = SimulatedRaftLog(self.disk)
        if self.log.image.snapshots and self.log.image.snapshots[-1].id.offset > self.log.end_offset:
            # The snapshot was synced, and the log before it was not.
            self.log.install(self.log.image.snapshots[-1])
        history = VoterHistory(self.static_voters)
        for record in self.disk.bootstrap:
            history.replay(BOOTSTRAP_OFFSET, record)
        if self.log.image.snapshots:
            latest = self.log.image.snapshots[-1]
            history.reset(latest.id.offset, latest.kraft_version, latest.voters)
        for offset, record in self.log.control_records():
            # What the latest snapshot contains is not replayed again.
            if not self.log.image.snapshots or offset >= self.log.image.snapshots[-1].id.offset:
                history.replay(offset, record)
        now = self.world.clock(self)
        self.raft = Raft(
            local=Voter(self.key, (self.endpoint,)),
            cluster_id=CLUSTER_ID,
            listener=LISTENER,
            log=self.log,
            history=history,
            election=self.disk.election,
            bootstrap=self.bootstrap,
            settings=self.settings,
            random_below=self.world.random_below,
            can_become_voter=self.can_become_voter,
            now=now,
        )
        self.step(lambda raft: raft.start(now))
        self.sync()

    def stop(self) -> None:
        self.raft = None

    # -- driving the state machine ---------------------------------------------------------------------------------

    def step(self, act: Callable[[Raft], Ready]) -> None:
        """One input, and everything that follows from it at once."""
        try:
            while self.raft is not None:
                raft = self.raft
                ready = act(raft)
                self.world.observe(self, ready)
                after = self._apply(ready)
                if after is None:
                    self.world.wake(self, ready.deadline)
                    return
                act = after
        except Crashed:
            return

    def _apply(self, ready: Ready) -> Callable[[Raft], Ready] | None:
        if ready.election is not None:
            self.persist(ready)
            self.world.may_crash(self, "after quorum-state")
        after = self._apply_log(ready)
        self.world.may_crash(self, "after the log")
        for send in ready.sends:
            self.world.transmit(self, send)
        for reply in ready.replies:
            self.world.give(self, reply.token, self._fill(reply))
        self.sync()
        return after

    def persist(self, ready: Ready) -> None:
        self.disk.election = self.disk.synced_election = ready.election

    def _apply_log(self, ready: Ready) -> Callable[[Raft], Ready] | None:
        installed: Snapshot | None = None
        control: list[tuple[int, ControlRecord]] = []
        for effect in ready.log:
            match effect:
                case TruncateTo():
                    self.world.observe(self, effect)
                    self.log.truncate_to(effect.offset)
                case AppendControl():
                    assert effect.base_offset == self.log.end_offset
                    self.world.observe(self, self.log.append(effect.epoch, effect.records))
                case AppendFetched():
                    control += self._append_fetched(effect)
                case StartSnapshot():
                    self._part = bytearray()
                case WriteSnapshot():
                    assert effect.position == len(self._part)
                    self._part += effect.data
                case InstallSnapshot():
                    installed = Snapshot.from_bytes(effect.snapshot, bytes(self._part))
                    self.world.observe(self, installed)
                    self.log.install(installed)
        if installed is not None:
            snapshot = installed
            return lambda raft: raft.snapshot_installed(
                self.world.clock(self), snapshot.id, snapshot.kraft_version, snapshot.voters
            )
        if ready.log:
            return lambda raft: raft.appended(self.world.clock(self), control)
        return None

    def _append_fetched(self, effect: AppendFetched) -> list[tuple[int, ControlRecord]]:
        control: list[tuple[int, ControlRecord]] = []
        batches = effect.records
        assert isinstance(batches, tuple)
        for batch in batches:
            assert isinstance(batch, Batch)
            self.log.append_fetched([batch])
            self.world.observe(self, batch)
            control += control_records(batch)
        return control

    def _fill(self, reply: QuorumReply) -> Answer:
        answer, read = reply.answer, reply.read
        if isinstance(read, ReadLog):
            assert isinstance(answer, FetchAnswer)
            return replace(answer, records=tuple(self.log.read(read.offset, FETCH_BATCHES)))
        if isinstance(read, ReadSnapshot):
            assert isinstance(answer, FetchSnapshotAnswer)
            snapshot = self.log.snapshot(read.snapshot)
            assert snapshot is not None
            return replace(answer, data=snapshot.to_bytes()[read.position : read.position + read.max_bytes])
        return answer

    # -- syncing ---------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        if self._syncing or self.raft is None or self.log.synced_offset == self.log.end_offset:
            return
        if not self.can_become_voter and not self.raft.is_voter:
            return
        self._syncing = True
        image, cuts, incarnation = self.log.image, self.disk.cuts, self.incarnation
        number = self.disk.sync_begun()

        def done() -> None:
            if self.disk.cuts == cuts:
                self.disk.sync_ended(number, image)
            if self.incarnation == incarnation and self.raft is not None:
                self._syncing = False
                self.step(lambda raft: raft.flushed(self.world.clock(self)))
                self.sync()

        self.world.start_sync(self, done)

    # -- called by the simulation ----------------------------------------------------------------------------------

    def receive(self, token: object, request: Request) -> None:
        self.step(lambda raft: raft.requested(self.world.clock(self), token, request))

    def answered(self, request_id: int, answer: Answer) -> None:
        self.step(lambda raft: raft.answered(self.world.clock(self), request_id, answer))

    def failed(self, request_id: int, *, is_dead: bool) -> None:
        self.step(lambda raft: raft.request_failed(self.world.clock(self), request_id, is_dead=is_dead))

    def tick(self) -> None:
        self.step(lambda raft: raft.tick(self.world.clock(self)))

    def append(self, payload: str) -> Batch | None:
        """As the controller on this node would."""
        epoch = self.raft.leading_epoch if self.raft is not None else None
        if epoch is None:
            return None
        batch = self.log.append(epoch, (payload,))
        self.world.observe(self, batch)
        self.step(lambda raft: raft.appended(self.world.clock(self)))
        self.sync()
        return batch

    def snapshot(self, *, trim: bool) -> bool:
        """A snapshot of everything committed; with `trim`, the log before it is removed."""
        raft = self.raft
        if raft is None:
            return False
        offset = raft.high_watermark
        latest = self.log.latest_snapshot
        fingerprint = self.log.image.fingerprint_at(offset)
        if offset == 0 or fingerprint is None or (latest is not None and latest.offset >= offset):
            return False
        epoch = next((batch.epoch for batch in self.log.image.batches if batch.next_offset == offset), None)
        if epoch is None:
            return False
        snapshot = Snapshot(
            OffsetAndEpoch(offset, epoch), fingerprint, raft.kraft_version_at(offset - 1), raft.voters_at(offset - 1)
        )
        self.log.add_snapshot(snapshot, trim=trim)
        self.step(lambda raft: raft.log_start_moved(self.world.clock(self)))
        return True
