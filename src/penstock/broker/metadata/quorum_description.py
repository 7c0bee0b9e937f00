"""What a node knows about the replicas of the metadata log, for DescribeQuorum and the metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.raft.progress import ReplicaProgress
from penstock.raft.raft import Raft
from penstock.raft.roles import Leader
from penstock.raft.voters import ReplicaKey, Voter

UNKNOWN: Final = -1


class ReplicaStatus(NamedTuple):
    """The progress of a replica of the metadata log; times are wall-clock times, -1 where unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    """The content of a DescribeQuorum response. Only a leader knows the progress of the other replicas."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[Voter, ...]
    voter_status: tuple[ReplicaStatus, ...]
    observer_status: tuple[ReplicaStatus, ...]


def describe(
    raft: Raft, *, high_watermark: int, log_end_offset: int, now_ms: int, elapsed_ms: int
) -> QuorumDescription:
    """`now_ms`: the time of day. `elapsed_ms`: the same moment by the clock of the quorum's timers."""

    def time_of_day(moment: int | None) -> int:
        return UNKNOWN if moment is None else moment + now_ms - elapsed_ms

    def status(replica: ReplicaProgress) -> ReplicaStatus:
        if replica.matches(raft.local.key):
            return ReplicaStatus(replica.key, log_end_offset, now_ms, now_ms)
        return ReplicaStatus(
            replica.key,
            UNKNOWN if replica.end_offset is None else replica.end_offset,
            time_of_day(replica.last_fetch_ms),
            time_of_day(replica.last_caught_up_ms),
        )

    voters: tuple[ReplicaStatus, ...] = ()
    observers: tuple[ReplicaStatus, ...] = ()
    role = raft.role
    if isinstance(role, Leader):
        voters = tuple(map(status, role.progress.voters.values()))
        observers = tuple(map(status, role.progress.observers.values()))
    return QuorumDescription(
        raft.leader.leader_id, raft.epoch, high_watermark, log_end_offset, raft.voters.voters, voters, observers
    )
