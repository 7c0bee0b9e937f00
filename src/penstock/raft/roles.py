"""The roles of a node in the quorum, and every transition between them.

    from         to            when
    ----         --            ----
    Unattached   Unattached    hears of a newer epoch
                 Prospective   the election timeout ends without a leader
                 Follower      hears of the leader of this epoch or a newer one
    Prospective  Unattached    hears of a newer epoch; or loses the pre-vote, and no leader is known
                 Candidate     a majority would vote for this node
                 Follower      hears of the leader; or loses the pre-vote, and the old leader is still known
    Candidate    Unattached    hears of a newer epoch
                 Prospective   the election timeout ends
                 Leader        a majority has voted for this node
                 Follower      hears of the leader of this epoch or a newer one
    Leader       Unattached    hears of a newer epoch
                 Follower      hears of the leader of a newer epoch
                 Resigned      the controller resigns, the node stops, is no longer a voter, or lost the majority
    Follower     Unattached    hears of a newer epoch
                 Prospective   the leader was silent for the fetch timeout, or ended its epoch
                 Follower      hears of the leader of a newer epoch, or of more endpoints of the same one
    Resigned     Unattached    hears of a newer epoch, or the election timeout ends (the epoch advances by itself)
                 Follower      hears of the leader of a newer epoch

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
