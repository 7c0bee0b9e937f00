"""Writes transaction markers to partitions that this broker leads, on request of any transaction coordinator.

A marker is acknowledged when it is replicated, like a write with acks=all. In `__consumer_offsets` a marker also
decides offsets, so the coordinator of that partition writes it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.partition import Marker
from penstock.broker.coordinators.questions import Gathering
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.wakeups import Wakeups
from penstock.groups.shard import GroupShard
from penstock.io.clock import Clock
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.records.batch import read_header

# While the group coordinator is not ready: transaction coordinators expect an error of a partition instead.
_NOT_READY = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)


class MarkerWriter:
    def __init__(
        self,
        groups: Coordinator[GroupShard],
        replicas: Replicas,
        hints: LeaderHints,
        clock: Clock,
        wakeups: Wakeups,
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._hints = hints
        self._clock = clock
        self._wakeups = wakeups

    def write(self, request: WriteTxnMarkersRequest, done: Callable[[WriteTxnMarkersResponse], None]) -> None:
        response = WriteTxnMarkersResponse()
        work: list[tuple[TopicPartition, Marker, WritableTxnMarkerPartitionResult]] = []
        for asked in request.markers:
            marker = Marker(
                asked.producer_id,
                asked.producer_epoch,
                asked.transaction_result,
                asked.coordinator_epoch,
                asked.transaction_version,
            )
            result = WritableTxnMarkerResult(producer_id=asked.producer_id)
            response.markers.append(result)
            for topic in asked.topics:
                topic_result = WritableTxnMarkerTopicResult(name=topic.name)
                result.topics.append(topic_result)
                for index in topic.partition_indexes:
                    answer = WritableTxnMarkerPartitionResult(partition_index=index)
                    topic_result.partitions.append(answer)
                    work.append((TopicPartition(topic.name, index), marker, answer))
        gathering = Gathering(len(work), lambda: done(response))
        for topic_partition, marker, answer in work:

            def written(code: ErrorCode, answer: WritableTxnMarkerPartitionResult = answer) -> None:
                answer.error_code = code
                gathering.one_more()

            self._write(topic_partition, marker, written)
        self._wakeups.run()

    def _write(self, topic_partition: TopicPartition, marker: Marker, written: Callable[[ErrorCode], None]) -> None:
        replica = self._replicas.get(*topic_partition)
        if replica is None:
            # An offline replica gets another leader soon. An unknown partition counts as delivered.
            is_offline = self._hints.not_here(*topic_partition).code is ErrorCode.KAFKA_STORAGE_ERROR
            written(ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif marker.producer_id < 0 or marker.producer_epoch < 0:
            written(ErrorCode.UNKNOWN_SERVER_ERROR)  # no valid producer; Kafka has no better code for it
        elif topic_partition.topic == CONSUMER_OFFSETS:
            partition = self._groups.partitions.get(topic_partition.partition)
            if partition is None:
                written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                partition.end_transaction(
                    marker,
                    Waiting(
                        lambda code: written(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code), _same
                    ),
                )
        else:
            try:
                self._append(replica, marker, written)
            except KafkaError as error:
                written(error.code)

    def _append(self, replica: Replica, marker: Marker, written: Callable[[ErrorCode], None]) -> None:
        leader = replica.leader_of(-1)
        if not leader.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        now_ms = self._clock.now_ms()
        batch = marker.build(now_ms)
        appended = replica.append(
            memoryview(batch), read_header(batch), now_ms, transaction_version=marker.transaction_version
        )
        end = appended.last_offset + 1
        if end <= leader.high_watermark:
            written(ErrorCode.NONE)
        else:
            leader.wait_for(end, written)


def _same(code: ErrorCode) -> ErrorCode:
    return code
