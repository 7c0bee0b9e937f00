"""Fetch (API key 1). Read record batches from partitions: consumers, followers, and observers of the metadata log."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32, Int64, Records, Uuid


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = field("12+", nullable="12+", default=None, tag=0, ignorable=True)
    # -1 for a consumer; from version 15 on, followers say who they are in replica_state.
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", tag=1)
    max_wait_ms: Int32 = field("0+")
    min_bytes: Int32 = field("0+")
    max_bytes: Int32 = field("3+", default=2147483647, ignorable=True)
    # 0 reads all, 1 only what is committed.
    isolation_level: Int8 = field("4+", ignorable=True)
    session_id: Int32 = field("7+", ignorable=True)
    # 0 opens a session, -1 goes without or closes one.
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field("0+")
    # What a session no longer fetches.
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: str = field("11+", ignorable=True)


class ReplicaState(Message):
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchTopic(Message):
    topic: str = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[FetchPartition] = field("0+")


class FetchPartition(Message):
    partition: Int32 = field("0+")
    # -1 skips the check.
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = field("0+")
    # A follower's epoch at its log end: the leader answers with diverging_epoch if the logs differ.
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = field("0+")
    replica_directory_id: Uuid = field("17+", tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", default=9223372036854775807, tag=1, ignorable=True)


class ForgottenTopic(Message):
    topic: str = field("7-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[Int32] = field("7+")


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("7+", ignorable=True)
    session_id: Int32 = field("7+")
    responses: list[FetchableTopicResponse] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)


class FetchableTopicResponse(Message):
    topic: str = field("0-12", ignorable=True)
    # Replaces the name from version 13 on.
    topic_id: Uuid = field("13+", ignorable=True)
    partitions: list[PartitionData] = field("0+")


class PartitionData(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    high_watermark: Int64 = field("0+")
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    # Where the logs of follower and leader part.
    diverging_epoch: EpochEndOffset | None = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = field("12+", tag=1)
    # The metadata log no longer reaches back that far: fetch this snapshot.
    snapshot_id: SnapshotId | None = field("12+", tag=2)
    # Only under read_committed; null otherwise.
    aborted_transactions: list[AbortedTransaction] | None = field("4+", nullable="4+", ignorable=True)
    # Fetch from this closer replica instead (KIP-392); -1 for none.
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records = field("0+", nullable="0+")


class EpochEndOffset(Message):
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Message):
    end_offset: Int64 = field("0+", default=-1)
    epoch: Int32 = field("0+", default=-1)


class AbortedTransaction(Message):
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


class NodeEndpoint(Message):
    node_id: Int32 = field("16+")
    host: str = field("16+")
    port: Int32 = field("16+")
    rack: str | None = field("16+", nullable="16+", default=None)
