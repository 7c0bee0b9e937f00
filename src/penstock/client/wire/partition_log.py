"""Reads and appends to a small partition record by record, without Arrow: for topics that tools keep their notes in.

    with PartitionLog("127.0.0.1:9092", TopicPartition("__pipelines", 0)) as log:
        log.append(b"key", b"value")
        for record in log.read(): ...

A command that shows such a topic would otherwise wait a second for imports. Large topics are for `penstock.arrow`,
which decodes some twenty times as fast. The reader does not know transactions: it returns the records of open and
aborted ones, too.

Leaders may move or die meanwhile: requests are repeated, with fresh metadata, for `timeout` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from penstock.client.errors import TimedOut, Unreachable, raise_for
from penstock.client.wire.admin.topics import EARLIEST, LATEST
from penstock.client.wire.closing import Closing
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S
from penstock.client.wire.leaders import STALE, Leader, Leaders
from penstock.client.wire.log_offsets import READ_UNCOMMITTED, LogOffsets
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.builder import build_batch
from penstock.records.record import Record, iterate_records

Result = TypeVar("Result")

_ALL_IN_SYNC = -1
_ANSWER_BYTES = 4 * 1024 * 1024
_BATCH_BYTES_MAX = 128 * 1024 * 1024
_EMPTY_ANSWERS = 2
_RETRY_S = 0.05


class PartitionLog(Closing):
    def __init__(
        self,
        bootstrap: str,
        partition: TopicPartition,
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        request_timeout: float = DEFAULT_TIMEOUT_S,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`options`: security settings by Kafka's names; or `bootstrap` refers to them."""
        self._partition = partition
        self._timeout = timeout
        self._leaders = Leaders(bootstrap, timeout=request_timeout, options=options)

    def close(self) -> None:
        self._leaders.close()

    def read(self, start: int = 0) -> Iterator[Record]:
        """The records from an offset on, or from the first one that exists, to the end of the log as it is now.
        UnknownTopic at once if the topic does not exist."""
        self._find(patience=0.0)
        offsets = LogOffsets(self._leaders, READ_UNCOMMITTED, self._timeout)
        position = max(start, offsets.at([self._partition], EARLIEST)[self._partition])
        end = offsets.at([self._partition], LATEST)[self._partition]
        empty_answers = 0  # compaction may have left nothing up to the end
        while position < end and empty_answers < _EMPTY_ANSWERS:
            data = self._patiently(lambda at: self._fetch(at, end), position)
            records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
            empty_answers = 0 if records else empty_answers + 1
            first = position
            for place, header in iterate_headers(records):
                check_crc(records, place, header)
                position = max(position, header.next_offset)
                if not header.is_control:
                    found = iterate_records(records, place, header, max_size=_BATCH_BYTES_MAX)
                    yield from (record for record in found if first <= record.offset < end)

    def append(self, key: bytes, value: bytes) -> None:
        """Write a record; it is in all replicas in sync on return. A record whose acknowledgement was lost is written
        twice."""
        self._find()
        batch = build_batch([(time.time_ns() // 1_000_000, key, value, ())])
        self._patiently(self._produce, batch)

    def _find(self, **patience: float) -> None:
        if self._partition.topic not in self._leaders.topics:
            self._leaders.find([self._partition.topic], **patience)

    def _fetch(self, position: int, end: int) -> PartitionData:
        leader, topic = self._leader(), self._partition.topic
        wanted = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=position,
            partition_max_bytes=_ANSWER_BYTES,
        )
        named = FetchTopic(topic=topic, topic_id=self._leaders.topics[topic].topic_id, partitions=[wanted])
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=_ANSWER_BYTES, isolation_level=READ_UNCOMMITTED, topics=[named]
        )
        answer = self._leaders.cluster.request_broker(leader.broker_id, request, FetchResponse)
        raise_for(answer.error_code, None, f"cannot read {self._partition}")
        ((data,),) = (topic.partitions for topic in answer.responses)
        raise_for(data.error_code, None, f"cannot read {self._partition} at offset {position}")
        if not data.records and data.high_watermark < end:  # a new leader that has not caught up
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._partition} ends at {data.high_watermark} for now")
        return data

    def _produce(self, batch: bytearray) -> None:
        leader, topic = self._leader(), self._partition.topic
        data = PartitionProduceData(index=self._partition.partition, records=batch)
        named = TopicProduceData(name=topic, topic_id=self._leaders.topics[topic].topic_id, partition_data=[data])
        request = ProduceRequest(
            acks=_ALL_IN_SYNC, timeout_ms=int(self._leaders.cluster.timeout * 1000), topic_data=[named]
        )
        answer = self._leaders.cluster.request_broker(leader.broker_id, request, ProduceResponse)
        ((result,),) = (topic.partition_responses for topic in answer.responses)
        raise_for(result.error_code, result.error_message, f"cannot write to {self._partition}")

    def _leader(self) -> Leader:
        leader = self._leaders.leader_of(self._partition)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._partition} has no leader")
        return leader

    def _patiently(self, attempt: Callable[..., Result], *arguments: object) -> Result:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return attempt(*arguments)
            except (Unreachable, TimedOut):
                if time.monotonic() > deadline:
                    raise
            except KafkaError as error:
                if error.code not in STALE or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)
            self._leaders.refresh()
