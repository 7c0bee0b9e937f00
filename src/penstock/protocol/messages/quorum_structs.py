"""Structs that several messages of the metadata quorum contain."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uint16


class Listener(Message):
    name: str = field("0+")
    host: str = field("0+")
    port: Uint16 = field("0+")


class NodeEndpoint(Message):
    node_id: Int32 = field("0+")
    host: str = field("0+")
    port: Uint16 = field("0+")


class KRaftVersionFeature(Message):
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class TopicAnswer(Message):
    """The answer to BeginQuorumEpoch and EndQuorumEpoch."""

    topic_name: str = field("0+")
    partitions: list[PartitionAnswer] = field("0+")


class PartitionAnswer(Message):
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+")
