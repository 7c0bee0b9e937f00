"""Reads one replica of a partition, whether it leads or follows.

Replicas answer consumers up to their high watermark (KIP-392). Where a follower's log begins is said only to a
debugging consumer (replica id -2); others learn it from the leader.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.client.errors import raise_for
from penstock.client.wire.admin.topics import EARLIEST
from penstock.client.wire.cluster import Cluster
from penstock.migrate.content import Batch
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.records.batch import iterate_headers

_DEBUGGING_CONSUMER: Final = -2
_ANSWER_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 200
# How long a replica in sync may take to learn of the high watermark.
_BEHIND_S: Final = 30.0


class Bounds(NamedTuple):
    start: int
    high_watermark: int


class ReplicaReader:
    def __init__(self, cluster: Cluster, broker_id: int, partition: TopicPartition, topic_id: Uuid) -> None:
        self.broker_id = broker_id
        self._cluster = cluster
        self._partition = partition
        self._topic_id = topic_id

    def bounds(self) -> Bounds:
        """The log start offset and the high watermark of the replica.

        KafkaError(OFFSET_OUT_OF_RANGE) if its beginning is being removed.
        """
        start = self._start()
        return self._checked(Bounds(start, self._fetch(start).high_watermark))

    def batches(self, start: int, end: int) -> Iterator[Batch]:
        """The batches with offsets from `start` on and below `end`. The first may begin before `start`."""
        position = start
        deadline = time.monotonic() + _BEHIND_S
        while position < end:
            data = self._fetch(position)
            records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
            for place, header in iterate_headers(records):
                if header.base_offset >= end:
                    return
                position = header.next_offset
                yield header, bytes(records[place : place + header.size])
            if records:
                deadline = time.monotonic() + _BEHIND_S
                continue
            if data.high_watermark >= end:
                return  # compaction has removed everything up to the end
            if time.monotonic() > deadline:
                words = f"{self._about}: it is not in sync"
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, words)
            time.sleep(_WAIT_MS / 1000)

    @property
    def _about(self) -> str:
        return f"cannot read {self._partition} from broker {self.broker_id}"

    def _checked(self, bounds: Bounds) -> Bounds:
        if min(bounds) < 0:
            words = f"{self._about}: it does not say where its log begins and ends, but {bounds}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, words)
        return bounds

    def _start(self) -> int:
        wanted = ListOffsetsPartition(partition_index=self._partition.partition, timestamp=EARLIEST)
        topic = ListOffsetsTopic(name=self._partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=_DEBUGGING_CONSUMER, topics=[topic])
        answer = self._cluster.request_broker(self.broker_id, request, ListOffsetsResponse)
        ((found,),) = (each.partitions for each in answer.topics)
        raise_for(found.error_code, None, self._about)
        return found.offset

    def _fetch(self, position: int) -> PartitionData:
        wanted = FetchPartition(
            partition=self._partition.partition, fetch_offset=position, partition_max_bytes=_ANSWER_BYTES
        )
        topic = FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=0, max_bytes=_ANSWER_BYTES, topics=[topic])
        answer = self._cluster.request_broker(self.broker_id, request, FetchResponse)
        raise_for(answer.error_code, None, self._about)
        ((data,),) = (each.partitions for each in answer.responses)
        raise_for(data.error_code, None, self._about)
        return data
