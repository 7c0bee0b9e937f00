"""DescribeQuorum (API key 55). The leader, voters and observers of the metadata quorum, and the progress of each."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import Listener
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumRequestTopicData] = field("0+")


class DescribeQuorumRequestTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[DescribeQuorumRequestPartitionData] = field("0+")


class DescribeQuorumRequestPartitionData(Message):
    partition_index: Int32 = field("0+")


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = field("0+")
    error_message: str | None = field("2+", nullable="2+", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = field("0+")
    nodes: list[Node] = field("2+")


class DescribeQuorumResponseTopicData(Message):
    topic_name: str = field("0+")
    partitions: list[DescribeQuorumResponsePartitionData] = field("0+")


class DescribeQuorumResponsePartitionData(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("2+", nullable="2+", ignorable=True)
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
    high_watermark: Int64 = field("0+")
    current_voters: list[ReplicaState] = field("0+")
    observers: list[ReplicaState] = field("0+")


class ReplicaState(Message):
    replica_id: Int32 = field("0+")
    replica_directory_id: Uuid = field("2+")
    log_end_offset: Int64 = field("0+")
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class Node(Message):
    node_id: Int32 = field("2+")
    listeners: list[Listener] = field("2+")
