"""Decodes record batches to spans: the ranges of a buffer that hold the keys, values and headers of records.

`wanted_batches` selects the batches of fetched data that count: never control batches and, under read_committed, no
batches of aborted transactions. `decode_batches` checks and decompresses the rest and scans it with a compiled kernel.
Columns of any kind are then made from `Spans`, each from its own span arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc
from penstock.records.columnar_decoding import (
    BATCH_COLUMNS,
    FAILED_BATCH,
    FAULT,
    FAULTS,
    HEADERS,
    KEY_BYTES,
    ROWS,
    SMALLEST_RECORD,
    VALUE_BYTES,
    WALK_RESULTS,
    walk_headers,
    walk_records,
)
from penstock.records.compression import decompress
from penstock.records.control import ControlType, control_type, first_record

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

# The default limit for the decompressed size of a batch. Spans have 32 bits.
DECOMPRESSED_BYTES_MAX = 512 * 1024 * 1024
_GROUP_BYTES_MAX = 2**31 - 1

Located = tuple[int, BatchHeader]  # a batch: its position in the buffer, and its header


@dataclass(frozen=True, slots=True)
class SpanColumn:
    """Nullable bytes per row: a start and a length in the buffer, -1 for null; `size` is the sum of the lengths."""

    starts: Ints
    lengths: Ints
    size: int


@dataclass(frozen=True, slots=True)
class Spans:
    """The records of some batches, all in one buffer."""

    buffer: Bytes
    offsets: Longs
    timestamps: Longs
    log_append_time: NDArray[np.bool_]
    keys: SpanColumn
    values: SpanColumn
    header_starts: Ints
    header_counts: Ints
    headers: int  # the sum of the counts

    def __len__(self) -> int:
        return len(self.offsets)

    def header_spans(self) -> tuple[SpanColumn, SpanColumn]:
        """Keys and values of the headers of all rows, in order."""
        key_starts, key_lengths, value_starts, value_lengths = np.empty((4, self.headers), np.int32)
        walk_headers(
            self.buffer, self.header_starts, self.header_counts, key_starts, key_lengths, value_starts, value_lengths
        )
        return _column(key_starts, key_lengths), _column(value_starts, value_lengths)


def _column(starts: Ints, lengths: Ints) -> SpanColumn:
    return SpanColumn(starts, lengths, int(np.maximum(lengths, 0).sum(dtype=np.int64)))


def wanted_batches(
    buffer: memoryview,
    batches: Iterable[Located],
    aborted: Iterable[tuple[int, int]],
    first_offset: int,
    end_offset: int,
) -> Iterator[Located]:
    """The batches with records in [first_offset, end_offset) that are neither control batches nor aborted.

    `aborted` comes from a Fetch response under read_committed: producer ids, and the first offsets of their
    transactions. A producer's batches are dropped from there to its marker; a producer may have aborted more than once.
    """
    begins = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    aborting: set[int] = set()
    for position, header in batches:
        while begins and begins[-1][1] <= header.last_offset:
            aborting.add(begins.pop()[0])
        if header.is_control:
            if header.producer_id in aborting:
                marker = first_record(buffer, position, header)
                if marker is not None and control_type(marker.key) == ControlType.ABORT:
                    aborting.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        if header.count and header.last_offset >= first_offset and header.base_offset < end_offset:
            yield position, header


def decode_batches(
    buffer: memoryview,
    batches: Iterable[Located],
    first_offset: int,
    end_offset: int,
    *,
    group_bytes: int,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Spans]:
    """The records with offsets in [first_offset, end_offset), in groups of about `group_bytes`.

    CorruptBatch, with the offset, if a batch has a wrong CRC, does not decompress or contains malformed records.
    """
    group: list[tuple[BatchHeader, int, memoryview | bytes]] = []
    size = 0
    for position, header in batches:
        check_crc(buffer, position, header)
        body: memoryview | bytes = buffer[position + HEADER_SIZE : position + header.size]
        if header.codec:
            try:
                body = decompress(header.codec, body, decompressed_bytes_max)
            except CorruptBatch as error:
                raise CorruptBatch(f"the batch at offset {header.base_offset}: {error.message}") from error
        if group and size + len(body) > group_bytes:
            yield from _decode_group(buffer, group, first_offset, end_offset)
            group, size = [], 0
        group.append((header, position + HEADER_SIZE, body))
        size += len(body)
    if group:
        yield from _decode_group(buffer, group, first_offset, end_offset)


def _decode_group(
    buffer: memoryview, group: Sequence[tuple[BatchHeader, int, memoryview | bytes]], first_offset: int, end_offset: int
) -> Iterator[Spans]:
    if any(header.codec for header, _, _ in group):
        whole: Any = b"".join([body for _, _, body in group])
        starts = np.cumsum([0, *(len(body) for _, _, body in group)])[:-1].tolist()
    else:
        whole = buffer
        starts = [start for _, start, _ in group]
    if len(whole) > _GROUP_BYTES_MAX:
        raise CorruptBatch(f"{len(whole)} bytes of records at offset {group[0][0].base_offset} are too many at once")
    table = np.empty((len(group), BATCH_COLUMNS), np.int64)
    capacity = 0
    for row, (header, _, body) in enumerate(group):
        if not 0 <= header.count <= len(body) // SMALLEST_RECORD:
            raise CorruptBatch(f"the batch at offset {header.base_offset}: {header.count} records in {len(body)} bytes")
        capacity += header.count
        table[row] = (
            starts[row],
            starts[row] + len(body),
            header.count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.is_log_append_time,
        )
    spans = _walk(np.frombuffer(whole, np.uint8), table, group, capacity, first_offset, end_offset)
    if len(spans):
        yield spans


def _walk(
    buffer: Bytes,
    table: Longs,
    group: Sequence[tuple[BatchHeader, int, memoryview | bytes]],
    capacity: int,
    first_offset: int,
    end_offset: int,
) -> Spans:
    offsets, timestamps = np.empty((2, capacity), np.int64)
    ints = np.empty((7, capacity), np.int32)
    results = np.zeros(WALK_RESULTS, np.int64)
    inside = group[0][0].base_offset >= first_offset and group[-1][0].last_offset < end_offset
    walk_records(buffer, table, first_offset, end_offset, inside, offsets, timestamps, *ints, results)
    if results[FAULT]:
        header = group[results[FAILED_BATCH]][0]
        raise CorruptBatch(f"the batch at offset {header.base_offset}: {FAULTS[int(results[FAULT])]}")
    rows = int(results[ROWS])
    batch_of_row, key_starts, key_lengths, value_starts, value_lengths, header_starts, header_counts = ints[:, :rows]
    append_times = np.array([header.is_log_append_time for header, _, _ in group])
    return Spans(
        buffer=buffer,
        offsets=offsets[:rows],
        timestamps=timestamps[:rows],
        log_append_time=append_times[batch_of_row] if append_times.any() else np.zeros(rows, np.bool_),
        keys=SpanColumn(key_starts, key_lengths, int(results[KEY_BYTES])),
        values=SpanColumn(value_starts, value_lengths, int(results[VALUE_BYTES])),
        header_starts=header_starts,
        header_counts=header_counts,
        headers=int(results[HEADERS]),
    )
