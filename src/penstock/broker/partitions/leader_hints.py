"""Errors for clients that asked the wrong broker, and the current leader that they should ask instead (KIP-951).

The error response contains the leader's address, which saves the client a metadata request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.net.connection import Connection
from penstock.broker.net.endpoints import Endpoints
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid

# Clients may take these errors as final, and lose data. They are true only if this broker still leads the partition.
_FINAL_AT_LEADER = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_MISPLACED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Hint(NamedTuple):
    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    def __init__(
        self,
        metadata: Metadata,
        endpoints: Endpoints,
        is_offline: Callable[[TopicPartition, Uuid], bool],
        is_surely_alive: Callable[[], bool],
    ) -> None:
        """`is_offline`: whether a partition of that topic is in a log directory of this broker that is offline.

        `is_surely_alive`: whether no controller can have replaced this broker as a leader.
        """
        self._metadata = metadata
        self._endpoints = endpoints
        self._is_offline = is_offline
        self._is_surely_alive = is_surely_alive

    def hint(self, connection: Connection, topic: str, index: int, code: int) -> Hint | None:
        """The leader to name with an error; None if this error names none, or no leader is known."""
        return self.current_leader(connection, topic, index) if code in _MISPLACED else None

    def current_leader(self, connection: Connection, topic: str, index: int) -> Hint | None:
        image = self._metadata.image
        partition = image.topics.partition(topic, index)
        if partition is None:
            return None
        broker = image.brokers.get(partition.leader)
        if broker is None or broker.fenced:
            return None
        endpoint = self._endpoints.reachable_at(connection, broker)
        if endpoint is None:
            return None
        return Hint(broker.broker_id, partition.leader_epoch, endpoint.host, endpoint.port, broker.rack)

    def checked(self, code: ErrorCode) -> ErrorCode:
        """The error itself, or NOT_LEADER_OR_FOLLOWER if another broker may lead by now and know better: it may have
        the offset that is missing here, or the batches before this one."""
        if code in _FINAL_AT_LEADER and not self._is_surely_alive():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._metadata.image.topics.name_of(topic_id)

    def not_here(self, topic: str, index: int) -> KafkaError:
        """The error for a partition that this broker does not hold, or holds in a directory that is offline."""
        found = self._metadata.image.topics.by_name(topic)
        if found is None or index not in found.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._is_offline(TopicPartition(topic, index), found.topic_id):
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is in a log directory that is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
