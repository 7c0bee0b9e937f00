"""The follower role: fetches the leader's log, truncates where logs differ, downloads a snapshot if the log is gone.

There is never more than one fetch in flight. A node that votes, or may vote, fetches only from its synced offset: the
fetch promises that everything before the offset survives a power loss.

A node that knows no leader asks the bootstrap servers; every answer names the leader they know.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.raft.log_view import OffsetAndEpoch, truncation_offset
from penstock.raft.messages import (
    UNKNOWN_OFFSET,
    AddVoter,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    RemoveVoter,
    Request,
    UpdateVoter,
    VoterChangeAnswer,
)
from penstock.raft.quorum import Quorum, QuorumBroken
from penstock.raft.ready import AppendFetched, InstallSnapshot, QuorumNode, StartSnapshot, TruncateTo, WriteSnapshot
from penstock.raft.roles import Download, Follower
from penstock.raft.voters import VoterSet


class Following:
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # -- answers: whether the next request may follow at once ------------------------------------------------------

    def fetch_answered(self, answer: FetchAnswer, by: QuorumNode) -> bool:
        quorum = self._quorum
        role = quorum.role
        if answer.error is not ErrorCode.NONE or not isinstance(role, Follower):
            return False
        if answer.diverging is not None:
            self._truncate(answer.diverging)
        elif answer.snapshot is not None:
            self._start_download(role, answer.snapshot)
        else:
            role.download = None
            if 0 <= answer.high_watermark < quorum.high_watermark:
                raise QuorumBroken(
                    f"the leader {role.leader_id} of epoch {role.epoch} has committed up to {answer.high_watermark}, "
                    f"the one before it up to {quorum.high_watermark}"
                )
            role.leader_high_watermark = answer.high_watermark
            if answer.records is None:
                self._advance(role)
            else:
                role.appending_from, role.appending_of = quorum.log.end_offset, by
                quorum.ready.log.append(AppendFetched(answer.records))
        self._heard_leader(role)
        return True

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        quorum = self._quorum
        offset = truncation_offset(quorum.log, diverging)
        if min(offset, diverging.offset) < quorum.high_watermark:
            raise QuorumBroken(
                f"the leader {quorum.leader_id} of epoch {quorum.epoch} ends epoch {diverging.epoch} at "
                f"{diverging.offset}: to follow, what is committed below {quorum.high_watermark} would have to go"
            )
        if offset < quorum.log.end_offset:
            quorum.ready.log.append(TruncateTo(offset))
            quorum.history.truncate_to(offset)

    def appended(self, role: Follower) -> None:
        """The fetched batches are in the log, or none are because they were damaged on the way."""
        if role.appending_from == self._quorum.log.end_offset:
            self._back_off(role)
        elif role.appending_from is not None:
            role.unusable_answers = 0
        role.appending_from = role.appending_of = None
        self._advance(role)

    def _back_off(self, role: Follower) -> None:
        """The leader sends unusable data. Stop asking it, under each of its names, longer each time."""
        quorum = self._quorum
        pause_ms = min(
            quorum.settings.retry_backoff_ms << min(role.unusable_answers, 10), quorum.settings.silence_backoff_ms
        )
        role.unusable_answers += 1
        for server in (role.appending_of, quorum.destination(role.leader_id, role.leader_endpoints)):
            if server is not None:
                quorum.connections.back_off_everywhere(server, quorum.now, pause_ms)

    def _advance(self, role: Follower) -> None:
        offset = min(role.leader_high_watermark, self._quorum.log.end_offset)
        if offset > self._quorum.high_watermark:
            self._quorum.commit(offset)

    def _heard_leader(self, role: Follower) -> None:
        role.has_fetched = True
        role.fetch_deadline = self._quorum.now + self._quorum.settings.fetch_timeout_ms

    def update_answered(self, answer: VoterChangeAnswer) -> bool:
        role = self._quorum.role
        if not isinstance(role, Follower) or answer.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return False
        role.has_updated_leader = True
        self._heard_leader(role)
        return True

    def process_gone(self, to: QuorumNode) -> None:
        """The leader's process is dead. The pre-vote shows whether the others agree. A node that asks this one, before
        this one asks itself, is not told that there is a leader."""
        quorum, role = self._quorum, self._quorum.role
        if not isinstance(role, Follower):
            return
        leader = quorum.destination(role.leader_id, role.leader_endpoints)
        if leader is not None and (leader.host, leader.port) == (to.host, to.port):
            role.has_fetched = False
            grace = quorum.random_below(quorum.settings.death_grace_ms)
            role.fetch_deadline = min(role.fetch_deadline, quorum.now + grace)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _start_download(self, role: Follower, snapshot: OffsetAndEpoch) -> None:
        quorum = self._quorum
        if snapshot.offset < quorum.high_watermark:
            raise QuorumBroken(
                f"the leader {role.leader_id} of epoch {role.epoch} offers a snapshot of {snapshot.offset}, before "
                f"what is committed here, {quorum.high_watermark}"
            )
        role.download = Download(snapshot)
        quorum.ready.log.append(StartSnapshot(snapshot))

    def snapshot_answered(self, answer: FetchSnapshotAnswer) -> bool:
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Follower) or role.download is None:
            return False
        download = role.download
        if answer.error is ErrorCode.SNAPSHOT_NOT_FOUND:
            # The leader has a newer snapshot by now, and its next answer names it.
            role.download = None
            self._heard_leader(role)
            return True
        if answer.error is not ErrorCode.NONE:
            return False
        if answer.snapshot != download.snapshot or answer.position != download.position or not len(answer.data):
            role.download = None
            return False
        quorum.ready.log.append(WriteSnapshot(download.snapshot, download.position, answer.data))
        download.position += len(answer.data)
        if download.position >= answer.size:
            role.download = None
            quorum.ready.log.append(InstallSnapshot(download.snapshot))
        self._heard_leader(role)
        return True

    def snapshot_installed(self, snapshot: OffsetAndEpoch, kraft_version: int, voters: VoterSet | None) -> None:
        quorum = self._quorum
        quorum.history.reset(snapshot.offset, kraft_version, voters)
        quorum.commit(max(quorum.high_watermark, snapshot.offset))

    # -- what to send ----------------------------------------------------------------------------------------------

    def poll(self, role: Follower) -> None:
        quorum = self._quorum
        if quorum.shutting_down:
            return
        if quorum.may_stand and role.fetch_deadline <= quorum.now:
            quorum.become_prospective()
            return
        leader = quorum.destination(role.leader_id, role.leader_endpoints)
        if leader is None or quorum.connections.is_backing_off(leader, quorum.now):
            # It may no longer be the leader, and the others may know the new one.
            self.fetch_from_bootstrap()
        elif not quorum.connections.any_in_flight:
            self._ask_leader(role, leader)

    def _ask_leader(self, role: Follower, leader: QuorumNode) -> None:
        quorum = self._quorum
        if role.update_voter_at <= quorum.now:
            role.update_voter_at = quorum.now + 2 * quorum.settings.fetch_timeout_ms
            change = self._voter_change(role)
            if change is not None:
                quorum.send(leader, change)
                return
        if role.download is not None:
            quorum.send(
                leader,
                FetchSnapshot(
                    cluster_id=quorum.cluster_id,
                    replica=quorum.key,
                    leader_epoch=role.epoch,
                    snapshot=role.download.snapshot,
                    position=role.download.position,
                    max_bytes=quorum.settings.fetch_snapshot_max_bytes,
                ),
            )
        elif self._is_synced:
            quorum.send(leader, self._fetch())

    def _voter_change(self, role: Follower) -> Request | None:
        """The request that tells the quorum what it does not know about this node, if any."""
        quorum = self._quorum
        voters, local = quorum.history.voters, quorum.local
        if quorum.is_voter:
            known = voters.get(local.key.node_id) == local
            if known if quorum.history.kraft_version >= 1 else role.has_updated_leader:
                return None
            return UpdateVoter(
                cluster_id=quorum.cluster_id,
                leader_epoch=role.epoch,
                voter=local.key,
                endpoints=local.endpoints,
                kraft_versions=local.kraft_versions,
            )
        if quorum.history.kraft_version < 1 or not quorum.can_become_voter or not quorum.settings.auto_join:
            return None
        former = voters.get(local.key.node_id)
        if former is not None:
            # This node with its former disk: that voter will never vote again.
            return RemoveVoter(cluster_id=quorum.cluster_id, voter=former.key)
        return AddVoter(
            cluster_id=quorum.cluster_id, voter=local.key, endpoints=local.endpoints, ack_when_committed=False
        )

    def fetch_from_bootstrap(self) -> None:
        """Fetch from a bootstrap server, or from a voter that is known: the configured bootstrap servers may lack
        voters that were added later."""
        quorum = self._quorum
        others = [voter for voter in quorum.history.voters if voter.key.node_id != quorum.key.node_id]
        voters = [quorum.destination(voter.key.node_id, voter.endpoints) for voter in others]
        server = quorum.connections.find_server([voter for voter in voters if voter is not None], quorum.now)
        if server is not None and self._is_synced:
            quorum.send(server, self._fetch())

    @property
    def _is_synced(self) -> bool:
        quorum = self._quorum
        return quorum.log.synced_offset >= quorum.log.end_offset or not (quorum.is_voter or quorum.can_become_voter)

    def _fetch(self) -> Fetch:
        quorum = self._quorum
        known = quorum.known_high_watermark
        return Fetch(
            cluster_id=quorum.cluster_id,
            replica=quorum.key,
            leader_epoch=quorum.epoch,
            offset=quorum.log.end_offset,
            last_fetched_epoch=quorum.log.last_epoch,
            high_watermark=UNKNOWN_OFFSET if known is None else known,
            max_wait_ms=quorum.settings.fetch_max_wait_ms,
            max_bytes=quorum.settings.fetch_max_bytes,
        )
