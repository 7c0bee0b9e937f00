"""KRaft, the Raft variant of Kafka's metadata quorum, as a state machine without I/O.

Followers pull: a voter fetches the log from the leader, and the offset it fetches from is its acknowledgement. `Raft`
only decides; it has no socket, file, clock or random source of its own. Each input is a method that takes `now`
(milliseconds of a monotonic clock) and returns a `Ready`: what to persist, to do to the log, to send, to answer, and
when to call again. Roles and their transitions are in `roles.py`, the messages in `messages.py`.

**Laws of the quorum**

1. A node votes once per epoch and persists the vote before it answers; so an epoch has one leader.
2. A node votes only for a log that ends, by (epoch, offset), at least as late as its own; so a leader has everything
   that is committed.
3. A node fetches only from its synced offset, and the leader counts itself only up to what it has synced; so what a
   majority has survives a power loss everywhere.
4. The high watermark is the offset that a majority has reached, but nothing counts before a batch of the leader's own
   epoch does. It never moves back.
5. Logs are compared by epoch (`log_view.py`). A follower never truncates below its high watermark: that is
   `QuorumBroken`, and the node stops.
6. A leader starts its epoch with a LeaderChange batch. A leader that restarts has resigned: it neither writes nor votes
   in the epoch it led.
7. Voters change one at a time; a change is effective when appended, and undone when truncated (`voter_history.py`,
   `changes.py`).

**How a runtime drives it**

    raft = Raft(local=..., log=..., history=..., election=..., ...)     # from quorum-state, snapshot and log
    ready = raft.start(now)
    loop:
        1. if ready.election: write quorum-state and sync it
        2. apply ready.log in order; if there was anything, the next input is
               raft.snapshot_installed(now, ...)   if it ended with InstallSnapshot, else
               raft.appended(now, control records of what was fetched, by offset)
           and no other input may come in between
        3. send ready.sends, give ready.replies; a reply's `read` is filled from log or snapshot first
        4. ready.high_watermark: committed up to there; ready.leader: the current leader
        5. wait for an input, or until ready.deadline (then: tick)

Steps 1 and 2 may run off the loop, as long as no input reaches `raft` meanwhile and step 3 waits for step 1. Until they
are done nothing else may append, including the controller: a control batch belongs at the end of the log as the step
saw it, and the first batch of an epoch must be its LeaderChange. The inputs:

- a request of another node: `requested(now, token, request)`. The reply comes with this Ready or a later one, with the
  same token; tokens are opaque.
- an answer: `answered(now, request_id, answer)`; no answer, because the connection broke or could not be made:
  `request_failed(now, request_id, is_dead=...)`. `Raft` counts timeouts itself and ignores late answers.
- a batch of the controller: only if `leading_epoch` is not None, and only between steps; append it to the log under
  that epoch, then call `appended(now)`. It is committed when the high watermark is above it. If `leading_epoch` changes
  before that, it may be lost.
- whenever the log ends after `synced_offset` on a node that votes or may vote, sync it in a thread, then call
  `flushed(now)`. Followers send the next fetch after that, and the leader counts itself by it. A sync that was running
  while the log was truncated, or restarted from a snapshot, proves nothing about later appends: sync again. The log
  found at a start counts as synced only after a sync.
- the controller gives up: `resign(now, epoch)`. The node stops: `shutdown(now)`, then wait for `is_shutdown_complete`.
- this node wrote a snapshot: no input; `voters_at` and `kraft_version_at` return what goes into it. When the log start
  moves: `log_start_moved(now)`.

When this node becomes leader (`ready.leader` with a `start_offset`), the controller takes over once everything below
`start_offset` is committed and replayed. A quorum of one is the same machine: it elects itself in `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.model.errors import ErrorCode
from penstock.model.ownership import owned_by_loop
from penstock.raft.changes import Changes
from penstock.raft.connections import InFlight
from penstock.raft.following import Following
from penstock.raft.leading import Leading
from penstock.raft.log_view import LogView, OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    Answer,
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    Endpoints,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    KRaftVersions,
    KRaftVersionsAnswer,
    RemoveVoter,
    Request,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from penstock.raft.quorum import Quorum
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import ControlRecord, LeaderAndEpoch, QuorumNode, Ready, Token
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from penstock.raft.settings import RaftSettings
from penstock.raft.voter_history import VoterHistory
from penstock.raft.voters import Voter, VoterSet
from penstock.raft.voting import Voting


@owned_by_loop()
class Raft:
    def __init__(
        self,
        *,
        local: Voter,
        cluster_id: str,
        listener: str,
        log: LogView,
        history: VoterHistory,
        election: ElectionState | None,
        bootstrap: Sequence[QuorumNode],
        settings: RaftSettings,
        random_below: Callable[[int], int],
        can_become_voter: bool,
        now: int,
    ) -> None:
        """`local`: id, directory, controller endpoints and versions of this node. `listener`: the name of the listener
        that the quorum uses. `bootstrap`: `controller.quorum.bootstrap.servers` with ids from -2 down, or the fixed
        voters with their own ids. `can_become_voter`: false for a broker, which need not sync what it fetches.
        `random_below(n)`: a random number from 0 to n - 1."""
        self._election = election
        self._quorum = Quorum(
            local=local,
            cluster_id=cluster_id,
            listener=listener,
            settings=settings,
            log=log,
            history=history,
            bootstrap=bootstrap,
            can_become_voter=can_become_voter,
            random_below=random_below,
            now=now,
        )
        self._changes = Changes(self._quorum)
        self._leading = Leading(self._quorum, self._changes)
        self._following = Following(self._quorum)
        self._voting = Voting(self._quorum)

    # -- queries, allowed at any time ------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The current role; read-only."""
        return self._quorum.role

    @property
    def local(self) -> Voter:
        return self._quorum.local

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._quorum.leader_and_epoch

    @property
    def leader_endpoints(self) -> Endpoints:
        """The leader's endpoints, if they are known."""
        return self._quorum.leader_endpoints

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leading_epoch(self) -> int | None:
        """The epoch to append under; None if this node does not lead, or is giving up."""
        role = self._quorum.role
        return role.epoch if isinstance(role, Leader) and not role.resign_requested else None

    @property
    def high_watermark(self) -> int:
        """The high watermark this node knows; it never moves back."""
        return self._quorum.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._quorum.history.voters

    @property
    def kraft_version(self) -> int:
        return self._quorum.history.kraft_version

    @property
    def election(self) -> ElectionState:
        return self._quorum.election

    def voters_at(self, offset: int) -> VoterSet | None:
        return self._quorum.history.voters_at(offset)

    def kraft_version_at(self, offset: int) -> int:
        return self._quorum.history.kraft_version_at(offset)

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def is_shutdown_complete(self) -> bool:
        """After `shutdown`: whether the node may stop."""
        quorum = self._quorum
        others_lead = quorum.leader_id >= 0 and quorum.leader_id != quorum.key.node_id
        return quorum.shutting_down and (not quorum.is_voter or quorum.is_only_voter or others_lead)

    # -- inputs ----------------------------------------------------------------------------------------------------

    def start(self, now: int) -> Ready:
        """The first input, exactly once."""
        return self._step(now, lambda: self._quorum.restore(self._election))

    def tick(self, now: int) -> Ready:
        return self._step(now, lambda: None)

    def requested(self, now: int, token: Token, request: Request) -> Ready:
        return self._step(now, lambda: self._requested(token, request))

    def answered(self, now: int, request_id: int, answer: Answer) -> Ready:
        return self._step(now, lambda: self._answered(request_id, answer))

    def request_failed(self, now: int, request_id: int, *, is_dead: bool = False) -> Ready:
        """`is_dead`: the process that was asked is known to be gone, which proves more than silence or a refused
        connection."""
        return self._step(now, lambda: self._failed(request_id, is_dead))

    def appended(self, now: int, control: Sequence[tuple[int, ControlRecord]] = ()) -> Ready:
        """The log has changed, by a batch of the controller or by the effects of a Ready. `control`: the control
        records in the fetched data, with their offsets; those of AppendControl are known here."""
        return self._step(now, lambda: self._appended(control))

    def flushed(self, now: int) -> Ready:
        """The log's `synced_offset` has moved."""
        return self._step(now, self._log_moved)

    def snapshot_installed(
        self, now: int, snapshot: OffsetAndEpoch, kraft_version: int, voters: VoterSet | None
    ) -> Ready:
        """A snapshot was installed; pass the control records it begins with, or 0 and None if there are none."""
        return self._step(now, lambda: self._following.snapshot_installed(snapshot, kraft_version, voters))

    def log_start_moved(self, now: int) -> Ready:
        history, log = self._quorum.history, self._quorum.log
        return self._step(now, lambda: history.forget_before(log.start_offset))

    def upgrade_kraft_version(self, now: int, kraft_version: int, *, validate_only: bool = False) -> Ready:
        """Raises KafkaError if the upgrade is impossible. Effective when appended, final when committed, as always."""
        self._changes.check_upgrade(kraft_version)
        if validate_only or kraft_version == self.kraft_version:
            return self.tick(now)
        return self._step(now, lambda: self._changes.upgrade(kraft_version))

    def resign(self, now: int, epoch: int) -> Ready:
        """The controller stops leading `epoch`."""
        return self._step(now, lambda: self._resign(epoch))

    def shutdown(self, now: int) -> Ready:
        """Start a shutdown: a leader resigns and waits for another leader; all other nodes may stop at any time."""
        return self._step(now, self._shut_down)

    # -- a step ----------------------------------------------------------------------------------------------------

    def _step(self, now: int, act: Callable[[], None]) -> Ready:
        quorum = self._quorum
        quorum.begin(now)
        for sent in quorum.connections.expire(quorum.now):
            is_fetch = isinstance(sent.request, Fetch | FetchSnapshot)
            self._gave_up(sent, quorum.settings.silence_backoff_ms if is_fetch else None)
        act()
        if quorum.ready.log and not isinstance(quorum.role, Leader):
            # The log is about to change. The consequences are decided after that.
            return quorum.finish(None)
        self._poll()
        return quorum.finish(self._deadline())

    def _poll(self) -> None:
        """Do what is due. A change of role may make more due, at most once."""
        for _ in range(8):
            role = self._quorum.role
            match role:
                case Unattached():
                    self._voting.poll_unattached(role)
                    if self._quorum.role is role:
                        self._following.fetch_from_bootstrap()
                case Prospective():
                    self._voting.poll_prospective(role)
                case Candidate():
                    self._voting.poll_candidate(role)
                case Leader():
                    self._changes.poll(role)
                    self._leading.poll(role)
                case Follower():
                    self._following.poll(role)
                case Resigned():
                    self._voting.poll_resigned(role)
            if self._quorum.role is role:
                return
        raise AssertionError(f"no end of changes of role, at {self._quorum.role}")

    def _deadline(self) -> int | None:
        quorum = self._quorum
        role = quorum.role
        deadlines: list[int | None] = [quorum.connections.next_deadline()]
        match role:
            case Leader():
                deadlines += self._leading.deadlines(role)
                deadlines += [parked.deadline for parked in role.parked]
                deadlines.append(role.change.deadline if role.change is not None else None)
            case Follower() if quorum.may_stand and not quorum.shutting_down:
                deadlines.append(role.fetch_deadline)
            case Unattached() if quorum.may_stand and not quorum.shutting_down:
                deadlines.append(role.election_deadline)
            case Follower() | Unattached():
                pass
            case Prospective() if role.ballot.is_won:
                deadlines.append(min(role.yields_until, role.election_deadline))
            case _ if not quorum.shutting_down or isinstance(role, Prospective | Candidate):
                deadlines.append(role.election_deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    # -- processing of inputs --------------------------------------------------------------------------------------

    def _requested(self, token: Token, request: Request) -> None:
        quorum = self._quorum
        match request:
            case Vote():
                quorum.reply(token, self._voting.vote_requested(request))
            case BeginQuorumEpoch():
                quorum.reply(token, self._voting.begin_epoch_requested(request))
            case EndQuorumEpoch():
                quorum.reply(token, self._voting.end_epoch_requested(request))
            case Fetch():
                self._leading.fetch_requested(token, request)
            case FetchSnapshot():
                self._leading.snapshot_requested(token, request)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                self._change_requested(token, request)
            case KRaftVersions():
                quorum.reply(token, KRaftVersionsAnswer(kraft_versions=quorum.local.kraft_versions))

    def _change_requested(self, token: Token, request: AddVoter | RemoveVoter | UpdateVoter) -> None:
        quorum = self._quorum
        epoch = request.leader_epoch if isinstance(request, UpdateVoter) else quorum.epoch
        error = self._leading.refusal(request.cluster_id, epoch)
        if error is not None or not isinstance(quorum.role, Leader):
            error = error or ErrorCode.NOT_LEADER_OR_FOLLOWER
            quorum.reply(token, VoterChangeAnswer(error=error, leader=quorum.hint))
        else:
            self._changes.requested(token, request, quorum.role)

    def _answered(self, request_id: int, answer: Answer) -> None:
        quorum = self._quorum
        sent = quorum.connections.take(request_id)
        if sent is None:
            return
        role = quorum.role
        go_on = self._understood(sent, answer)
        if not go_on and quorum.role is role:
            quorum.connections.back_off(sent.to, quorum.now)

    def _understood(self, sent: InFlight, answer: Answer) -> bool:
        """Process an answer. False if the node should not be asked for a while."""
        if isinstance(answer, KRaftVersionsAnswer):
            self._changes.versions_answered(sent.to.node_id, answer)
            return answer.error is ErrorCode.NONE
        if isinstance(sent.request, AddVoter | RemoveVoter):
            return answer.error is ErrorCode.NONE
        if answer.leader.epoch < 0 and answer.error is not ErrorCode.NONE:
            return self._refused_outright(sent, answer.error)
        heard = self._heard(answer.error, answer)
        if heard is not None:
            return heard
        match answer:
            case VoteAnswer() if isinstance(sent.request, Vote):
                self._voting.vote_answered(sent.to, answer, sent.request)
            case BeginQuorumEpochAnswer():
                pass
            case EndQuorumEpochAnswer():
                self._voting.end_epoch_answered(sent.to)
            case FetchAnswer():
                return self._following.fetch_answered(answer, sent.to)
            case FetchSnapshotAnswer():
                return self._following.snapshot_answered(answer)
            case VoterChangeAnswer():
                return self._following.update_answered(answer)
        return answer.error is ErrorCode.NONE

    def _refused_outright(self, sent: InFlight, error: ErrorCode) -> bool:
        """Handle a request that an old node does not support: do not send it that request again."""
        quorum = self._quorum
        if error is not ErrorCode.UNSUPPORTED_VERSION:
            return False
        match sent.request:
            case Vote(pre_vote=True) if isinstance(quorum.role, Prospective):
                # A pre-vote is not possible with a node that does not support it.
                quorum.become_candidate()
                return True
            case UpdateVoter():
                return self._following.update_answered(VoterChangeAnswer(error=error))
            case _:
                return False

    def _heard(
        self,
        error: ErrorCode,
        answer: VoteAnswer
        | BeginQuorumEpochAnswer
        | EndQuorumEpochAnswer
        | FetchAnswer
        | FetchSnapshotAnswer
        | VoterChangeAnswer,
    ) -> bool | None:
        """Process the epoch and the leader, which every answer contains. None if the rest of the answer is relevant."""
        quorum, hint = self._quorum, answer.leader
        role = quorum.role
        if hint.epoch < quorum.epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        if hint.epoch > quorum.epoch or error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            quorum.learn(hint)
            return quorum.role is not role
        if hint.leader_id >= 0 and quorum.leader_id < 0:
            # The answer that names the leader may come from the leader itself, with its records.
            quorum.learn(hint)
            if error is not ErrorCode.NONE:
                return quorum.role is not role
        return None

    def _failed(self, request_id: int, is_dead: bool) -> None:
        sent = self._quorum.connections.take(request_id)
        if sent is not None:
            self._gave_up(sent)
            if is_dead:
                self._following.process_gone(sent.to)

    def _gave_up(self, sent: InFlight, pause_ms: int | None = None) -> None:
        self._quorum.connections.back_off(sent.to, self._quorum.now, pause_ms)
        if isinstance(sent.request, KRaftVersions):
            self._changes.versions_answered(sent.to.node_id, None)

    def _appended(self, control: Sequence[tuple[int, ControlRecord]]) -> None:
        for offset, record in control:
            self._quorum.history.replay(offset, record)
        role = self._quorum.role
        if isinstance(role, Follower):
            self._following.appended(role)
        self._log_moved()

    def _log_moved(self) -> None:
        if isinstance(self._quorum.role, Leader):
            self._leading.log_moved(self._quorum.role)

    def _resign(self, epoch: int) -> None:
        role = self._quorum.role
        if isinstance(role, Leader) and role.epoch == epoch:
            role.resign_requested = True

    def _shut_down(self) -> None:
        self._quorum.shutting_down = True
