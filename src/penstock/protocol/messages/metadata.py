"""Metadata (API key 3). List brokers, topics and partition leaders; may create the topics it names."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    # Null for all topics; in version 0 an empty list means all.
    topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10")
    include_topic_authorized_operations: bool = field("8+")


class MetadataRequestTopic(Message):
    topic_id: Uuid = field("10+", ignorable=True)
    name: str | None = field("0+", nullable="10+")


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field("0+")
    cluster_id: str | None = field("2+", nullable="2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field("0+")
    # A bit set; -2^31 when it was not asked for.
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", ignorable=True)


class MetadataResponseBroker(Message):
    node_id: Int32 = field("0+")
    host: str = field("0+")
    port: Int32 = field("0+")
    rack: str | None = field("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponseTopic(Message):
    error_code: Int16 = field("0+")
    name: str | None = field("0+", nullable="12+")
    topic_id: Uuid = field("10+", ignorable=True)
    is_internal: bool = field("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field("0+")
    # A bit set; -2^31 when it was not asked for.
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


class MetadataResponsePartition(Message):
    error_code: Int16 = field("0+")
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    offline_replicas: list[Int32] = field("5+", ignorable=True)
