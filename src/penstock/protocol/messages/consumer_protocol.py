"""Subscriptions and assignments of consumers in classic groups; the coordinator passes them on unread.

In JoinGroup and SyncGroup each is preceded by its version, an int16.
"""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int32


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field("1+", ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: str | None = field("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolSubscriptionTopicPartition(Message):
    topic: str = field("1+")
    partitions: list[Int32] = field("1+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field("0+")
    user_data: bytes | None = field("0+", nullable="0+", default=None)


class ConsumerProtocolAssignmentTopicPartition(Message):
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")
