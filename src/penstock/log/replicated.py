"""Checks that a follower makes before it appends batches from its leader.

The leader has validated the batches and assigned offsets and epochs. But they may have been damaged on the way, and a
faulty leader may send batches that do not follow. The follower checks the whole response before it writes any of it.

A response may end in the middle of a batch: Apache Kafka's leaders cut it at `max_bytes` and only ensure that the first
batch is complete. The next fetch starts with the batch that was cut off.
"""

from __future__ import annotations

from penstock.model.ids import TopicPartition
from penstock.records.batch import CONTROL, BatchHeader, CorruptBatch, check_crc, iterate_headers
from penstock.records.control import read_transaction_marker


def replicated_batches(
    view: memoryview, next_offset: int, topic_partition: TopicPartition
) -> list[tuple[int, BatchHeader]]:
    """The complete batches in `view` with their positions; at least one is required. They must be good and in order,
    from `next_offset` on; gaps are allowed."""
    batches: list[tuple[int, BatchHeader]] = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"{topic_partition}: offset {header.base_offset} where at least {next_offset} was due")
        if header.attributes & CONTROL:
            aborts_transaction(view, position, header)  # checks that it can be read
        next_offset = header.next_offset
        batches.append((position, header))
    if not batches:
        raise CorruptBatch(f"{topic_partition}: not one whole batch in {len(view)} bytes")
    return batches


def aborts_transaction(view: memoryview, position: int, header: BatchHeader) -> bool:
    """Whether a control batch aborts a transaction. False if compaction has emptied it, or it has no producer."""
    if header.producer_id < 0:
        return False
    marker = read_transaction_marker(view, position, header)
    return marker is not None and not marker.committed
