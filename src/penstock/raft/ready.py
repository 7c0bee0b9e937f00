"""The result of a step of the quorum: the actions that the runtime must carry out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import Answer, Request
from penstock.raft.quorum_state import ElectionState

# The runtime's opaque identifier of a request that waits for its answer.
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
    """One control batch at the end of the log, under `epoch`. The log must end at `base_offset`."""

    base_offset: int
    epoch: int
    records: tuple[ControlRecord, ...]


class AppendFetched(NamedTuple):
    """Batches of the leader's log, to be checked and appended unchanged. `appended` is the next input."""

    records: object


class StartSnapshot(NamedTuple):
    """Create an empty file to download a snapshot into; discard one that was started before."""

    snapshot: OffsetAndEpoch


class WriteSnapshot(NamedTuple):
    snapshot: OffsetAndEpoch
    position: int
    data: bytes | memoryview


class InstallSnapshot(NamedTuple):
    """The file is complete: sync it, rename it, and let the log begin, empty, at its offset.

    The next input is `snapshot_installed`, with the quorum's version and voters from the snapshot.
    """

    snapshot: OffsetAndEpoch


LogEffect = TruncateTo | AppendControl | AppendFetched | StartSnapshot | WriteSnapshot | InstallSnapshot


class Send(NamedTuple):
    """A request to send. `answered` and `request_failed` refer to it by `request_id`."""

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
    """An answer. With `read`: first fill `FetchAnswer.records` or `FetchSnapshotAnswer.data` from there."""

    token: Token
    answer: Answer
    read: ReadLog | ReadSnapshot | None = None


class LeaderAndEpoch(NamedTuple):
    """The leader that this node knows. `start_offset`: where the epoch begins, if this node leads it."""

    leader_id: int
    epoch: int
    start_offset: int | None = None


@dataclass(slots=True)
class Ready:
    """The order of the fields is binding: each is done, and durable where it says so, before the ones below it."""

    # Write this to `quorum-state` and sync it before anything below.
    election: ElectionState | None = None
    # Apply these in order, and all before the next input to the quorum. They need not be synced: see `flushed`.
    log: list[LogEffect] = field(default_factory=list)
    # Send these only after `election` is durable, and after those of all earlier steps.
    sends: list[Send] = field(default_factory=list)
    replies: list[QuorumReply] = field(default_factory=list)
    # Everything below it is committed: it is in this node's log and will be in that of every future leader.
    high_watermark: int | None = None
    # Set on a new epoch, a new leader, or the loss of the leader.
    leader: LeaderAndEpoch | None = None
    # When `tick` is due, unless another input comes before; None if only an input can change anything.
    deadline: int | None = None
