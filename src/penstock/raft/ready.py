"""What a step of the quorum asks the runtime to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import Answer, Request
from penstock.raft.quorum_state import ElectionState

# Whatever the runtime knows a request by that waits for its answer.
Token = object
ControlRecord = LeaderChangeMessage | KRaftVersionRecord | VotersRecord


class QuorumNode(NamedTuple):
    """`node_id` below -1: a bootstrap server, of which only the address is known."""

    node_id: int
    host: str
    port: int


class TruncateTo(NamedTuple):
    offset: int


class AppendControl(NamedTuple):
    """One control batch at the end of the log, under `epoch`. `base_offset` is what the end must be."""

    base_offset: int
    epoch: int
    records: tuple[ControlRecord, ...]


class AppendFetched(NamedTuple):
    """Batches of the leader's log, to be checked and appended as they are. `appended` is the next input."""

    records: object


class StartSnapshot(NamedTuple):
    """An empty file for a snapshot to be downloaded into; one that was begun before is given up."""

    snapshot: OffsetAndEpoch


class WriteSnapshot(NamedTuple):
    snapshot: OffsetAndEpoch
    position: int
    data: bytes | memoryview


class InstallSnapshot(NamedTuple):
    """The file is whole: sync it, give it its name, and let the log begin, empty, at its offset.

    `snapshot_installed`, with the quorum's version and voters as the snapshot has them, is the next input.
    """

    snapshot: OffsetAndEpoch


LogEffect = TruncateTo | AppendControl | AppendFetched | StartSnapshot | WriteSnapshot | InstallSnapshot


class Send(NamedTuple):
    """A request on its way. `request_id` is what `answered` and `request_failed` refer to."""

    request_id: int
    to: QuorumNode
    request: Request


class ReadLog(NamedTuple):
    offset: int
    max_bytes: int


class ReadSnapshot(NamedTuple):
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


class QuorumReply(NamedTuple):
    """With `read`: fill `FetchAnswer.records` or `FetchSnapshotAnswer.data` from there first."""

    token: Token
    answer: Answer
    read: ReadLog | ReadSnapshot | None = None


class LeaderAndEpoch(NamedTuple):
    """Who leads, as far as this node knows. `start_offset`: where the epoch begins, if this node leads it."""

    leader_id: int
    epoch: int
    start_offset: int | None = None


@dataclass(slots=True)
class Ready:
    """The order is the law: what stands higher is done, and durable where it says so, before what stands lower."""

    # To be written to `quorum-state` and synced, before anything below happens.
    election: ElectionState | None = None
    # In this order, and all of them before the next input to the quorum. They need not be synced: `flushed` tells.
    log: list[LogEffect] = field(default_factory=list)
    # Only after `election` is durable, and after those of all earlier steps.
    sends: list[Send] = field(default_factory=list)
    replies: list[QuorumReply] = field(default_factory=list)
    # Everything below it is committed: it is in the log of this node and will be in that of every future leader.
    high_watermark: int | None = None
    # A new epoch, a new leader, or none any more.
    leader: LeaderAndEpoch | None = None
    # When `tick` is due, unless another input comes before; None if only an input can change anything.
    deadline: int | None = None
