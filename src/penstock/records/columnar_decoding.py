"""Compiled decoding of records to columns: finds the parts of every record, then copies each part into its column.

`walk_records` scans the bodies of many batches once and stores, for each wanted record, its offset, its timestamp and
the spans of key, value and headers. `gather` then copies the spans of one column, one after the other, in Arrow's
layout; a column that was not requested is never copied.

The bytes are untrusted. Every length is compared with the rest of its record before it is used, and every record with
the rest of its body: compiled code reads outside an array without an error, so nothing here may rely on one. Input that
`record.iterate_spans` refuses is refused here too, with the same meaning.

A span is a start and a length in the buffer, both 32 bits; a length of -1 is null.
"""

from __future__ import annotations

import numba
import numpy as np

from penstock.records.columnar_types import BOOL, BYTES, I32, I64, I64_TABLE, OFFSET, READ_BYTES, kernel, pointer_to

# Columns of the table of batches that `walk_records` takes.
BODY_START, BODY_END, COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, APPEND_TIME, IS_APPEND_TIME = range(8)
BATCH_COLUMNS = 8

# The counters of `walk_records`, and the position where it stopped.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, FAILED_BATCH, FAULT = range(6)
WALK_RESULTS = 6

# Kinds of damage.
FINE, ENDS_EARLY, LONG_VARINT, BAD_LENGTH, BAD_OFFSET_DELTA, BAD_HEADERS, LEFT_OVER = range(7)
FAULTS = {
    ENDS_EARLY: "records end within a record",
    LONG_VARINT: "a varint of more than 64 bits",
    BAD_LENGTH: "a length that leaves its record",
    BAD_OFFSET_DELTA: "an offset delta outside its batch",
    BAD_HEADERS: "headers that leave their record",
    LEFT_OVER: "bytes behind the last record or its contents",
}

# Length, attributes, timestamp, offset, lengths of key and value, number of headers: a byte each.
SMALLEST_RECORD = 7

_MASK63 = 0x7FFFFFFFFFFFFFFF


@numba.njit(nogil=True)
def _long_varint(source, position, end):  # type: ignore[no-untyped-def]
    """The raw varint at `position` and the position after it; -fault instead of the position if there is none."""
    value = np.int64(0)
    shift = 0
    while position < end:
        byte = np.int64(source[position])
        position += 1
        if shift == 63 and byte > 1:
            return value, -LONG_VARINT
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, -ENDS_EARLY


@numba.njit(nogil=True)
def _varint(source, position, end):  # type: ignore[no-untyped-def]
    """Read a varint. Nearly all varints of a record have one byte or two."""
    if position < end:
        first = np.int64(source[position])
        if first < 0x80:
            return first, position + 1
        if position + 1 < end:
            second = np.int64(source[position + 1])
            if second < 0x80:
                return (first & 0x7F) | (second << 7), position + 2
    return _long_varint(source, position, end)


@numba.njit(nogil=True)
def _span(source, position, end):  # type: ignore[no-untyped-def]
    """Start and length of nullable bytes, and the position after them, which is -fault if they leave the record."""
    raw, position = _varint(source, position, end)
    if position < 0:
        return np.int64(0), np.int64(-1), position
    if raw & 1:
        if raw != 1:
            return np.int64(0), np.int64(-1), np.int64(-BAD_LENGTH)
        return position, np.int64(-1), position
    length = (raw >> 1) & _MASK63
    if length > end - position:
        return np.int64(0), np.int64(-1), np.int64(-BAD_LENGTH)
    return position, length, position + length


@numba.njit(nogil=True)
def _skip_headers(source, position, end, count):  # type: ignore[no-untyped-def]
    """The position after `count` headers, checked; -fault if they are malformed."""
    for _ in range(count):
        _, length, position = _span(source, position, end)
        if position < 0 or length < 0:  # a header's key is never null
            return np.int64(-BAD_HEADERS)
        _, _, position = _span(source, position, end)
        if position < 0:
            return np.int64(-BAD_HEADERS)
    return position


