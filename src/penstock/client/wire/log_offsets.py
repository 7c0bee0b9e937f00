"""Offsets by time, and the start and end of logs: ListOffsets to the leaders, repeated while they move."""

from __future__ import annotations

import time

from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.leaders import STALE, Leaders
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}

_RETRY_S = 0.05


class LogOffsets:
    def __init__(self, leaders: Leaders, isolation: int, timeout: float) -> None:
        self._leaders = leaders
        self._isolation = isolation
        self._timeout = timeout

    def at(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return offsets: EARLIEST, LATEST, or the first at or after a time in milliseconds; -1 if none."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._at(partitions, timestamp)
            except (KafkaError, ClientError) as error:
                moving = isinstance(error, ClientError) or error.code in STALE
                if not moving or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)
            self._leaders.refresh()

    def _at(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leaders.leader_of(partition)
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
            by_leader.setdefault(leader.broker_id, []).append(partition)
        found: dict[TopicPartition, int] = {}
        for broker_id, led in by_leader.items():
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
                )
                for name, indexes in by_topic(led).items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=self._isolation,
                topics=topics,
                timeout_ms=int(self._leaders.cluster.timeout * 1000),
            )
            answer = self._leaders.cluster.request_broker(broker_id, request, ListOffsetsResponse)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    raise_for(result.error_code, None, f"offsets of {partition}")
                    found[partition] = result.offset
        return found
