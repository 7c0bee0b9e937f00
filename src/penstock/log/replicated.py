"""What a follower checks before it appends what its leader sent.

The leader has validated the batches and given them offsets and epochs; on the way they may still have been damaged, and
a confused leader may send what does not follow. All of a response is checked before any of it is written.

A response may end in the middle of a batch: Apache Kafka's leaders cut where `max_bytes` ends, and only make sure that
the first batch is whole. What is cut off is fetched next, and then comes first.
"""

from __future__ import annotations

from penstock.model.ids import TopicPartition
from penstock.records.batch import CONTROL, BatchHeader, CorruptBatch, check_crc, iterate_headers
from penstock.records.control import read_transaction_marker


def replicated_batches(
    view: memoryview, next_offset: int, topic_partition: TopicPartition
) -> list[tuple[int, BatchHeader]]:
    """The whole batches in `view` and where they are; there must be one. They must be good and in order, from
    `next_offset` on; gaps are allowed."""
    batches: list[tuple[int, BatchHeader]] = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"{topic_partition}: offset {header.base_offset} where at least {next_offset} was due")
        if header.attributes & CONTROL:
            aborts_transaction(view, position, header)  # to see that it can be read
        next_offset = header.next_offset
        batches.append((position, header))
    if not batches:
        raise CorruptBatch(f"{topic_partition}: not one whole batch in {len(view)} bytes")
    return batches


def aborts_transaction(view: memoryview, position: int, header: BatchHeader) -> bool:
    """Of a control batch. Not one that compaction has emptied, or that is no producer's."""
    if header.producer_id < 0:
        return False
    marker = read_transaction_marker(view, position, header)
    return marker is not None and not marker.committed
