"""Vote (API key 52). A candidate, or with pre-vote a prospective one, asks a voter for its vote."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import NodeEndpoint
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = field("0+", nullable="0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData] = field("0+")


class VoteRequestTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[VoteRequestPartitionData] = field("0+")


class VoteRequestPartitionData(Message):
    partition_index: Int32 = field("0+")
    replica_epoch: Int32 = field("0+")
    replica_id: Int32 = field("0+")
    replica_directory_id: Uuid = field("1+", ignorable=True)
    voter_directory_id: Uuid = field("1+", ignorable=True)
    last_offset_epoch: Int32 = field("0+")
    last_offset: Int64 = field("0+")
    pre_vote: bool = field("2+")


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    error_code: Int16 = field("0+")
    topics: list[VoteResponseTopicData] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)


class VoteResponseTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[VoteResponsePartitionData] = field("0+")


class VoteResponsePartitionData(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    vote_granted: bool = field("0+")
