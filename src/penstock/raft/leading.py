"""The leader role: answers fetches, advances the high watermark, keeps the quorum together.

The leader holds a fetch that has nothing to return until there are records, or a high watermark that the sender does
not know, or the wait time is over.

It sends BeginQuorumEpoch repeatedly to every voter that does not fetch: the voter may not know that it has a leader. A
leader resigns if a majority has not fetched from it for one and a half fetch timeouts: it may be cut off, and no node
should wait for it.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.raft.changes import Changes
from penstock.raft.log_view import Diverging, SnapshotNeeded, Valid, compare_fetch
from penstock.raft.messages import (
    UNKNOWN_OFFSET,
    BeginQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
)
from penstock.raft.quorum import Quorum
from penstock.raft.ready import ReadLog, ReadSnapshot, Token
from penstock.raft.roles import Leader, ParkedFetch
from penstock.raft.voters import ReplicaKey


class Leading:
    def __init__(self, quorum: Quorum, changes: Changes) -> None:
        self._quorum = quorum
        self._changes = changes

    def refusal(self, cluster_id: str | None, epoch: int) -> ErrorCode | None:
        """The error for a request that only a leader can answer; None if this node can answer it."""
        quorum = self._quorum
        if cluster_id is not None and cluster_id != quorum.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if quorum.shutting_down else None

    # -- fetches ---------------------------------------------------------------------------------------------------

    def fetch_requested(self, token: Token, request: Fetch) -> None:
        quorum = self._quorum
        error = self.refusal(request.cluster_id, request.leader_epoch)
        if error is not ErrorCode.INCONSISTENT_CLUSTER_ID and (
            request.max_wait_ms < 0
            or request.offset < 0
            or not 0 <= request.last_fetched_epoch <= request.leader_epoch
            or request.replica.node_id == quorum.key.node_id
        ):
            error = ErrorCode.INVALID_REQUEST
        role = quorum.role
        if error is not None or not isinstance(role, Leader):
            quorum.reply(token, FetchAnswer(error=error or ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=quorum.hint))
            return
        verdict = compare_fetch(quorum.log, request.offset, request.last_fetched_epoch)
        if not isinstance(verdict, Valid):
            quorum.reply(token, self._answer(role, verdict))
            return
        self._fetched(role, request.replica, request.offset)
        fetch = ParkedFetch(token, request, quorum.now + request.max_wait_ms)
        if not self._answer_if_new(role, fetch):
            self._park(role, fetch)

    def _fetched(self, role: Leader, replica: ReplicaKey, offset: int) -> None:
        quorum = self._quorum
        if replica.node_id < 0:
            return
        role.progress.fetched(replica, offset, quorum.log.end_offset, quorum.now)
        self._heard_from(role, replica)
        if role.progress.is_voter(replica) and role.progress.advance():
            self.high_watermark_moved(role)

    def _answer(self, role: Leader, verdict: Diverging | SnapshotNeeded | None = None) -> FetchAnswer:
        known = role.progress.high_watermark
        return FetchAnswer(
            leader=self._quorum.hint,
            high_watermark=UNKNOWN_OFFSET if known is None else known,
            log_start_offset=self._quorum.log.start_offset,
            diverging=verdict.end if isinstance(verdict, Diverging) else None,
            snapshot=verdict.snapshot if isinstance(verdict, SnapshotNeeded) else None,
        )

    def _answer_if_new(self, role: Leader, parked: ParkedFetch) -> bool:
        quorum, request = self._quorum, parked.request
        answer = self._answer(role)
        if quorum.log.end_offset > request.offset:
            quorum.reply(parked.token, answer, ReadLog(request.offset, request.max_bytes))
        elif answer.high_watermark > request.high_watermark or parked.deadline <= quorum.now:
            quorum.reply(parked.token, answer)
        else:
            return False
        return True

    def _park(self, role: Leader, fetch: ParkedFetch) -> None:
        """Hold a fetch, one per replica: its sender has abandoned the previous one."""
        replica = fetch.request.replica
        if replica.node_id >= 0:
            for former in [parked for parked in role.parked if parked.request.replica == replica]:
                role.parked.remove(former)
                self._quorum.reply(former.token, self._answer(role))
        if len(role.parked) >= self._quorum.settings.parked_fetches_max:
            self._quorum.reply(fetch.token, self._answer(role))
        else:
            role.parked.append(fetch)

    def _answer_parked(self, role: Leader) -> None:
        role.parked = [fetch for fetch in role.parked if not self._answer_if_new(role, fetch)]

    def snapshot_requested(self, token: Token, request: FetchSnapshot) -> None:
        quorum = self._quorum
        role = quorum.role
        error = self.refusal(request.cluster_id, request.leader_epoch)
        size = quorum.log.snapshot_size(request.snapshot)
        if error is None and size is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is None and size is not None and not 0 <= request.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not None or size is None or not isinstance(role, Leader):
            quorum.reply(token, FetchSnapshotAnswer(error=error or ErrorCode.SNAPSHOT_NOT_FOUND, leader=quorum.hint))
            return
        self._heard_from(role, request.replica)
        answer = FetchSnapshotAnswer(
            leader=quorum.hint, snapshot=request.snapshot, size=size, position=request.position
        )
        quorum.reply(token, answer, ReadSnapshot(request.snapshot, request.position, request.max_bytes))

    # -- the log moved ---------------------------------------------------------------------------------------------

    def log_moved(self, role: Leader) -> None:
        role.progress.synced(self._quorum.log.synced_offset)
        if role.progress.advance():
            self.high_watermark_moved(role)
        self._answer_parked(role)

    def high_watermark_moved(self, role: Leader) -> None:
        offset = role.progress.high_watermark
        assert offset is not None
        self._quorum.commit(offset)
        self._answer_parked(role)
        self._changes.committed(role, offset)
        removed_at = self._quorum.history.voters_offset
        if not self._quorum.is_voter and removed_at is not None and removed_at < offset:
            role.resign_requested = True

    # -- holding the quorum together -------------------------------------------------------------------------------

    def _heard_from(self, role: Leader, replica: ReplicaKey) -> None:
        if not role.progress.is_voter(replica):
            return
        role.heard_from.add(replica.node_id)
        voters = self._quorum.history.voters
        # The leader does not fetch from itself, and counts only while it votes.
        needed = voters.majority - (1 if self._quorum.is_voter else 0)
        if len(role.heard_from) >= needed:
            role.heard_from.clear()
            role.check_quorum_deadline = self._quorum.now + self._quorum.check_quorum_timeout_ms

    def deadlines(self, role: Leader) -> list[int]:
        """The deadlines of a leader. A single voter waits for no other node."""
        return [] if self._quorum.is_only_voter else [role.check_quorum_deadline, role.begin_epoch_at]

    def poll(self, role: Leader) -> None:
        quorum = self._quorum
        is_alone = role.check_quorum_deadline <= quorum.now and not quorum.is_only_voter
        if role.resign_requested or quorum.shutting_down or is_alone:
            quorum.become_resigned()
            return
        if any(fetch.deadline <= quorum.now for fetch in role.parked):
            self._answer_parked(role)
        if role.begin_epoch_at <= quorum.now:
            role.progress.forget_idle_observers(quorum.now)
            self._begin_epoch(role)

    def _begin_epoch(self, role: Leader) -> None:
        quorum = self._quorum
        interval = max(1, quorum.settings.fetch_timeout_ms // 2)
        role.begin_epoch_at = quorum.now + interval
        for progress in role.progress.voters.values():
            silent = progress.last_fetch_ms is None or quorum.now - progress.last_fetch_ms >= interval
            voter = quorum.history.voters.get(progress.key.node_id)
            if progress.matches(quorum.key) or not silent or voter is None:
                continue
            to = quorum.destination(voter.key.node_id, voter.endpoints)
            if to is not None and quorum.connections.is_ready(to, quorum.now):
                quorum.send(to, BeginQuorumEpoch(cluster_id=quorum.cluster_id, voter=voter.key, leader=quorum.hint))
