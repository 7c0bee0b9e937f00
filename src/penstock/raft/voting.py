"""Elections: requests and answers for votes, and the begin and end of epochs.

A node votes for one candidate per epoch, and only if the candidate's log ends at least as late as its own, by (epoch,
offset). Everything committed is on a majority, so a node that wins a majority has it.

Before a node stands for election, it asks whether it would win (the pre-vote, KIP-996). The pre-vote changes nothing on
the other nodes and needs no new epoch, so a node that was cut off cannot depose a leader that the others still hear.

Only a dead process proves a death. Networks reset and refuse connections of live nodes, so neither starts an election.
Nodes of one machine see each other's processes (`io/neighbours`), so followers of a dead leader stand for election
within a fraction of a second (`RaftSettings.death_grace_ms`). All others wait for the fetch timeout, which can be long
enough for a busy machine.

Followers lose a leader at the same moment and would compete. So a node that receives a pre-vote request while it asks
itself yields for a while, if the other node's log is better, or is as good and its id is lower.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Vote,
    VoteAnswer,
)
from penstock.raft.quorum import Quorum
from penstock.raft.ready import QuorumNode
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from penstock.raft.voters import ReplicaKey


class Voting:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # -- requests of others ----------------------------------------------------------------------------------------

    def vote_requested(self, request: Vote) -> VoteAnswer:
        quorum = self._quorum
        if not self._same_cluster(request.cluster_id):
            return VoteAnswer(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        # A candidate has raised its epoch above anything in its log; a node in a pre-vote has not.
        highest = request.epoch if request.pre_vote else request.epoch - 1
        if request.last_offset < 0 or not 0 <= request.last_epoch <= highest:
            return VoteAnswer(error=ErrorCode.INVALID_REQUEST, leader=quorum.hint)
        error = self._refusal(request.candidate.node_id, request.epoch)
        if error is not None:
            return VoteAnswer(error=error, leader=quorum.hint)
        if request.epoch > quorum.epoch:
            quorum.become_unattached(request.epoch)
        if not self._is_meant(request.voter):
            return VoteAnswer(error=ErrorCode.INVALID_VOTER_KEY, leader=quorum.hint)
        granted = self._would_grant(request)
        if granted and not request.pre_vote:
            quorum.vote_for(request.candidate)
        elif request.pre_vote and isinstance(quorum.role, Prospective):
            self._rival_asked(quorum.role, request, granted)
        return VoteAnswer(leader=quorum.hint, granted=granted)

    def _rival_asked(self, role: Prospective, request: Vote, granted: bool) -> None:
        quorum, rival = self._quorum, request.candidate.node_id
        if not granted:
            # The rival has lost the leader, too, and its log is not as good as ours.
            role.ballot.ask_again(rival)
        elif rival < quorum.key.node_id or self._end != (request.last_epoch, request.last_offset):
            role.yields_until = quorum.now + quorum.settings.election_timeout_ms // 2

    def _would_grant(self, request: Vote) -> bool:
        role = self._quorum.role
        if request.candidate.node_id == self._quorum.key.node_id:
            return False
        up_to_date = self._up_to_date(OffsetAndEpoch(request.last_offset, request.last_epoch))
        if isinstance(role, Leader | Candidate):
            # A candidate has voted for itself, but may prefer another leader for the next epoch.
            return isinstance(role, Candidate) and request.pre_vote and up_to_date
        if isinstance(role, Follower):
            # A node that has just heard from the leader does not want another one. One that does not know yet that it
            # is a voter stays a follower when the leader is gone, and the others need it.
            hears_leader = role.has_fetched and self._quorum.now < role.fetch_deadline
            return request.pre_vote and up_to_date and not hears_leader
        if isinstance(role, Resigned):
            return request.pre_vote and up_to_date
        if request.pre_vote:
            return up_to_date
        if role.voted is not None:
            return _is_same(role.voted, request.candidate)
        return role.leader_id < 0 and up_to_date

    def _up_to_date(self, end: OffsetAndEpoch) -> bool:
        return (end.epoch, end.offset) >= self._end

    @property
    def _end(self) -> tuple[int, int]:
        """Epoch and offset of the log end, by which logs are compared."""
        return self._quorum.log.last_epoch, self._quorum.log.end_offset

    def begin_epoch_requested(self, request: BeginQuorumEpoch) -> BeginQuorumEpochAnswer:
        quorum = self._quorum
        if not self._same_cluster(request.cluster_id):
            return BeginQuorumEpochAnswer(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        error = self._refusal(request.leader.leader_id, request.leader.epoch)
        if error is not None:
            return BeginQuorumEpochAnswer(error=error, leader=quorum.hint)
        quorum.learn(request.leader)
        if not self._is_meant(request.voter):
            return BeginQuorumEpochAnswer(error=ErrorCode.INVALID_VOTER_KEY, leader=quorum.hint)
        return BeginQuorumEpochAnswer(leader=quorum.hint)

    def end_epoch_requested(self, request: EndQuorumEpoch) -> EndQuorumEpochAnswer:
        quorum = self._quorum
        if not self._same_cluster(request.cluster_id):
            return EndQuorumEpochAnswer(error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        error = self._refusal(request.leader.leader_id, request.leader.epoch)
        if error is not None:
            return EndQuorumEpochAnswer(error=error, leader=quorum.hint)
        quorum.learn(request.leader)
        role = quorum.role
        if isinstance(role, Follower) and role.leader_id == request.leader.leader_id:
            role.fetch_deadline = quorum.now + self._successor_backoff_ms(request.preferred_successors)
        return EndQuorumEpochAnswer(leader=quorum.hint)

    def _successor_backoff_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The first successor stands for election at once; each next one waits twice as long as the one before."""
        key = self._quorum.key
        longest = self._quorum.settings.election_backoff_max_ms
        position = next((place for place, successor in enumerate(successors) if _is_same(successor, key)), None)
        if position is None:
            return longest if successors else 0
        if position == 0:
            return 0
        return min(longest, (longest >> (len(successors) - 1)) << (position - 1))

    def _same_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self._quorum.cluster_id

    def _refusal(self, node_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self._quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else None

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        """Whether the request is meant for this node, and not for the same id with a former disk."""
        return voter is None or _is_same(voter, self._quorum.key)

    # -- asking others ---------------------------------------------------------------------------------------------

    def vote_answered(self, voter: QuorumNode, answer: VoteAnswer, request: Vote) -> None:
        role = self._quorum.role
        if isinstance(role, Prospective if request.pre_vote else Candidate):
            role.ballot.record(voter.node_id, answer.granted)

    def end_epoch_answered(self, voter: QuorumNode) -> None:
        role = self._quorum.role
        if isinstance(role, Resigned):
            role.unacknowledged.discard(voter.node_id)

    def poll_unattached(self, role: Unattached) -> None:
        quorum = self._quorum
        due = role.election_deadline is not None and role.election_deadline <= quorum.now
        if due and quorum.may_stand and not quorum.shutting_down:
            quorum.become_prospective()

    def poll_prospective(self, role: Prospective) -> None:
        quorum = self._quorum
        if role.ballot.is_won and role.yields_until <= quorum.now:
            quorum.become_candidate()
        elif role.ballot.is_lost or role.election_deadline <= quorum.now:
            if role.leader_id >= 0 and role.leader_endpoints:
                quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints)
            else:
                quorum.become_unattached(role.epoch, role.leader_id)
        else:
            self._ask_for_votes(role)

    def poll_candidate(self, role: Candidate) -> None:
        quorum = self._quorum
        if role.ballot.is_won:
            quorum.become_leader()
        elif role.election_deadline <= quorum.now:
            quorum.become_prospective()
        elif not role.ballot.is_lost:
            self._ask_for_votes(role)

    def _ask_for_votes(self, role: Prospective | Candidate) -> None:
        quorum = self._quorum
        for voter in role.ballot.unanswered:
            to = quorum.destination(voter.key.node_id, voter.endpoints)
            if to is not None and quorum.connections.is_ready(to, quorum.now):
                quorum.send(
                    to,
                    Vote(
                        cluster_id=quorum.cluster_id,
                        voter=voter.key,
                        candidate=quorum.key,
                        epoch=role.epoch,
                        last_epoch=quorum.log.last_epoch,
                        last_offset=quorum.log.end_offset,
                        pre_vote=isinstance(role, Prospective),
                    ),
                )

    def poll_resigned(self, role: Resigned) -> None:
        """Advance the epoch after the timeout: in the old epoch this node is the leader, and cannot follow itself."""
        quorum = self._quorum
        if role.election_deadline <= quorum.now and not quorum.shutting_down:
            quorum.become_unattached(role.epoch + 1)
            return
        for node_id in sorted(role.unacknowledged):
            to = quorum.destination(node_id, quorum.history.voters.endpoints(node_id))
            if to is not None and quorum.connections.is_ready(to, quorum.now):
                quorum.send(
                    to,
                    EndQuorumEpoch(
                        cluster_id=quorum.cluster_id,
                        leader=quorum.hint,
                        preferred_successors=role.preferred_successors,
                    ),
                )


def _is_same(expected: ReplicaKey, key: ReplicaKey) -> bool:
    """Compare two keys; without a directory id, the node id decides."""
    return expected.node_id == key.node_id and expected.directory_id in (ZERO_UUID, key.directory_id)