@kernel(
    numba.void(READ_BYTES, I64_TABLE, OFFSET, OFFSET, BOOL, I64, I64, I32, I32, I32, I32, I32, I32, I32, I64),
)
def walk_records(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0917
    buffer,
    batches,
    first_offset,
    end_offset,
    all_rows,
    offsets,
    timestamps,
    batch_of_row,
    key_starts,
    key_lengths,
    value_starts,
    value_lengths,
    header_starts,
    header_counts,
    results,
):
    """Spans of the records with `first_offset` <= offset < `end_offset`; counts, or the first fault, in `results`.

    The arrays have space for as many rows as the batches declare records. With `all_rows` no offset is compared.
    """
    source = pointer_to(buffer)
    row = 0
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    headers = np.int64(0)
    fault = np.int64(0)
    batch = 0
    for batch in range(batches.shape[0]):
        position = batches[batch, BODY_START]
        body_end = batches[batch, BODY_END]
        base_offset = batches[batch, BASE_OFFSET]
        last_offset_delta = batches[batch, LAST_OFFSET_DELTA]
        base_timestamp = batches[batch, BASE_TIMESTAMP]
        append_time = batches[batch, APPEND_TIME]
        is_append_time = batches[batch, IS_APPEND_TIME] != 0
        for _ in range(batches[batch, COUNT]):
            raw, position = _varint(source, position, body_end)
            if position < 0:
                fault = -position
                break
            length = (raw >> 1) & _MASK63
            if raw & 1 or length > body_end - position:
                fault = np.int64(BAD_LENGTH)
                break
            end = position + length
            if end == position:
                fault = np.int64(ENDS_EARLY)
                break
            position += 1  # the record's attributes: none are defined
            timestamp_delta, position = _varint(source, position, end)
            if position < 0:
                fault = -position
                break
            raw, position = _varint(source, position, end)
            if position < 0:
                fault = -position
                break
            offset_delta = (raw >> 1) & _MASK63
            if raw & 1 or offset_delta > last_offset_delta:
                fault = np.int64(BAD_OFFSET_DELTA)
                break
            key_start, key_length, position = _span(source, position, end)
            if position < 0:
                fault = -position
                break
            value_start, value_length, position = _span(source, position, end)
            if position < 0:
                fault = -position
                break
            raw, position = _varint(source, position, end)
            if position < 0:
                fault = -position
                break
            header_start = position
            header_count = np.int64(0)
            if raw != 0:
                # The zigzagged count is twice the count, and a header has two bytes or more.
                if raw & 1 or raw < 0 or raw > end - position:
                    fault = np.int64(BAD_HEADERS)
                    break
                header_count = raw >> 1
                position = _skip_headers(source, position, end, header_count)
                if position < 0:
                    fault = -position
                    break
            if position != end:
                fault = np.int64(LEFT_OVER)
                break
            offset = base_offset + offset_delta
            if not all_rows and (offset < first_offset or offset >= end_offset):
                continue
            offsets[row] = offset
            if is_append_time:
                timestamps[row] = append_time
            else:
                timestamps[row] = base_timestamp + (((timestamp_delta >> 1) & _MASK63) ^ -(timestamp_delta & 1))
            batch_of_row[row] = batch
            key_starts[row] = key_start
            key_lengths[row] = key_length
            value_starts[row] = value_start
            value_lengths[row] = value_length
            header_starts[row] = header_start
            header_counts[row] = header_count
            key_bytes += max(key_length, np.int64(0))
            value_bytes += max(value_length, np.int64(0))
            headers += header_count
            row += 1
        if fault == 0 and position != body_end:
            fault = np.int64(LEFT_OVER)
        if fault != 0:
            break
    results[ROWS] = row
    results[KEY_BYTES] = key_bytes
    results[VALUE_BYTES] = value_bytes
    results[HEADERS] = headers
    results[FAILED_BATCH] = batch
    results[FAULT] = fault


@kernel(numba.void(READ_BYTES, I32, I32, I32, I32, I32, I32))
def walk_headers(buffer, starts, counts, key_starts, key_lengths, value_starts, value_lengths):  # type: ignore[no-untyped-def]
    """Spans of the headers of records that `walk_records` has checked, in order."""
    end = np.int64(buffer.shape[0])
    source = pointer_to(buffer)
    header = 0
    for row in range(starts.shape[0]):
        position = np.int64(starts[row])
        for _ in range(counts[row]):
            start, length, position = _span(source, position, end)
            key_starts[header] = start
            key_lengths[header] = length
            start, length, position = _span(source, position, end)
            value_starts[header] = start
            value_lengths[header] = length
            header += 1


@kernel(numba.void(READ_BYTES, I32, I32, I32, BYTES))
def gather(buffer, starts, lengths, offsets, data):  # type: ignore[no-untyped-def]
    """Copy the spans, one after the other, into `data`, and the start of each into `offsets`, which has one more."""
    source = pointer_to(buffer)
    target = pointer_to(data)
    position = np.int64(0)
    for row in range(starts.shape[0]):
        offsets[row] = position
        start = np.int64(starts[row])
        for index in range(np.int64(lengths[row])):
            target[position + index] = source[start + index]
        position += max(np.int64(lengths[row]), np.int64(0))
    offsets[starts.shape[0]] = position


@kernel(numba.int64(READ_BYTES, I32, I32, numba.int64, BYTES))
def gather_fixed(buffer, starts, lengths, width, data):  # type: ignore[no-untyped-def]
    """Copy big-endian numbers of `width` bytes as little-endian ones; nulls become zero. Returns the first row with
    another length, or -1."""
    source = pointer_to(buffer)
    target = pointer_to(data)
    for row in range(starts.shape[0]):
        length = np.int64(lengths[row])
        to = row * width
        if length == width:
            start = np.int64(starts[row])
            for index in range(width):
                target[to + width - 1 - index] = source[start + index]
        elif length < 0:
            for index in range(width):
                target[to + index] = 0
        else:
            return row
    return -1
