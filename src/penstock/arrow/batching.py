"""Encodes the rows of a table that go to one partition as record batches, when they are needed.

One batch is encoded ahead of the one in flight, by a kernel that reads the columns in place. A batch that the broker
refuses as too large is encoded again with half the limit: no later batch of the partition is in flight, so only the
start row must go back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrow.rows import Rows
from penstock.client.wire.transaction import ProducerIdentity
from penstock.model.ids import TopicPartition
from penstock.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    pack_header_into,
    seal,
)
from penstock.records.builder import assemble
from penstock.records.columnar import Longs
from penstock.records.columnar_encoding import (
    ENCODE_RESULTS,
    ENCODED_BYTES,
    ENCODED_ROWS,
    MAX_TIMESTAMP,
    NEXT_RECORD_BYTES,
    encode_rows,
)
from penstock.records.compression import compress


@dataclass(slots=True)
class EncodedBatch:
    partition: TopicPartition
    first: int  # the position of its first row in the stream's order
    rows: int
    data: memoryview | bytearray
    uncompressed_size: int
    since: float | None = None  # when it was first sent
    broker_id: int | None = None  # the broker it was last sent to


class PartitionStream:
    def __init__(
        self,
        partition: TopicPartition,
        rows: Rows,
        order: Longs,
        *,
        batch_bytes: int,
        codec: int,
        level: int | None,
        identity: ProducerIdentity | None,
        transactional: bool,
    ) -> None:
        self.partition = partition
        self.prepared: EncodedBatch | None = None
        self.under_way: EncodedBatch | None = None
        self.confirmed = 0
        self._rows = rows
        self._order = order
        self._next = 0
        self._limit = batch_bytes
        self._codec = codec
        self._level = level
        self._identity = identity
        self._transactional = transactional
        self._results = np.zeros(ENCODE_RESULTS, np.int64)

    @property
    def finished(self) -> bool:
        return self.confirmed == len(self._order)

    @property
    def can_prepare(self) -> bool:
        return self.prepared is None and self._next < len(self._order)

    def row_of(self, batch: EncodedBatch, index: int = 0) -> int:
        """The row of the piece that became record `index` of a batch."""
        return int(self._order[batch.first + index])

    def prepare(self) -> None:
        """Encode the next batch."""
        body, size, rows, max_timestamp = self._encode()
        base_sequence = NO_SEQUENCE
        if self._identity is not None:
            base_sequence = self._identity.sequence(self.partition)
            self._identity.advance(self.partition, rows)
        header = BatchHeader(
            base_offset=0,
            length=size - LENGTH_OVERHEAD,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=self._codec | (TRANSACTIONAL if self._transactional else 0),
            last_offset_delta=rows - 1,
            base_timestamp=int(self._rows.timestamps[self._order[self._next]]),
            max_timestamp=max_timestamp,
            producer_id=self._identity.producer_id if self._identity else NO_PRODUCER_ID,
            producer_epoch=self._identity.producer_epoch if self._identity else NO_PRODUCER_EPOCH,
            base_sequence=base_sequence,
            count=rows,
        )
        data: memoryview | bytearray
        if self._codec:
            data = assemble(header, compress(self._codec, body[HEADER_SIZE:size], self._level))
        else:
            data = body[:size]
            pack_header_into(data, 0, header)
            seal(data, 0)
        self.prepared = EncodedBatch(self.partition, self._next, rows, data, size)
        self._next += rows

    def confirm(self) -> EncodedBatch:
        batch = self._taken()
        self.confirmed += batch.rows
        return batch

    def retry(self) -> None:
        """The batch in flight is sent again first, with the same sequence."""
        batch = self._taken()
        if self.prepared is not None:
            self._forget(self.prepared)
        self.prepared = batch
        self._next = batch.first + batch.rows

    def shrink(self) -> None:
        """The batch in flight is too large: make smaller batches, from its first row on."""
        batch = self._taken()
        if self.prepared is not None:
            self._forget(self.prepared)
        self._forget(batch)
        self.prepared = None
        self._next = batch.first
        self._limit = max(batch.uncompressed_size // 2, 1)

    def _taken(self) -> EncodedBatch:
        batch = self.under_way
        assert batch is not None
        self.under_way = None
        return batch

    def _forget(self, batch: EncodedBatch) -> None:
        if self._identity is not None:
            self._identity.advance(self.partition, -batch.rows)

    def _encode(self) -> tuple[memoryview, int, int, int]:
        """A buffer with records after space for a header, where they end, how many, and their latest timestamp."""
        limit = self._limit
        while True:
            out = np.empty(max(limit, HEADER_SIZE), np.uint8)
            encode_rows(
                self._order,
                self._next,
                *self._rows.keys,
                *self._rows.values,
                self._rows.headers.firsts,
                self._rows.headers.counts,
                *self._rows.headers.keys,
                *self._rows.headers.values,
                self._rows.timestamps,
                HEADER_SIZE,
                out,
                limit,
                self._results,
            )
            rows = int(self._results[ENCODED_ROWS])
            if rows:
                return out.data, int(self._results[ENCODED_BYTES]), rows, int(self._results[MAX_TIMESTAMP])
            limit = HEADER_SIZE + int(
                self._results[NEXT_RECORD_BYTES]
            )  # one record larger than the limit: a batch of its own
