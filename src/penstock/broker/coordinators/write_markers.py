"""Transaction markers as the leaders of partitions write them, for whichever coordinator asks.

A marker is answered when it is replicated as a write with acks=all is. In `__consumer_offsets` it also decides offsets:
there the partition's coordinator writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.coordinators.asking import Gathering
from penstock.broker.coordinators.partition import Marker
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.partitions.leader_hints import not_here
from penstock.broker.partitions.replica import Replica
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
from penstock.records.control import build_transaction_marker

if TYPE_CHECKING:
    from penstock.broker.node import Node

# What a coordinator of transactions is told in terms of partitions: the group's is not ready yet.
_NOT_READY = frozenset(
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
)


def write_markers(node: Node, request: WriteTxnMarkersRequest, done: Callable[[WriteTxnMarkersResponse], None]) -> None:
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

        _write(node, topic_partition, marker, written)
    node.wakeups.run()


def _write(node: Node, topic_partition: TopicPartition, marker: Marker, written: Callable[[ErrorCode], None]) -> None:
    replica = node.replicas.get(*topic_partition)
    if replica is None:
        # One on a broken disk has another leader soon; one that is unknown counts as told.
        is_offline = not_here(node, *topic_partition).code is ErrorCode.KAFKA_STORAGE_ERROR
        written(ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    elif marker.producer_id < 0 or marker.producer_epoch < 0:
        written(ErrorCode.UNKNOWN_SERVER_ERROR)  # the end of nobody's transaction; Kafka has no better word for it
    elif topic_partition.topic == CONSUMER_OFFSETS:
        partition = node.coordinators.groups.partitions.get(topic_partition.partition)
        if partition is None:
            written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            partition.end_transaction(
                marker,
                Waiting(lambda code: written(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code), _same),
            )
    else:
        try:
            _append(node, replica, marker, written)
        except KafkaError as error:
            written(error.code)


def _same(code: ErrorCode) -> ErrorCode:
    return code


def _append(node: Node, replica: Replica, marker: Marker, written: Callable[[ErrorCode], None]) -> None:
    leader = replica.leader_of(-1)
    if not leader.has_enough_replicas:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    now_ms = node.clock.now_ms()
    batch = build_transaction_marker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    appended = replica.append(
        memoryview(batch), read_header(batch), now_ms, transaction_version=marker.transaction_version
    )
    end = appended.last_offset + 1
    if end <= leader.high_watermark:
        written(ErrorCode.NONE)
    else:
        leader.wait_for(end, written)
