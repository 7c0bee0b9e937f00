"""One node of a quorum on a table: time stands still, and what it sends is looked at instead of delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from penstock.protocol.messages.control_records import KRaftVersionRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    Answer,
    BeginQuorumEpoch,
    Fetch,
    FetchAnswer,
    LeaderHint,
    Request,
    Vote,
    VoteAnswer,
)
from penstock.raft.quorum_state import ElectionState
from penstock.raft.raft import Raft
from penstock.raft.ready import QuorumNode, Ready, Send
from penstock.raft.roles import Candidate, Leader, Role
from penstock.raft.settings import RaftSettings
from penstock.raft.voters import NO_VOTERS, ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.simulator.quorum.disk import BEGINNING, Batch, Disk, SimulatedRaftLog
from penstock.simulator.quorum.node import CLUSTER_ID, LISTENER, SimulatedNode

SETTINGS = RaftSettings(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    election_backoff_max_ms=100,
    request_timeout_ms=80,
    retry_backoff_ms=10,
    fetch_max_wait_ms=50,
    fetch_snapshot_max_bytes=32,
    death_grace_ms=20,
    silence_backoff_ms=100,
)
AnyRole = TypeVar("AnyRole", bound=Role)
AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


def directory(node_id: int) -> bytes:
    return bytes([node_id % 256]) * 16


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id))


def endpoints(node_id: int) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint(LISTENER, f"node-{node_id}", 9093),)


def voter_set(*node_ids: int, static: bool = False) -> VoterSet:
    return VoterSet.of(
        Voter(ReplicaKey(node_id) if static else key(node_id), endpoints(node_id)) for node_id in node_ids
    )


class Table:
    """Node 1, unless told otherwise. Chance always picks 0, until told otherwise, so that every time-out is as short as
    it may be."""

    def __init__(
        self,
        *voters: int,
        node_id: int = 1,
        static: bool = False,
        can_become_voter: bool = True,
        settings: RaftSettings = SETTINGS,
        election: ElectionState | None = None,
        log: Sequence[tuple[int, Sequence[str]]] = (),
        formatted: bool = True,
        start: bool = True,
    ) -> None:
        self.now = 1000
        self.chance = 0
        self.deadline: int | None = None
        self.sent: list[Send] = []
        self.given: list[tuple[object, Answer]] = []
        self.steps: list[Ready] = []
        self.auto_sync = True
        self._syncs: list[Callable[[], None]] = []
        known = voter_set(*voters, static=static)
        disk = Disk(directory(node_id))
        if formatted and not static:
            disk.bootstrap = (KRaftVersionRecord(kraft_version=1), known.to_record())
        disk.election = disk.synced_election = election
        writer = SimulatedRaftLog(disk)
        for epoch, payloads in log:
            writer.append(epoch, payloads)
        disk.synced = disk.log
        self.node = SimulatedNode(
            self,
            node_id,
            disk,
            settings=settings,
            static_voters=known if static else NO_VOTERS,
            bootstrap=tuple(QuorumNode(-1 - other, f"node-{other}", 9093) for other in voters),
            can_become_voter=can_become_voter,
        )
        if start:
            self.node.start()

    # -- World -----------------------------------------------------------------------------------------------------

    def random_below(self, number: int) -> int:
        return min(self.chance, number - 1)

    def clock(self, node: SimulatedNode) -> int:
        return self.now

    def wake(self, node: SimulatedNode, deadline: int | None) -> None:
        self.deadline = deadline

    def transmit(self, node: SimulatedNode, send: Send) -> None:
        self.sent.append(send)

    def give(self, node: SimulatedNode, token: object, answer: Answer) -> None:
        self.given.append((token, answer))

    def start_sync(self, node: SimulatedNode, done: Callable[[], None]) -> None:
        self._syncs.append(done)
        if self.auto_sync:
            self.sync()

    def may_crash(self, node: SimulatedNode, place: str) -> None: ...

    def observe(self, node: SimulatedNode, event: object) -> None:
        if isinstance(event, Ready):
            self.steps.append(event)

    # -- what a test does ------------------------------------------------------------------------------------------

    def sync(self) -> None:
        pending, self._syncs = self._syncs, []
        for done in pending:
            done()

    def wait(self, milliseconds: int) -> None:
        until = self.now + milliseconds
        while self.deadline is not None and self.deadline < until:
            self.now = max(self.now, self.deadline)
            self.node.tick()
        self.now = until
        self.node.tick()

    def restart(self, *, power: bool = False) -> None:
        self.node.stop()
        self.sent.clear()
        if power:
            self.node.disk.log, self.node.disk.election = self.node.disk.synced, self.node.disk.synced_election
        self.node.start()

    def ask(self, request: Request) -> Answer | None:
        """None if it has to wait."""
        token = object()
        self.node.receive(token, request)
        return next((answer for given, answer in self.given if given is token), None)

    def answer(self, send: Send, answer: Answer) -> None:
        self.node.answered(send.request_id, answer)

    def take(self, kind: type[AnyRequest]) -> list[Send]:
        """What was sent of this kind since the last look."""
        found = [send for send in self.sent if isinstance(send.request, kind)]
        self.sent = [send for send in self.sent if not isinstance(send.request, kind)]
        return found

    def take_one(self, kind: type[AnyRequest]) -> tuple[Send, AnyRequest]:
        (send,) = self.take(kind)
        assert isinstance(send.request, kind)
        return send, send.request

    def append(self, payload: str = "record") -> Batch:
        batch = self.node.append(payload)
        assert batch is not None
        return batch

    # -- what a test sees ------------------------------------------------------------------------------------------

    @property
    def raft(self) -> Raft:
        assert self.node.raft is not None
        return self.node.raft

    def role(self, kind: type[AnyRole]) -> AnyRole:
        role = self.raft.role
        assert isinstance(role, kind), role
        return role

    @property
    def persisted(self) -> ElectionState | None:
        return self.node.disk.synced_election

    @property
    def end(self) -> OffsetAndEpoch:
        return self.node.log.image.end

    # -- shortcuts -------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        """All others vote for this node."""
        self.wait(SETTINGS.election_timeout_ms)
        for pre_vote in (True, False):
            for send in self.take(Vote):
                assert isinstance(send.request, Vote) and send.request.pre_vote is pre_vote
                if isinstance(self.raft.role, Leader):
                    continue
                self.answer(send, VoteAnswer(leader=LeaderHint(send.request.epoch), granted=True))
                if pre_vote and isinstance(self.raft.role, Candidate):
                    break
        self.role(Leader)

    def follow(self, leader_id: int, epoch: int) -> Send:
        """Hears of a leader, and asks it."""
        self.node.receive(object(), begin_epoch(leader_id, epoch))
        return self.take(Fetch)[-1]

    def fetch(
        self,
        node_id: int,
        offset: int,
        last_epoch: int,
        *,
        known: int = -1,
        wait: int = 0,
        leader_epoch: int | None = None,
    ) -> FetchAnswer | None:
        """What a replica would ask of this leader."""
        answer = self.ask(
            Fetch(
                cluster_id=CLUSTER_ID,
                replica=key(node_id),
                leader_epoch=self.raft.epoch if leader_epoch is None else leader_epoch,
                offset=offset,
                last_fetched_epoch=last_epoch,
                high_watermark=known,
                max_wait_ms=wait,
            )
        )
        assert answer is None or isinstance(answer, FetchAnswer)
        return answer

    def records(self, epoch: int, *payloads: str) -> tuple[Batch, ...]:
        """Batches of another leader's log that would fit behind this node's."""
        other = Disk(b"", log=self.node.log.image)
        log = SimulatedRaftLog(other)
        return tuple(log.append(epoch, (payload,)) for payload in payloads)


def begin_epoch(leader_id: int, epoch: int, *, meant_for: ReplicaKey | None = None) -> BeginQuorumEpoch:
    return BeginQuorumEpoch(
        cluster_id=CLUSTER_ID, voter=meant_for, leader=LeaderHint(epoch, leader_id, endpoints(leader_id))
    )


def vote(
    candidate_id: int,
    epoch: int,
    *,
    last: OffsetAndEpoch = BEGINNING,
    pre_vote: bool = False,
    meant_for: ReplicaKey | None = None,
    cluster_id: str | None = CLUSTER_ID,
) -> Vote:
    return Vote(
        cluster_id=cluster_id,
        voter=meant_for,
        candidate=key(candidate_id),
        epoch=epoch,
        last_epoch=last.epoch,
        last_offset=last.offset,
        pre_vote=pre_vote,
    )


def led_by(leader_id: int, epoch: int) -> LeaderHint:
    return LeaderHint(epoch, leader_id, endpoints(leader_id))


def with_settings(**changes: object) -> RaftSettings:
    return replace(SETTINGS, **changes)  # type: ignore[arg-type]
