"""Decodes the records inside a batch; used only where their contents matter.

`iterate_spans` scans a batch and returns the position of each record, so that compaction can copy a surviving record
without rebuilding it; `iterate_records` makes `Record`s from that. The scan trusts nothing: a length that exceeds its
frame, a wrong count or left-over bytes raise `CorruptBatch`.

The varint decoding is inlined. One function call per field would double the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, Buffer, CorruptBatch
from penstock.records.compression import decompress
from penstock.records.varint import read_unsigned

Headers = tuple[tuple[str | bytes, bytes | None], ...]

_new_tuple = tuple.__new__


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    # A header's key is text; one that is not UTF-8 is returned as bytes.
    headers: Headers


# The position of a record in its decompressed body: start, end, contents, timestamp delta, offset delta, key, value
# start, value end, headers. `contents` is where the key's length begins: the bytes from there on depend on neither
# offset nor timestamp. A null value starts at -1. (A plain tuple, because millions of them are created.)
RecordSpan = tuple[int, int, int, int, int, bytes | None, int, int, Headers]


def records_body(buffer: Buffer, position: int, header: BatchHeader, *, max_size: int) -> bytes:
    """The decompressed records of the batch at `position`; RecordsTooLarge beyond `max_size` bytes."""
    size = header.length + LENGTH_OVERHEAD
    if size < HEADER_SIZE or position + size > len(buffer):
        raise CorruptBatch(f"a batch of {size} bytes at position {position} does not fit in {len(buffer)} bytes")
    body = memoryview(buffer)[position + HEADER_SIZE : position + size]
    codec = header.codec
    if codec == 0:
        return bytes(body)
    if not body and header.count == 0:  # emptied by compaction, kept for its producer's sequence
        return b""
    return decompress(codec, body, max_size)


def iterate_records(buffer: Buffer, position: int, header: BatchHeader, *, max_size: int) -> Iterator[Record]:
    """Every record of the batch at `position`, in order. `max_size` bounds the decompressed size."""
    data = records_body(buffer, position, header, max_size=max_size)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _, _, _, timestamp_delta, offset_delta, key, value_start, value_end, headers in iterate_spans(data, header):
        yield _new_tuple(
            Record,
            (
                base_offset + offset_delta,
                base_timestamp + timestamp_delta if append_time is None else append_time,
                key,
                None if value_start < 0 else data[value_start:value_end],
                headers,
            ),
        )


def iterate_spans(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:  # noqa: C901
    """The positions of the records of a decompressed body (see `records_body`), each checked before it is yielded."""
    last_offset_delta = header.last_offset_delta
    total = len(data)
    pos = 0
    try:
        for _ in range(header.count):
            start = pos
            length = data[pos]
            pos += 1
            if length >= 0x80:
                second = data[pos]
                if second < 0x80:
                    length += (second << 7) - 0x80
                    pos += 1
                else:
                    length, pos = read_unsigned(data, pos - 1)
            end = pos + (length >> 1)
            if length & 1 or end > total:
                raise CorruptBatch(f"record of {_zigzag(length)} bytes with {total - pos} left")
            pos += 1  # the record's attributes: none are defined
            timestamp_delta = data[pos]
            pos += 1
            if timestamp_delta >= 0x80:
                second = data[pos]
                if second < 0x80:
                    timestamp_delta += (second << 7) - 0x80
                    pos += 1
                else:
                    timestamp_delta, pos = read_unsigned(data, pos - 1)
            offset_delta = data[pos]
            pos += 1
            if offset_delta >= 0x80:
                second = data[pos]
                if second < 0x80:
                    offset_delta += (second << 7) - 0x80
                    pos += 1
                else:
                    offset_delta, pos = read_unsigned(data, pos - 1)
            offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
            if offset_delta < 0 or offset_delta > last_offset_delta:
                raise CorruptBatch(f"offset delta {offset_delta} in a batch whose last is {last_offset_delta}")
            contents = pos
            length = data[pos]
            pos += 1
            if length >= 0x80:
                second = data[pos]
                if second < 0x80:
                    length += (second << 7) - 0x80
                    pos += 1
                else:
                    length, pos = read_unsigned(data, pos - 1)
            key: bytes | None
            if length & 1:
                if length != 1:
                    raise CorruptBatch(f"record key of {_zigzag(length)} bytes")
                key = None
            else:
                length >>= 1
                key = data[pos : pos + length]
                pos += length
            length = data[pos]
            pos += 1
            if length >= 0x80:
                second = data[pos]
                if second < 0x80:
                    length += (second << 7) - 0x80
                    pos += 1
                else:
                    length, pos = read_unsigned(data, pos - 1)
            if length & 1:
                if length != 1:
                    raise CorruptBatch(f"record value of {_zigzag(length)} bytes")
                value_start = -1
                value_end = -1
            else:
                value_start = pos
                pos += length >> 1
                value_end = pos
            headers: Headers = ()
            if data[pos] == 0:
                pos += 1
            else:
                headers, pos = _read_headers(data, pos, end)
            if pos != end:
                raise CorruptBatch(f"record contents end at {pos}, its length says {end}")
            yield (
                start,
                end,
                contents,
                (timestamp_delta >> 1) ^ -(timestamp_delta & 1),
                offset_delta,
                key,
                value_start,
                value_end,
                headers,
            )
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"records end within a record: {error}") from None
    if pos != total:
        raise CorruptBatch(f"{total - pos} bytes behind the last of {header.count} records")


def _read_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count, pos = read_unsigned(data, pos)
    if count & 1 or count > end - pos:  # the zigzagged count is twice the count, and a header has two bytes or more
        raise CorruptBatch(f"{_zigzag(count)} record headers with {end - pos} bytes left")
    headers: list[tuple[str | bytes, bytes | None]] = []
    for _ in range(count >> 1):
        length, pos = read_unsigned(data, pos)
        if length & 1 or length >> 1 > end - pos:
            raise CorruptBatch(f"record header key of {_zigzag(length)} bytes")
        raw = data[pos : pos + (length >> 1)]
        pos += length >> 1
        key: str | bytes
        try:
            key = raw.decode()
        except UnicodeDecodeError:
            key = raw
        length, pos = read_unsigned(data, pos)
        value: bytes | None
        if length & 1:
            if length != 1:
                raise CorruptBatch(f"record header value of {_zigzag(length)} bytes")
            value = None
        else:
            if length >> 1 > end - pos:
                raise CorruptBatch(f"record header value of {length >> 1} bytes with {end - pos} left")
            value = data[pos : pos + (length >> 1)]
            pos += length >> 1
        headers.append((key, value))
    return tuple(headers), pos


def _zigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)
