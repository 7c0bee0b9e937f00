"""BeginQuorumEpoch (API key 53). A new leader of the metadata quorum announces itself."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import Listener, NodeEndpoint, TopicAnswer
from penstock.protocol.primitives import Int16, Int32, Uuid


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = field("0+", nullable="0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData] = field("0+")
    leader_endpoints: list[Listener] = field("1+", ignorable=True)


class BeginQuorumEpochRequestTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[BeginQuorumEpochRequestPartitionData] = field("0+")


class BeginQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = field("0+")
    voter_directory_id: Uuid = field("1+", ignorable=True)
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    error_code: Int16 = field("0+")
    topics: list[TopicAnswer] = field("0+")
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
