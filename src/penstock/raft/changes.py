"""Changes of the voters: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the step from kraft.version 0 to 1.

A new voter must keep up: it has been fetching as an observer, and before it is added the leader asks it which
kraft.versions it supports. A voter that is removed is not asked. A leader that removes itself continues to lead,
without counting itself, until the removal is committed, and then resigns.

With kraft.version 0 the voters are fixed. The leader only remembers what they report about themselves, for the upgrade
to version 1: the log then needs their directory ids.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.control_records import KRaftVersionRecord
from penstock.raft.messages import (
    AddVoter,
    Endpoints,
    KRaftVersions,
    KRaftVersionsAnswer,
    RemoveVoter,
    UpdateVoter,
    VoterChangeAnswer,
)
from penstock.raft.quorum import Quorum
from penstock.raft.ready import QuorumNode, Token
from penstock.raft.roles import Leader
from penstock.raft.voter_change import ChangeKind, VoterChange
from penstock.raft.voters import KRAFT_VERSIONS, ReplicaKey, Voter, VoterSet


class Refused(Exception):
    """The change cannot start."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.answer = VoterChangeAnswer(error=error, message=message)


class Changes:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # -- requests --------------------------------------------------------------------------------------------------

    def requested(self, token: Token, request: AddVoter | RemoveVoter | UpdateVoter, role: Leader) -> None:
        try:
            if isinstance(request, AddVoter):
                self._add(token, request, role)
            elif isinstance(request, RemoveVoter):
                self._remove(token, request, role)
            else:
                self._update(token, request, role)
        except Refused as refused:
            answer = refused.answer
            self._quorum.reply(
                token, VoterChangeAnswer(error=answer.error, message=answer.message, leader=self._quorum.hint)
            )

    def _add(self, token: Token, request: AddVoter, role: Leader) -> None:
        key = request.voter
        if key.node_id < 0 or key.directory_id == ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "The request names no voter with a directory id.")
        to = self._destination(key, request.endpoints)
        voters = self._committed_voters(role)
        if voters.get(key.node_id) is not None:
            raise Refused(ErrorCode.DUPLICATE_VOTER, f"Node {key.node_id} is a voter already.")
        change = VoterChange(
            ChangeKind.ADD, Voter(key, request.endpoints), self._deadline(), token, request.ack_when_committed
        )
        self._ask_versions(role, change, to)

    def _remove(self, token: Token, request: RemoveVoter, role: Leader) -> None:
        key = request.voter
        if key.node_id < 0 or key.directory_id == ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "The request names no voter with a directory id.")
        voters = self._committed_voters(role)
        voter = voters.get(key.node_id)
        if voter is None or voter.key != key or len(voters) == 1:
            raise Refused(ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} cannot be removed from the voters.")
        role.change = VoterChange(ChangeKind.REMOVE, voter, self._deadline(), token)
        role.change.offset = self._quorum.append_control([voters.without(key.node_id).to_record()])

    def _update(self, token: Token, request: UpdateVoter, role: Leader) -> None:
        key, (lowest, highest) = request.voter, request.kraft_versions
        if key.node_id < 0 or key.directory_id == ZERO_UUID or not 0 <= lowest <= highest:
            raise Refused(ErrorCode.INVALID_REQUEST, "The request names no voter with a directory id and versions.")
        self._check_idle(role)
        to = self._destination(key, request.endpoints)
        voter = Voter(key, request.endpoints, request.kraft_versions)
        self._ask_versions(role, VoterChange(ChangeKind.UPDATE, voter, self._deadline(), token), to)

    def _check_idle(self, role: Leader) -> int:
        """Check that earlier leaders are fenced and no change is in progress; returns the high watermark, which is
        known."""
        if role.change is not None:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is not finished yet.")
        if role.progress.high_watermark is None:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed anything in its epoch yet.")
        return role.progress.high_watermark

    def _committed_voters(self, role: Leader) -> VoterSet:
        high_watermark = self._check_idle(role)
        history = self._quorum.history
        if history.kraft_version < 1:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION, f"With kraft.version {history.kraft_version} the voters are fixed."
            )
        if history.voters_offset is None or history.voters_offset >= high_watermark:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "The last change of the voters is not committed yet.")
        return history.voters

    def _destination(self, key: ReplicaKey, endpoints: Endpoints) -> QuorumNode:
        to = self._quorum.destination(key.node_id, endpoints)
        if to is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The request names no endpoint of {self._quorum.listener}.")
        return to

    def _deadline(self) -> int:
        return self._quorum.now + self._quorum.settings.request_timeout_ms

    def _ask_versions(self, role: Leader, change: VoterChange, to: QuorumNode) -> None:
        quorum = self._quorum
        if not quorum.connections.is_ready(to, quorum.now):
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"Node {change.voter.key.node_id} has not answered yet.")
        role.change = change
        quorum.send(to, KRaftVersions())

    # -- progress --------------------------------------------------------------------------------------------------

    def versions_answered(self, node_id: int, answer: KRaftVersionsAnswer | None) -> None:
        """A node answered, or failed to (None)."""
        role = self._quorum.role
        if not isinstance(role, Leader) or role.change is None or role.change.offset is not None:
            return
        change = role.change
        if change.kind is ChangeKind.REMOVE or change.voter.key.node_id != node_id:
            return
        versions = answer.kraft_versions if answer is not None and answer.error is ErrorCode.NONE else None
        if answer is None or answer.error is not ErrorCode.NONE:
            self._end(role, ErrorCode.REQUEST_TIMED_OUT, f"Node {node_id} did not answer.")
            return
        kraft_version = self._quorum.history.kraft_version
        if versions is None or not versions[0] <= kraft_version <= versions[1]:
            self._end(
                role, ErrorCode.INVALID_REQUEST, f"Node {node_id} does not support kraft.version {kraft_version}."
            )
        elif change.kind is ChangeKind.ADD:
            self._append_added(role, change, versions)
        elif versions != change.voter.kraft_versions:
            self._end(role, ErrorCode.INVALID_REQUEST, f"Node {node_id} tells other versions when it is asked.")
        else:
            self._append_updated(role, change)

    def _append_added(self, role: Leader, change: VoterChange, versions: tuple[int, int]) -> None:
        quorum = self._quorum
        if not role.progress.is_caught_up(change.voter.key, quorum.now):
            self._end(role, ErrorCode.REQUEST_TIMED_OUT, f"Node {change.voter.key.node_id} lags behind.")
            return
        voter = Voter(change.voter.key, change.voter.endpoints, versions)
        change.offset = quorum.append_control([quorum.history.voters.with_voter(voter).to_record()])
        if not change.ack_when_committed:
            self._answer(change, ErrorCode.NONE, None)

    def _append_updated(self, role: Leader, change: VoterChange) -> None:
        quorum = self._quorum
        key = change.voter.key
        if quorum.history.kraft_version < 1:
            described = role.described_voters
            if described is None or described.get(key.node_id) is None:
                self._end(role, ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} is no voter.")
                return
            role.described_voters = described.with_voter(change.voter)
            self._end(role, ErrorCode.NONE, None)
            return
        try:
            role.change = None
            voters = self._committed_voters(role)
        except Refused as refused:
            role.change = change
            self._end(role, refused.answer.error, refused.answer.message)
            return
        role.change = change
        if not voters.is_voter(key):
            self._end(role, ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} is no voter.")
            return
        change.offset = quorum.append_control([voters.with_voter(change.voter).to_record()])
        # Answered now: the voter must fetch for the change to be committed.
        self._answer(change, ErrorCode.NONE, None)

    def committed(self, role: Leader, high_watermark: int) -> None:
        change = role.change
        if change is None or change.offset is None or high_watermark <= change.offset:
            return
        self._end(role, ErrorCode.NONE, None)

    def poll(self, role: Leader) -> None:
        if role.change is not None and role.change.deadline <= self._quorum.now:
            self._end(role, ErrorCode.REQUEST_TIMED_OUT, "The change of the voters was not finished in time.")

    def _end(self, role: Leader, error: ErrorCode, message: str | None) -> None:
        change, role.change = role.change, None
        assert change is not None
        self._answer(change, error, message)

    def _answer(self, change: VoterChange, error: ErrorCode, message: str | None) -> None:
        if change.token is not None:
            self._quorum.reply(change.token, VoterChangeAnswer(error=error, message=message, leader=self._quorum.hint))
            change.token = None

    # -- kraft.version ---------------------------------------------------------------------------------------------

    def check_upgrade(self, kraft_version: int) -> None:
        """Check the step from fixed voters to voters in the log. Raises KafkaError, but not if there is nothing to
        do."""
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        current = quorum.history.kraft_version
        if kraft_version == current:
            return
        described = role.described_voters
        if kraft_version < current or kraft_version not in KRAFT_VERSIONS or described is None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version cannot go from {current} to {kraft_version}."
            )
        unknown = [voter.key.node_id for voter in described if voter.key.directory_id == ZERO_UUID]
        unable = [voter.key.node_id for voter in described if not voter.supports(kraft_version)]
        if unknown or unable:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"kraft.version {kraft_version} is not supported by, or nothing is known of, the voters "
                f"{sorted({*unknown, *unable})}.",
            )

    def upgrade(self, kraft_version: int) -> None:
        role = self._quorum.role
        if isinstance(role, Leader) and role.described_voters is not None:
            described, role.described_voters = role.described_voters, None
            self._quorum.append_control([KRaftVersionRecord(kraft_version=kraft_version), described.to_record()])
