"""Structs that the messages and the records of streams groups (KIP-1071) share."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Int64, Uint16


class KeyValue(Message):
    key: str = field("0+")
    value: str = field("0+")


class Endpoint(Message):
    host: str = field("0+")
    port: Uint16 = field("0+")


class TaskIds(Message):
    """Tasks of one subtopology: one for each partition of its input."""

    subtopology_id: str = field("0+")
    partitions: list[Int32] = field("0+")


class TaskOffset(Message):
    """How far a task has read its changelogs, summed up."""

    subtopology_id: str = field("0+")
    partition: Int32 = field("0+")
    offset: Int64 = field("0+")


class TopicInfo(Message):
    """An internal topic. Zero partitions or replicas: the broker decides."""

    name: str = field("0+")
    partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    topic_configs: list[KeyValue] = field("0+")


class CopartitionGroup(Message):
    """Topics that must have the same number of partitions: indexes into the lists of their subtopology."""

    source_topics: list[Int16] = field("0+")
    source_topic_regex: list[Int16] = field("0+")
    repartition_source_topics: list[Int16] = field("0+")


class Subtopology(Message):
    subtopology_id: str = field("0+")
    source_topics: list[str] = field("0+")
    source_topic_regex: list[str] = field("0+")
    state_changelog_topics: list[TopicInfo] = field("0+")
    repartition_sink_topics: list[str] = field("0+")
    repartition_source_topics: list[TopicInfo] = field("0+")
    copartition_groups: list[CopartitionGroup] = field("0+")
