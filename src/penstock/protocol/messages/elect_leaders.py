"""ElectLeaders (API key 43). Elect preferred or unclean leaders."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None = field("0+", nullable="0+")
    timeout_ms: Int32 = field("0+", default=60000)


class TopicPartitions(Message):
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field("0+")


class ReplicaElectionResult(Message):
    topic: str = field("0+")
    partition_result: list[PartitionResult] = field("0+")


class PartitionResult(Message):
    partition_id: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
