"""Decodes the subscriptions and assignments that consumers of classic groups exchange.

A classic coordinator passes subscriptions and assignments on unread. It reads a subscription only to find which topics
a group reads (so that offsets of other topics may be deleted), and both when a group moves between the protocols. Each
starts with its version; a newer version adds fields only after the known ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.groups.topics import TopicsView
from penstock.model.ids import Uuid
from penstock.protocol.codec import MalformedMessage, decode_from, encode
from penstock.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

# The protocol type of consumers.
CONSUMER: Final = "consumer"
_HIGHEST_VERSION: Final = 3


def embedded_version(data: bytes) -> int:
    """Return the version of a subscription or an assignment, limited to the known versions."""
    if len(data) < 2:
        raise MalformedMessage("an embedded message without a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise MalformedMessage(f"version {version} of an embedded message")
    return min(version, _HIGHEST_VERSION)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription; raise MalformedMessage if it is not one."""
    return decode_from(ConsumerProtocolSubscription, data, embedded_version(data), 2)[0]


def read_topics(data: bytes) -> list[str]:
    """Decode only the topics, which every version begins with."""
    embedded_version(data)
    return decode_from(ConsumerProtocolSubscription, data, 0, 2)[0].topics


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return decode_from(ConsumerProtocolAssignment, data, embedded_version(data), 2)[0]


def write_assignment(assigned: Mapping[Uuid, Iterable[int]], topics: TopicsView, version: int) -> bytes:
    """Encode an assignment for a classic member, without deleted topics."""
    parts = []
    for topic_id in sorted(assigned):
        name = topics.topic_name(topic_id)
        if name is not None:
            part = ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(assigned[topic_id]))
            parts.append(part)
    message = ConsumerProtocolAssignment(assigned_partitions=sorted(parts, key=lambda part: part.topic))
    return version.to_bytes(2, "big") + encode(message, version)


def by_topic_id(parts: Iterable[tuple[str, Iterable[int]]], topics: TopicsView) -> dict[Uuid, frozenset[int]]:
    """Return partitions by topic id, without those of deleted topics."""
    found: dict[Uuid, frozenset[int]] = {}
    for name, partitions in parts:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(partitions)
    return found
