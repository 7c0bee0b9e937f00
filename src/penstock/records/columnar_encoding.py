"""Compiled encoding of columns to records: assigns rows to partitions and writes batches directly from the columns.

A column has its bytes and, for each row, a start (64 bits) and a length (32 bits; -1 is null). Numbers are such a
column as well, with equal lengths. Headers have one more level: each row has a first header and a count, and the keys
and values of all headers are columns.

All input was made by Penstock from Arrow arrays, so spans are trusted; output is measured before it is written.
"""

from __future__ import annotations

import numba
import numpy as np

from penstock.records.columnar_types import BYTES, I32, I64, READ_BYTES, kernel, pointer_to

# The results of `encode_rows`.
ENCODED_ROWS, ENCODED_BYTES, MAX_TIMESTAMP, NEXT_RECORD_BYTES = range(4)
ENCODE_RESULTS = 4

_MASK32 = 0xFFFFFFFF
_MURMUR_M = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C


@numba.njit(nogil=True)
def _varint_size(value):  # type: ignore[no-untyped-def]
    raw = np.uint64((value << 1) ^ (value >> 63))
    size = np.int64(1)
    while raw >= np.uint64(0x80):
        raw >>= np.uint64(7)
        size += 1
    return size


@numba.njit(nogil=True)
def _put_varint(target, position, value):  # type: ignore[no-untyped-def]
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw >= np.uint64(0x80):
        target[position] = np.uint8(raw & np.uint64(0x7F)) | np.uint8(0x80)
        position += 1
        raw >>= np.uint64(7)
    target[position] = np.uint8(raw)
    return position + 1


@numba.njit(nogil=True)
def _span_size(length):  # type: ignore[no-untyped-def]
    return _varint_size(length) + max(length, np.int64(0))


@numba.njit(nogil=True)
def _put_span(target, position, source, start, length):  # type: ignore[no-untyped-def]
    position = _put_varint(target, position, length)
    for index in range(length):
        target[position + index] = source[start + index]
    return position + max(length, np.int64(0))


@kernel(
    numba.void(
        I64,
        numba.int64,
        READ_BYTES,
        I64,
        I32,
        READ_BYTES,
        I64,
        I32,
        I64,
        I32,
        READ_BYTES,
        I64,
        I32,
        READ_BYTES,
        I64,
        I32,
        I64,
        numba.int64,
        BYTES,
        numba.int64,
        I64,
    )
)
def encode_rows(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    order,
    first,
    key_data,
    key_starts,
    key_lengths,
    value_data,
    value_starts,
    value_lengths,
    header_firsts,
    header_counts,
    header_key_data,
    header_key_starts,
    header_key_lengths,
    header_value_data,
    header_value_starts,
    header_value_lengths,
    timestamps,
    position,
    out,
    limit,
    results,
):
    """Write records of the rows `order[first:]` to `out` from `position` on, as long as they end before `limit`.

    The first record's timestamp is the batch's base. `results` receives the number of rows, their end, their largest
    timestamp, and the size of the first record that did not fit.
    """
    keys, values = pointer_to(key_data), pointer_to(value_data)
    header_keys, header_values = pointer_to(header_key_data), pointer_to(header_value_data)
    target = pointer_to(out)
    base_timestamp = timestamps[order[first]]
    max_timestamp = base_timestamp
    next_size = np.int64(0)
    rows = np.int64(0)
    for index in range(first, order.shape[0]):
        row = order[index]
        timestamp = timestamps[row]
        key_length = np.int64(key_lengths[row])
        value_length = np.int64(value_lengths[row])
        headers = np.int64(header_counts[row])
        first_header = header_firsts[row]
        contents = (
            1
            + _varint_size(timestamp - base_timestamp)
            + _varint_size(rows)
            + _span_size(key_length)
            + _span_size(value_length)
            + _varint_size(headers)
        )
        for header in range(first_header, first_header + headers):
            contents += _span_size(np.int64(header_key_lengths[header]))
            contents += _span_size(np.int64(header_value_lengths[header]))
        size = _varint_size(contents) + contents
        if position + size > limit:
            next_size = size
            break
        position = _put_varint(target, position, contents)
        target[position] = np.uint8(0)
        position = _put_varint(target, position + 1, timestamp - base_timestamp)
        position = _put_varint(target, position, rows)
        position = _put_span(target, position, keys, key_starts[row], key_length)
        position = _put_span(target, position, values, value_starts[row], value_length)
        position = _put_varint(target, position, headers)
        for header in range(first_header, first_header + headers):
            length = np.int64(header_key_lengths[header])
            position = _put_span(target, position, header_keys, header_key_starts[header], length)
            length = np.int64(header_value_lengths[header])
            position = _put_span(target, position, header_values, header_value_starts[header], length)
        max_timestamp = max(max_timestamp, timestamp)
        rows += 1
    results[ENCODED_ROWS] = rows
    results[ENCODED_BYTES] = position
    results[MAX_TIMESTAMP] = max_timestamp
    results[NEXT_RECORD_BYTES] = next_size


@numba.njit(nogil=True)
def _murmur2(source, start, length):  # type: ignore[no-untyped-def]
    """Kafka's hash of a key (murmur2), in 64-bit arithmetic truncated to 32 bits."""
    hashed = (_MURMUR_SEED ^ length) & _MASK32
    position = start
    end = start + (length & ~3)
    while position < end:
        word = (
            np.int64(source[position])
            | np.int64(source[position + 1]) << 8
            | np.int64(source[position + 2]) << 16
            | np.int64(source[position + 3]) << 24
        )
        word = (word * _MURMUR_M) & _MASK32
        word ^= word >> 24
        word = (word * _MURMUR_M) & _MASK32
        hashed = ((hashed * _MURMUR_M) & _MASK32) ^ word
        position += 4
    rest = length & 3
    if rest:
        for index in range(rest):
            hashed ^= np.int64(source[end + index]) << (8 * index)
        hashed = (hashed * _MURMUR_M) & _MASK32
    hashed ^= hashed >> 13
    hashed = (hashed * _MURMUR_M) & _MASK32
    return hashed ^ (hashed >> 15)


@kernel(numba.int64(READ_BYTES, I64, I32, numba.int64, numba.int64, I32))
def partition_by_key(data, starts, lengths, partitions, turn, chosen):  # type: ignore[no-untyped-def]
    """Choose for each row the partition that Kafka's producer gives its key; rows without a key rotate from `turn` on.

    Returns the next turn.
    """
    source = pointer_to(data)
    for row in range(starts.shape[0]):
        length = np.int64(lengths[row])
        if length < 0:
            chosen[row] = turn
            turn += 1
            if turn == partitions:
                turn = 0
        else:
            chosen[row] = (_murmur2(source, starts[row], length) & 0x7FFFFFFF) % partitions
    return turn


@kernel(numba.void(I32, I64, I64))
def order_by_partition(chosen, bounds, order):  # type: ignore[no-untyped-def]
    """Sort rows by partition, stable within each: the rows of p are order[bounds[p] : bounds[p + 1]]."""
    bounds[:] = 0
    for row in range(chosen.shape[0]):
        bounds[chosen[row] + 1] += 1
    for partition in range(1, bounds.shape[0]):
        bounds[partition] += bounds[partition - 1]
    ends = bounds.copy()
    for row in range(chosen.shape[0]):
        place = ends[chosen[row]]
        order[place] = row
        ends[chosen[row]] = place + 1
