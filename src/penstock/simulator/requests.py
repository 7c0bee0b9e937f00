"""Hand-made requests and batches for tests and simulated clients, as a client library would send them."""

from __future__ import annotations

import time
from typing import Any

from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.batch import iterate_headers
from penstock.records.builder import build_batch
from penstock.records.record import Record, iterate_records

MAX_RECORDS_SIZE = 64 << 20


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    *values: str | bytes | None, timestamp: int | None = None, key: bytes | None = None, **options: Any
) -> bytearray:
    """Build a batch of these values with the current time; `options` are those of `build_batch`."""
    when = now_ms() if timestamp is None else timestamp
    return build_batch(
        [(when, key, value.encode() if isinstance(value, str) else value, ()) for value in values], **options
    )


def records(data: Any) -> list[Record]:
    view = memoryview(data)
    return [
        record
        for position, header in iterate_headers(view)
        for record in iterate_records(view, position, header, max_size=MAX_RECORDS_SIZE)
    ]


def produce_request(
    topic: str, data: Any, *, partition: int = 0, acks: int = -1, topic_id: bytes = ZERO_UUID, timeout_ms: int = 10_000
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=partition, records=data)]
            )
        ],
    )


def only_partition(response: Any) -> PartitionProduceResponse:
    ((answer,),) = (topic.partition_responses for topic in response.responses)
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def fetch_request(topic: str | bytes, offset: int = 0, *, partition: int = 0, **options: Any) -> FetchRequest:
    """`options` are fields of the request or of its only partition; by topic name in version 12, by id from 13 on."""
    of_partition = {
        name: options.pop(name)
        for name in ("current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes")
        if name in options
    }
    of_partition.setdefault("partition_max_bytes", 1 << 20)
    wanted = FetchPartition(partition=partition, fetch_offset=offset, **of_partition)
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    options.setdefault("max_bytes", 1 << 24)
    return FetchRequest(topics=[FetchTopic(partitions=[wanted], **named)], **options)
