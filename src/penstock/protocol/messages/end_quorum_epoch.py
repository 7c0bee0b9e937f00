"""EndQuorumEpoch (API key 54). The leader of the metadata quorum steps down."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import Listener, NodeEndpoint, TopicAnswer
from penstock.protocol.primitives import Int16, Int32, Uuid


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = field("0+", nullable="0+", default=None)
    topics: list[EndQuorumEpochRequestTopicData] = field("0+")
    leader_endpoints: list[Listener] = field("1+", ignorable=True)


class EndQuorumEpochRequestTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[EndQuorumEpochRequestPartitionData] = field("0+")


class EndQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    preferred_successors: list[Int32] = field("0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field("1+", ignorable=True)


class ReplicaInfo(Message):
    candidate_id: Int32 = field("1+")
    candidate_directory_id: Uuid = field("1+")


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    error_code: Int16 = field("0+")
    topics: list[TopicAnswer] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
