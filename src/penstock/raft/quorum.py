"""The state of a node in the quorum: its role, its knowledge of the others, and the transitions between roles.

Every change of role goes through a `become_...` method here. State that must survive a restart (epoch, vote, leader) is
compared at the end of a step with what was last persisted; if it differs, the step's `Ready` carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from penstock.raft.ballot import Ballot
from penstock.raft.connections import Connections
from penstock.raft.log_view import LogView
from penstock.raft.messages import Answer, Endpoints, FetchAnswer, LeaderHint, Request, VoterChangeAnswer
from penstock.raft.progress import Progress
from penstock.raft.quorum_state import NOBODY, ElectionState
from penstock.raft.ready import (
    AppendControl,
    ControlRecord,
    LeaderAndEpoch,
    QuorumNode,
    QuorumReply,
    ReadLog,
    ReadSnapshot,
    Ready,
    Token,
)
from penstock.raft.roles import (
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    leader_of,
    voted_for,
)
from penstock.raft.settings import RaftSettings
from penstock.raft.voter_history import BOOTSTRAP_OFFSET, VoterHistory
from penstock.raft.voters import ReplicaKey, Voter

# Kafka's factor: a leader must wait at least as long as its followers, and messages take time.
CHECK_QUORUM_FACTOR: Final = 1.5


class QuorumBroken(RuntimeError):
    """An invariant of the quorum is violated: the node must stop before it does more harm."""


@dataclass(eq=False, kw_only=True)
class Quorum:
    local: Voter
    cluster_id: str
    listener: str
    settings: RaftSettings
    log: LogView
    history: VoterHistory
    bootstrap: InitVar[Sequence[QuorumNode]]
    can_become_voter: bool
    random_below: Callable[[int], int]
    now: int
    shutting_down: bool = field(default=False, init=False)
    ready: Ready = field(default_factory=Ready, init=False)
    role: Role = field(init=False)
    _persisted: ElectionState | None = field(default=None, init=False)

    def __post_init__(self, bootstrap: Sequence[QuorumNode]) -> None:
        here = {(endpoint.host, endpoint.port) for endpoint in self.local.endpoints}
        self.connections = Connections(
            [server for server in bootstrap if (server.host, server.port) not in here],
            self.settings.request_timeout_ms,
            self.settings.retry_backoff_ms,
            self.random_below,
        )
        snapshot = self.log.latest_snapshot
        self.high_watermark = 0 if snapshot is None else snapshot.offset
        self.role = Unattached(0, NOBODY, None, None)
        self._reported_high_watermark = self.high_watermark
        self._reported_leader = LeaderAndEpoch(NOBODY, 0)

    # -- knowledge -------------------------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        return self.local.key

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return leader_of(self.role, self.key)

    @property
    def leader_endpoints(self) -> Endpoints:
        if isinstance(self.role, Leader | Resigned):
            return self.local.endpoints
        if isinstance(self.role, Follower | Prospective):
            return self.role.leader_endpoints
        return ()

    @property
    def hint(self) -> LeaderHint:
        return LeaderHint(self.epoch, self.leader_id, self.leader_endpoints)

    @property
    def is_voter(self) -> bool:
        return self.history.voters.is_voter(self.key)

    @property
    def may_stand(self) -> bool:
        """Whether this node may stand for election: a voter, or a removed voter that does not know its removal is
        committed.

        A removed voter may be the only node that has the removal in its log. The remaining voters would not elect
        another node before they have it, so the removed voter leads them, without counting itself, until it is
        committed. (Two voters, the leader removes itself and crashes: without this rule neither could ever lead again.)
        """
        offset = self.history.voters_offset
        removed = offset is not None and offset >= self.high_watermark and self.history.voters_before.is_voter(self.key)
        return self.is_voter or removed

    @property
    def is_only_voter(self) -> bool:
        return self.history.voters.is_only_voter(self.key)

    @property
    def known_high_watermark(self) -> int | None:
        """The high watermark to report to others: a new leader does not know it yet, whatever it knew as a follower."""
        return self.role.progress.high_watermark if isinstance(self.role, Leader) else self.high_watermark

    @property
    def election(self) -> ElectionState:
        voted = voted_for(self.role, self.key)
        leader_id = self.leader_id
        if voted is None:
            return ElectionState(self.epoch, leader_id)
        directory_id = voted.directory_id if self.history.kraft_version >= 1 else ZERO_UUID
        return ElectionState(self.epoch, leader_id, voted.node_id, directory_id)

    def destination(self, node_id: int, endpoints: Endpoints) -> QuorumNode | None:
        """The address of a node: its endpoint on the quorum's listener."""
        for endpoint in endpoints:
            if endpoint.listener == self.listener:
                return QuorumNode(node_id, endpoint.host, endpoint.port)
        return None

    def random_election_deadline(self) -> int:
        timeout = self.settings.election_timeout_ms
        return self.now + timeout + (self.random_below(timeout) if timeout else 0)

    # -- a step ----------------------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Start a step. The quorum's `now` never moves back, whatever the clock does."""
        self.now = max(self.now, now)
        self.ready = Ready()

    def finish(self, deadline: int | None) -> Ready:
        ready = self.ready
        ready.deadline = deadline
        election = self.election
        if election != self._persisted:
            ready.election = self._persisted = election
        if self.high_watermark > self._reported_high_watermark:
            ready.high_watermark = self._reported_high_watermark = self.high_watermark
        leader = self.leader_and_epoch
        if leader != self._reported_leader:
            ready.leader = self._reported_leader = leader
        return ready

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        if isinstance(self.role, Leader):
            return LeaderAndEpoch(self.key.node_id, self.epoch, self.role.progress.epoch_start_offset)
        if isinstance(self.role, Resigned):
            # Others are still told that this node leads: they need nothing from it, and no other node leads.
            return LeaderAndEpoch(NOBODY, self.epoch)
        return LeaderAndEpoch(self.leader_id, self.epoch)

    def send(self, to: QuorumNode, request: Request) -> None:
        self.ready.sends.append(self.connections.send(to, request, self.now))

    def reply(self, token: Token, answer: Answer, read: ReadLog | ReadSnapshot | None = None) -> None:
        self.ready.replies.append(QuorumReply(token, answer, read))

    def append_control(self, records: Sequence[ControlRecord]) -> int:
        """Append the records as one batch at the end of the log; effective at once. Returns the offset of its last
        record."""
        base_offset = self.log.end_offset
        assert not any(isinstance(effect, AppendControl) for effect in self.ready.log), "one control batch a step"
        self.ready.log.append(AppendControl(base_offset, self.epoch, tuple(records)))
        for offset, record in enumerate(records, base_offset):
            self.history.replay(offset, record)
        if isinstance(self.role, Leader):
            self.role.progress.voters_changed(self.history.voters)
            # A voter that has just been added gets the full time to fetch.
            self.role.check_quorum_deadline = self.now + self.check_quorum_timeout_ms
        return base_offset + len(records) - 1

    # -- roles -----------------------------------------------------------------------------------------------------

    def restore(self, election: ElectionState | None) -> None:
        """Set the role to start in. A leader that restarts has resigned: it may have lost unsynced writes, and must
        neither write again nor vote in its epoch."""
        assert not isinstance(self.role, Leader)
        self._persisted = election
        election = election or ElectionState(0)
        last_epoch = self.log.last_epoch
        if election.epoch < last_epoch:
            election = ElectionState(last_epoch)
        epoch, leader_id = election.epoch, election.leader_id
        voted = None if election.voted_id < 0 else ReplicaKey(election.voted_id, election.voted_directory_id)
        endpoints = self.history.voters.endpoints(leader_id)
        deadline = self.random_election_deadline()
        if self.is_only_voter and (voted is None or leader_id >= 0):
            self.role = Unattached(epoch, NOBODY, None, self.now)
        elif leader_id == self.key.node_id:
            self.role = Resigned(epoch, deadline, (), self._other_voters())
        elif self.may_stand and voted is not None and voted.node_id == self.key.node_id and leader_id < 0:
            self.role = Candidate(epoch, Ballot(self.history.voters, self.key), deadline)
        elif leader_id >= 0 and self.destination(leader_id, endpoints) is not None:
            self.role = self._follower(epoch, leader_id, endpoints, voted)
        else:
            self.role = Unattached(epoch, leader_id, voted, deadline if self.may_stand else None)

    def become_unattached(self, epoch: int, leader_id: int = NOBODY) -> None:
        role = self.role
        assert epoch > self.epoch or (epoch == self.epoch and isinstance(role, Prospective))
        voted = voted_for(role, self.key) if epoch == self.epoch else None
        self._become(Unattached(epoch, leader_id, voted, self._unattached_deadline(role)))

    def _unattached_deadline(self, role: Role) -> int | None:
        """A running timeout continues, so that a series of new epochs cannot delay an election for ever."""
        if not self.may_stand:
            return None
        if isinstance(role, Unattached | Candidate | Resigned) and role.election_deadline is not None:
            return role.election_deadline
        if isinstance(role, Prospective) and not role.ballot.is_lost:
            return role.election_deadline
        return self.random_election_deadline()

    def become_prospective(self) -> None:
        assert self.may_stand
        self._become(
            Prospective(
                self.epoch,
                self.leader_id,
                self.leader_endpoints,
                voted_for(self.role, self.key),
                Ballot(self.history.voters, self.key),
                self.random_election_deadline(),
            )
        )

    def become_candidate(self) -> None:
        ballot = Ballot(self.history.voters, self.key)
        self._become(Candidate(self.epoch + 1, ballot, self.random_election_deadline()))

    def become_leader(self) -> None:
        """Start leading by writing a LeaderChange batch: only once a majority has a batch of the new epoch on disk is
        it known what was committed before."""
        candidate = self.role
        assert isinstance(candidate, Candidate) and candidate.ballot.is_won
        voters = self.history.voters
        leader = Leader(
            candidate.epoch,
            Progress(self.key, voters, self.log.end_offset),
            candidate.ballot.granting,
            self.now + self.check_quorum_timeout_ms,
            self.now,
        )
        if self.history.kraft_version == 0:
            leader.described_voters = voters.with_voter(self.local)
        self._become(leader)
        leader.progress.synced(self.log.synced_offset)
        records: list[ControlRecord] = [
            LeaderChangeMessage(
                leader_id=self.key.node_id,
                voters=voters.leader_change_voters(),
                granting_voters=[LeaderChangeMessageVoter(voter_id=voter_id) for voter_id in leader.granting_voters],
            )
        ]
        is_news = self.history.voters_offset == BOOTSTRAP_OFFSET or voters.get(self.key.node_id) != self.local
        if self.history.kraft_version >= 1 and self.is_voter and is_news:
            records.append(KRaftVersionRecord(kraft_version=self.history.kraft_version))
            records.append(voters.with_voter(self.local).to_record())
        self.append_control(records)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        assert leader_id != self.key.node_id
        assert epoch > self.epoch or (epoch == self.epoch and not isinstance(self.role, Leader))
        voted = voted_for(self.role, self.key) if epoch == self.epoch else None
        self._become(self._follower(epoch, leader_id, endpoints, voted))

    def become_resigned(self) -> None:
        leader = self.role
        assert isinstance(leader, Leader)
        successors = leader.progress.others_most_caught_up_first()
        self._become(Resigned(self.epoch, self.random_election_deadline(), successors, self._other_voters()))

    def vote_for(self, candidate: ReplicaKey) -> None:
        """Vote. Binding, so persisted before the answer. The candidate's log is at least as good as this node's."""
        role = self.role
        assert isinstance(role, Unattached | Prospective)
        assert role.voted is None or role.voted.node_id == candidate.node_id, "one vote an epoch"
        if role.voted is None:
            role.voted = candidate
            if role.election_deadline is not None:
                role.election_deadline = self.random_election_deadline()

    def _follower(self, epoch: int, leader_id: int, endpoints: Endpoints, voted: ReplicaKey | None) -> Follower:
        fetch_timeout = self.settings.fetch_timeout_ms
        return Follower(epoch, leader_id, endpoints, voted, self.now + fetch_timeout, self.now + 2 * fetch_timeout)

    def _other_voters(self) -> set[int]:
        return {node_id for node_id in self.history.voters.node_ids if node_id != self.key.node_id}

    @property
    def check_quorum_timeout_ms(self) -> int:
        return int(self.settings.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    def _become(self, role: Role) -> None:
        assert type(role) in TRANSITIONS[type(self.role)], f"from {self.role} to {role}"
        previous, self.role = self.role, role
        self.connections.reset()
        if isinstance(previous, Leader):
            self._abandon(previous)

    def _abandon(self, leader: Leader) -> None:
        """Fail the requests that wait at a former leader; their senders may repeat them at the next one."""
        for parked in leader.parked:
            self.reply(parked.token, FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=self.hint))
        if leader.change is not None and leader.change.token is not None:
            self.reply(leader.change.token, VoterChangeAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=self.hint))

    # -- hearing of others -----------------------------------------------------------------------------------------

    def learn(self, hint: LeaderHint) -> None:
        """Process another node's view of the epoch and its leader."""
        epoch, leader_id = hint.epoch, hint.leader_id
        endpoints = hint.endpoints or self.history.voters.endpoints(leader_id)
        if leader_id == self.key.node_id:
            # The hint is about this node with a former disk, or is outdated: only the epoch itself is news.
            if epoch > self.epoch:
                self.become_unattached(epoch)
            return
        if epoch == self.epoch and leader_id >= 0 and self.leader_id not in (NOBODY, leader_id):
            raise QuorumBroken(f"epoch {epoch} is led by {self.leader_id}, and by {leader_id} as well")
        can_follow = leader_id >= 0 and self.destination(leader_id, endpoints) is not None
        if epoch > self.epoch:
            if can_follow:
                self.become_follower(epoch, leader_id, endpoints)
            else:
                self.become_unattached(epoch, leader_id)
        elif epoch == self.epoch and can_follow:
            known = isinstance(self.role, Follower | Prospective) and self.leader_id == leader_id
            if self.leader_id == NOBODY or not known or len(endpoints) > len(self.leader_endpoints):
                self.become_follower(epoch, leader_id, endpoints)

    def commit(self, offset: int) -> None:
        if offset < self.high_watermark:
            raise QuorumBroken(f"the high watermark {self.high_watermark} would go back to {offset}")
        self.high_watermark = offset
