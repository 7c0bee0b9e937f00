"""FetchSnapshot (API key 59). Read a piece of a snapshot of the metadata log."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import NodeEndpoint
from penstock.protocol.primitives import Int16, Int32, Int64, Records, Uuid


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = field("0+", nullable="0+", default=None, tag=0)
    replica_id: Int32 = field("0+", default=-1)
    max_bytes: Int32 = field("0+", default=2147483647)
    topics: list[FetchSnapshotRequestTopicSnapshot] = field("0+")


class FetchSnapshotRequestTopicSnapshot(Message):
    name: str = field("0+")
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = field("0+")


class FetchSnapshotRequestPartitionSnapshot(Message):
    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("0+")
    snapshot_id: SnapshotId = field("0+")
    position: Int64 = field("0+")
    replica_directory_id: Uuid = field("1+", tag=0, ignorable=True)


class SnapshotId(Message):
    end_offset: Int64 = field("0+")
    epoch: Int32 = field("0+")


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+", ignorable=True)
    error_code: Int16 = field("0+")
    topics: list[FetchSnapshotResponseTopicSnapshot] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)


class FetchSnapshotResponseTopicSnapshot(Message):
    name: str = field("0+")
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = field("0+")


class FetchSnapshotResponsePartitionSnapshot(Message):
    index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    snapshot_id: SnapshotId = field("0+")
    current_leader: LeaderIdAndEpoch | None = field("0+", tag=0)
    size: Int64 = field("0+")
    position: Int64 = field("0+")
    unaligned_records: Records = field("0+")


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
