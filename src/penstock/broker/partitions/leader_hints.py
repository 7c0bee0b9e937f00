"""Who leads, for clients that asked the wrong broker (KIP-951): with the error they are told where to go, and save a
round of metadata requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.net.endpoints import reachable_at
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.broker.net.connection import Connection
    from penstock.broker.node import Node

_MISPLACED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Hint(NamedTuple):
    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def hint(node: Node, connection: Connection, topic: str, index: int, code: int) -> Hint | None:
    """What goes with an error; None if nothing does, or nobody is known to lead."""
    return current_leader(node, connection, topic, index) if code in _MISPLACED else None


def current_leader(node: Node, connection: Connection, topic: str, index: int) -> Hint | None:
    partition = node.image.topics.partition(topic, index)
    if partition is None:
        return None
    broker = node.image.brokers.get(partition.leader)
    if broker is None or broker.fenced:
        return None
    endpoint = reachable_at(node, connection, broker)
    if endpoint is None:
        return None
    return Hint(broker.broker_id, partition.leader_epoch, endpoint.host, endpoint.port, broker.rack)


def not_here(node: Node, topic: str, index: int) -> KafkaError:
    """What a request for a partition gets that this broker does not hold, or holds in a directory that is offline."""
    found = node.image.topics.by_name(topic)
    if found is None or index not in found.partitions:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if node.storage.is_offline(TopicPartition(topic, index), found.topic_id):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is in a log directory that is offline")
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
