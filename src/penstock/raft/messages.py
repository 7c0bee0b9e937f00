"""The messages between the nodes of a quorum.

They have the fields of Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, AddRaftVoter,
RemoveRaftVoter, UpdateRaftVoter and (to a new voter) ApiVersions that the quorum uses, for its single partition. The
runtime translates to and from the wire: topic names and ids, listeners, versions.

Every answer names the leader that its sender knows: this is how nodes find the leader.

Errors: Kafka has a top-level error and one per partition. Here there is one, `error`. INCONSISTENT_CLUSTER_ID belongs
at the top level; an answer that came with a top-level error has `leader.epoch` -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import ErrorCode
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.quorum_state import NOBODY
from penstock.raft.voters import ReplicaKey, VoterEndpoint

Endpoints = tuple[VoterEndpoint, ...]
UNKNOWN_OFFSET: Final = -1
# A fetch with this high watermark (Fetch below version 18) is not answered for a new high watermark alone.
NOT_INTERESTED: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """The newest epoch a node knows, its leader (or none), and the leader's endpoints."""

    epoch: int
    leader_id: int = NOBODY
    endpoints: Endpoints = ()


NO_HINT: Final = LeaderHint(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    cluster_id: str | None
    # The receiver of the request; None if the sender does not know it (version 0).
    voter: ReplicaKey | None
    candidate: ReplicaKey
    # The candidate's epoch: the one it wants to lead or, for a pre-vote, its current one.
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer:
    error: ErrorCode = ErrorCode.NONE
    leader: LeaderHint = NO_HINT
    granted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpoch:
    cluster_id: str | None
    voter: ReplicaKey | None
    leader: LeaderHint


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochAnswer:
    error: ErrorCode = ErrorCode.NONE
    leader: LeaderHint = NO_HINT


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpoch:
    cluster_id: str | None
    leader: LeaderHint
    # The preferred successors, the most caught up first. Version 0 has no directory ids.
    preferred_successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochAnswer:
    error: ErrorCode = ErrorCode.NONE
    leader: LeaderHint = NO_HINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    cluster_id: str | None
    # Node id -1: a reader that is not a replica.
    replica: ReplicaKey
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    # The high watermark the replica knows, or UNKNOWN_OFFSET; a newer one is answered at once.
    high_watermark: int = NOT_INTERESTED
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    error: ErrorCode = ErrorCode.NONE
    leader: LeaderHint = NO_HINT
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    # Whole batches, or None. The quorum only passes them on.
    records: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshot:
    cluster_id: str | None
    replica: ReplicaKey
    leader_epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotAnswer:
    error: ErrorCode = ErrorCode.NONE
    leader: LeaderHint = NO_HINT
    snapshot: OffsetAndEpoch | None = None
    # The size of the whole snapshot, and the position of `data` in it.
    size: int = 0
    position: int = 0
    data: bytes | memoryview = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    cluster_id: str | None
    voter: ReplicaKey
    endpoints: Endpoints
    # Whether to answer when the change is committed, or already when it is appended.
    ack_when_committed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    cluster_id: str | None
    voter: ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoter:
    cluster_id: str | None
    leader_epoch: int
    voter: ReplicaKey
    endpoints: Endpoints
    kraft_versions: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeAnswer:
    """Answers AddVoter, RemoveVoter and UpdateVoter. Only UpdateVoter has a field for `leader` on the wire."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: LeaderHint = NO_HINT


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersions:
    """ApiVersions, to learn which kraft.versions a prospective voter supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersionsAnswer:
    error: ErrorCode = ErrorCode.NONE
    kraft_versions: tuple[int, int] | None = None


Request = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | KRaftVersions
)
Answer = (
    VoteAnswer
    | BeginQuorumEpochAnswer
    | EndQuorumEpochAnswer
    | FetchAnswer
    | FetchSnapshotAnswer
    | VoterChangeAnswer
    | KRaftVersionsAnswer
)
