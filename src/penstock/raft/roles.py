"""The roles of a node in the quorum, and every transition between them.

    from         to            when
    ----         --            ----
    Unattached   Unattached    a newer epoch is heard of
                 Prospective   the election time-out ends without a leader
                 Follower      the leader of this epoch or a newer one is heard of
    Prospective  Unattached    a newer epoch is heard of; or the pre-vote is lost, and no leader is known
                 Candidate     a majority would vote for this node
                 Follower      the leader is heard of; or the pre-vote is lost, and the old leader is still known
    Candidate    Unattached    a newer epoch is heard of
                 Prospective   the election time-out ends
                 Leader        a majority has voted for this node
                 Follower      the leader of this epoch or a newer one is heard of
    Leader       Unattached    a newer epoch is heard of
                 Follower      the leader of a newer epoch is heard of
                 Resigned      it was asked to, is shutting down, is no voter any more, or lost touch with the majority
    Follower     Unattached    a newer epoch is heard of
                 Prospective   the leader was silent for the fetch time-out, or ended its epoch
                 Follower      the leader of a newer epoch is heard of, or more endpoints of the same one
    Resigned     Unattached    a newer epoch is heard of, or the election time-out ends (the epoch moves on by itself)
                 Follower      the leader of a newer epoch is heard of

An observer (a node that is not a voter) is only ever Unattached or Follower: its timeouts never end, so that it neither
stands for election nor counts. A removed node becomes an observer once it knows that the removal is committed: a leader
stays Leader until then, and others may still become leader (`Quorum.may_stand`).

Epochs never decrease. Within an epoch, a vote does not change once given, nor a leader once known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.raft.ballot import Ballot
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import Endpoints, Fetch
from penstock.raft.progress import Progress
from penstock.raft.quorum_state import NOBODY
from penstock.raft.ready import QuorumNode, Token
from penstock.raft.voter_change import VoterChange
from penstock.raft.voters import ReplicaKey, VoterSet


@dataclass(slots=True)
class Unattached:
    epoch: int
    # The leader, if it is known without its endpoints.
    leader_id: int
    voted: ReplicaKey | None
    # None for an observer.
    election_deadline: int | None


@dataclass(slots=True)
class Prospective:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    ballot: Ballot
    election_deadline: int
    # Until this time the node yields to another one whose log is as good or better.
    yields_until: int = 0


@dataclass(slots=True)
class Candidate:
    epoch: int
    ballot: Ballot
    election_deadline: int


@dataclass(slots=True)
class ParkedFetch:
    token: Token
    request: Fetch
    deadline: int


@dataclass(slots=True)
class Leader:
    epoch: int
    progress: Progress
    granting_voters: tuple[int, ...]
    check_quorum_deadline: int
    # When to check again for voters that do not fetch.
    begin_epoch_at: int
    # Voters that fetched since a majority was last complete.
    heard_from: set[int] = field(default_factory=set)
    parked: list[ParkedFetch] = field(default_factory=list)
    change: VoterChange | None = None
    # With kraft.version 0 the log has no voters. This is what they reported about themselves, for an upgrade.
    described_voters: VoterSet | None = None
    resign_requested: bool = False


@dataclass(slots=True)
class Download:
    """A snapshot that is being downloaded."""

    snapshot: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_deadline: int
    # When to check whether the voters need new information about this node.
    update_voter_at: int
    # While false, the leader may be unknown to others or gone, so pre-votes may be granted.
    has_fetched: bool = False
    # With kraft.version 0, every new leader gets one update.
    has_updated_leader: bool = False
    download: Download | None = None
    # The leader's high watermark, if known; this node's follows as its log grows.
    leader_high_watermark: int = -1
    # The end of the log when the batches of the last fetch arrived, and their sender: the leader may also be known as a
    # bootstrap server.
    appending_from: int | None = None
    appending_of: QuorumNode | None = None
    # The number of answers since the last one with batches that could be appended.
    unusable_answers: int = 0


@dataclass(slots=True)
class Resigned:
    epoch: int
    election_deadline: int
    preferred_successors: tuple[ReplicaKey, ...]
    unacknowledged: set[int]


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned

TRANSITIONS: Final[dict[type[Role], tuple[type[Role], ...]]] = {
    Unattached: (Unattached, Prospective, Follower),
    Prospective: (Unattached, Candidate, Follower),
    Candidate: (Unattached, Prospective, Leader, Follower),
    Leader: (Unattached, Follower, Resigned),
    Follower: (Unattached, Prospective, Follower),
    Resigned: (Unattached, Follower),
}


def voted_for(role: Role, local: ReplicaKey) -> ReplicaKey | None:
    if isinstance(role, Candidate):
        return local
    if isinstance(role, Leader | Resigned):
        return None
    return role.voted


def leader_of(role: Role, local: ReplicaKey) -> int:
    if isinstance(role, Leader | Resigned):
        return local.node_id
    if isinstance(role, Candidate):
        return NOBODY
    return role.leader_id
