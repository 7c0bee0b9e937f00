"""Proves that two replicas of a partition are equal, by reading both: what the move removes was there before.

Replicas answer consumers up to their high watermark (KIP-392), whether they lead or not. The two logs are read side by
side, from the later of their beginnings to the high watermark at the start:

- The batches of a topic that is not compacted are the same bytes in every replica, and are compared as bytes.
- A compacted topic is compared by content: each replica cleans its log for itself, so that the batches differ. Equal
  are the last values of all keys, as a consumer of committed records sees them, and what open transactions wrote.
  Tombstones count as no value, because one replica may have removed them already.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.records.batch import BatchHeader, check_crc, iterate_headers
from penstock.records.control import parse_transaction_marker
from penstock.records.record import Record, iterate_records

_ANSWER_BYTES: Final = 4 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
_WAIT_MS: Final = 200

Batch = tuple[BatchHeader, bytes]


class ReplicasDiffer(Exception):
    """Two replicas of a partition are not equal; the message has where."""


@dataclass(frozen=True, slots=True)
class Verified:
    partition: TopicPartition
    brokers: tuple[int, int]
    start_offset: int
    end_offset: int
    compared_bytes: int


class ReplicaReader:
    """Reads the batches of one replica, whether it leads or follows."""

    def __init__(self, cluster: Cluster, broker_id: int, partition: TopicPartition, topic_id: Uuid) -> None:
        self.broker_id = broker_id
        self._cluster = cluster
        self._partition = partition
        self._topic_id = topic_id

    def bounds(self) -> tuple[int, int]:
        """The log start offset and the high watermark of the replica."""
        data = self._fetch(0, may_be_out_of_range=True)
        return data.log_start_offset, data.high_watermark

    def batches(self, start: int, end: int) -> Iterator[Batch]:
        """The batches with offsets from `start` on and below `end`. The first may begin before `start`."""
        position = start
        while position < end:
            data = self._fetch(position)
            records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
            for place, header in iterate_headers(records):
                check_crc(records, place, header)
                if header.base_offset >= end:
                    return
                position = header.next_offset
                yield header, bytes(records[place : place + header.size])
            if not records:
                if data.high_watermark >= end:
                    return  # compaction has removed everything up to the end
                time.sleep(_WAIT_MS / 1000)

    def _fetch(self, position: int, *, may_be_out_of_range: bool = False) -> PartitionData:
        wanted = FetchPartition(
            partition=self._partition.partition, fetch_offset=position, partition_max_bytes=_ANSWER_BYTES
        )
        topic = FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=0, max_bytes=_ANSWER_BYTES, topics=[topic])
        answer = self._cluster.request_broker(self.broker_id, request, FetchResponse)
        about = f"cannot read {self._partition} from broker {self.broker_id}"
        raise_for(answer.error_code, None, about)
        ((data,),) = (each.partitions for each in answer.responses)
        if not (may_be_out_of_range and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE):
            raise_for(data.error_code, None, about)
        return data


def verify(
    one: ReplicaReader,
    other: ReplicaReader,
    partition: TopicPartition,
    *,
    compacted: bool,
    read: Callable[[int], None] = lambda size: None,
) -> Verified:
    """Compare two replicas; ReplicasDiffer if they are not equal. `read` is called with the bytes of each batch."""
    (start_one, end_one), (start_other, end_other) = one.bounds(), other.bounds()
    start, end = max(start_one, start_other), min(end_one, end_other)
    same = _same_content if compacted else _same_bytes
    compared = 0

    def counted(reader: ReplicaReader) -> Iterator[Batch]:
        nonlocal compared
        for batch in reader.batches(start, end):
            compared += len(batch[1])
            read(len(batch[1]))
            yield batch

    try:
        same(counted(one), counted(other), f"{partition} on brokers {one.broker_id} and {other.broker_id}")
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        # Retention has removed the beginning while it was read.
        return verify(one, other, partition, compacted=compacted, read=read)
    return Verified(partition, (one.broker_id, other.broker_id), start, end, compared)


def _same_bytes(one: Iterator[Batch], other: Iterator[Batch], about: str) -> None:
    missing: Batch | None = None
    while True:
        left, right = next(one, missing), next(other, missing)
        if left is None and right is None:
            return
        if left is None or right is None:
            present = left or right
            assert present is not None
            raise ReplicasDiffer(f"{about} differ: only one has a batch at offset {present[0].base_offset}")
        if left[1] != right[1]:
            raise ReplicasDiffer(f"{about} differ at offset {min(left[0].base_offset, right[0].base_offset)}")


def _same_content(one: Iterator[Batch], other: Iterator[Batch], about: str) -> None:
    left, right = last_values(one), last_values(other)
    if left != right:
        differing = sum(1 for key in left.keys() | right.keys() if left.get(key) != right.get(key))
        raise ReplicasDiffer(f"{about} differ in the last values of {differing} keys")


def last_values(batches: Iterator[Batch]) -> dict[bytes, bytes]:
    """A digest of the last value of each key. Keys of open transactions are apart, by their producer."""
    values: dict[bytes, bytes] = {}
    open_transactions: dict[int, list[Record]] = {}
    for header, data in batches:
        records = list(iterate_records(data, 0, header, max_size=_BATCH_BYTES_MAX))
        if header.is_control:
            marker = parse_transaction_marker(records[0]) if records else None
            written = open_transactions.pop(header.producer_id, [])
            if marker is not None and marker.committed:
                _apply(values, written)
        elif header.is_transactional:
            open_transactions.setdefault(header.producer_id, []).extend(records)
        else:
            _apply(values, records)
    for producer_id, written in open_transactions.items():
        pending: dict[bytes, bytes] = {}
        _apply(pending, written)
        values |= {b"%d:" % producer_id + key: digest for key, digest in pending.items()}
    return values


def _apply(values: dict[bytes, bytes], records: list[Record]) -> None:
    for record in records:
        key = b"" if record.key is None else bytes(record.key)
        if record.value is None:
            values.pop(key, None)
        else:
            values[key] = hashlib.blake2b(bytes(record.value), digest_size=16).digest()
