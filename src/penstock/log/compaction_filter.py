"""Decides which records of a batch survive compaction.

A record stays if it is the latest of its key, or if it is beyond the offsets that the map of keys covers. A tombstone
stays until the delete horizon of its batch has passed; the first compaction that reads the tombstone sets the horizon.
Records without a key are removed.

A batch always keeps its offsets, sequence and producer. A batch that loses no records is copied unchanged. A batch that
loses some records keeps the bytes of the others. A batch that loses all records is removed, unless that would lose the
last sequence of its producer, or the end of a segment or of the committed log: then its header stays, with no records.
So a cleaned segment still reaches up to the next one, and a gap between segments still means data loss.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from penstock.log.compaction_job import ActiveProducer, CompactionJob
from penstock.log.compaction_transactions import CleanedTransactions
from penstock.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from penstock.records.builder import assemble
from penstock.records.compression import compress
from penstock.records.record import RecordSpan, iterate_spans, records_body
from penstock.records.varint import varint

_SHORT_KEY = 16
_NO_PRODUCER = ActiveProducer(-1, -1)


def map_key(key: bytes) -> bytes:
    """The key, or for a long key its digest, which is one byte longer than any short key, so that the two never
    clash."""
    return key if len(key) <= _SHORT_KEY else hashlib.blake2b(key, digest_size=_SHORT_KEY + 1).digest()


class OffsetMap:
    """The offset of the latest record of each key in the dirty part of the log."""

    __slots__ = ("latest_offset", "offsets")

    def __init__(self, first_dirty_offset: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = first_dirty_offset - 1
        """The map says nothing about records behind this offset."""


class RetainedBatch(NamedTuple):
    batch: Buffer | None
    """None: keep the batch unchanged."""
    header: BatchHeader


class BatchFilter:
    def __init__(self, job: CompactionJob, offset_map: OffsetMap, transactions: CleanedTransactions) -> None:
        self._offsets = offset_map.offsets
        self._latest_offset = offset_map.latest_offset
        self._transactions = transactions
        self._producers = job.producers
        self._high_watermark = job.high_watermark
        self._now_ms = job.now_ms
        self._new_horizon = job.now_ms + job.delete_retention_ms
        self._max_size = job.max_decompressed_bytes
        self.group_end_offset = -1
        """The end of the group of segments that is being merged into one."""
        self.records_read = 0
        self.records_kept = 0
        self.changed = 0
        """The number of batches that were changed or removed."""

    def retain(self, view: memoryview, position: int, header: BatchHeader) -> RetainedBatch | None:
        """Return what to write in place of this batch, or None to drop it."""
        self.records_read += header.count
        if header.is_control:
            kept = self._retain_control(view, position, header)
        elif self._transactions.is_aborted(header):
            kept = self._emptied(header)
        else:
            kept = self._retain_data(view, position, header)
        if kept is None:
            self.changed += 1
            return None
        self.records_kept += kept.header.count
        if kept.batch is not None:
            self.changed += 1
        return kept

    def _retain_control(self, view: memoryview, position: int, header: BatchHeader) -> RetainedBatch | None:
        if not self._transactions.may_discard(view, position, header):
            return RetainedBatch(None, header)
        if header.count == 0:
            return RetainedBatch(None, header) if self._must_stay(header) else None
        horizon = header.delete_horizon_ms
        if horizon is not None:
            return self._emptied(header) if horizon <= self._now_ms else RetainedBatch(None, header)
        body = records_body(view, position, header, max_size=self._max_size)
        return self._rebuilt(header, body, list(iterate_spans(body, header)), self._new_horizon)

    def _retain_data(self, view: memoryview, position: int, header: BatchHeader) -> RetainedBatch | None:  # noqa: C901
        if header.count == 0:
            return RetainedBatch(None, header) if self._must_stay(header) else None
        latest_offset = self._latest_offset
        if header.base_offset > latest_offset:
            return RetainedBatch(None, header)
        body = records_body(view, position, header, max_size=self._max_size)
        find = self._offsets.get
        base_offset = header.base_offset
        horizon = header.delete_horizon_ms
        keeps_tombstones = horizon is None or self._now_ms < horizon
        needs_horizon = False
        spans: list[RecordSpan] = []
        for span in iterate_spans(body, header):
            offset = base_offset + span[4]
            if offset > latest_offset:
                spans.append(span)
                continue
            key = span[5]
            if key is None:
                continue
            if len(key) > _SHORT_KEY:
                key = map_key(key)
            if offset < find(key, -1):
                continue
            if span[6] < 0:
                if not keeps_tombstones:
                    continue
                needs_horizon = horizon is None
            spans.append(span)
        if not spans:
            return self._emptied(header)
        if needs_horizon:
            return self._rebuilt(header, body, spans, self._new_horizon)
        if len(spans) == header.count:
            return RetainedBatch(None, header)
        return self._rebuilt(header, body, spans, None)

    def _rebuilt(
        self, header: BatchHeader, body: bytes, spans: list[RecordSpan], new_horizon: int | None
    ) -> RetainedBatch:
        attributes = header.attributes
        base_timestamp = header.base_timestamp
        if attributes & LOG_APPEND_TIME:
            max_timestamp = header.max_timestamp
        else:
            max_timestamp = max(base_timestamp + span[3] for span in spans)
        if new_horizon is None:
            contents = b"".join([body[span[0] : span[1]] for span in spans])
        else:
            # The horizon replaces the base timestamp, so every timestamp delta changes.
            contents = b"".join([_with_delta(body, span, base_timestamp + span[3] - new_horizon) for span in spans])
            base_timestamp = new_horizon
            attributes |= DELETE_HORIZON
        if header.codec:
            contents = compress(header.codec, contents)
        new_header = header._replace(
            attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=len(spans)
        )
        return RetainedBatch(assemble(new_header, contents), new_header)

    def _emptied(self, header: BatchHeader) -> RetainedBatch | None:
        if not self._must_stay(header):
            return None
        empty = header._replace(
            attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            base_timestamp=NO_TIMESTAMP,
            count=0,
        )
        return RetainedBatch(assemble(empty, b""), empty)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch's header holds information that exists nowhere else in the log."""
        next_offset = header.base_offset + header.last_offset_delta + 1
        if next_offset == self.group_end_offset or next_offset == self._high_watermark:
            return True
        if header.producer_id < 0:
            return False
        last_data_offset, epoch = self._producers.get(header.producer_id, _NO_PRODUCER)
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == epoch


def _with_delta(body: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    front = b"\x00" + varint(timestamp_delta) + varint(span[4])
    tail = body[span[2] : span[1]]
    return varint(len(front) + len(tail)) + front + tail
