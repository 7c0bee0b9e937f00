"""Records inside a batch: decoded only where the semantics demand it.

Two walks over the same bytes: `iterate_records` makes `Record`s for whoever wants keys, values and headers;
`iterate_spans` says where each record lies and what compaction and validation must know of it, so that a surviving
record can be copied without being rebuilt. Both trust nothing: a length that leaves its frame, a count that does not
match or bytes left over raise `CorruptBatch`.

The varint decoding is written out where it happens. A call a field would double the time.
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
    # A header's key is text; one that is not UTF-8 is handed out as the bytes it is.
    headers: Headers


class RecordSpan(NamedTuple):
    """A record's place in its (decompressed) batch body."""

    start: int
    end: int
    # Where the key's length begins: what follows depends on neither offset nor timestamp.
    contents: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def records_body(buffer: Buffer, position: int, header: BatchHeader, *, max_size: int) -> bytes:
    """The records of the batch at `position`, decompressed; RecordsTooLarge beyond `max_size` bytes."""
    size = header.length + LENGTH_OVERHEAD
    if size < HEADER_SIZE or position + size > len(buffer):
        raise CorruptBatch(f"a batch of {size} bytes at position {position} does not fit in {len(buffer)} bytes")
    body = memoryview(buffer)[position + HEADER_SIZE : position + size]
    codec = header.codec
    if codec == 0:
        return bytes(body)
    if not body and header.count == 0:  # what compaction leaves of a batch for its producer's sequence
        return b""
    return decompress(codec, body, max_size)


def iterate_records(buffer: Buffer, position: int, header: BatchHeader, *, max_size: int) -> Iterator[Record]:
    """Every record of the batch at `position`, in order. `max_size` bounds the decompressed size."""
    data = records_body(buffer, position, header, max_size=max_size)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    last_offset_delta = header.last_offset_delta
    append_time = header.max_timestamp if header.is_log_append_time else None
    total = len(data)
    pos = 0
    try:
        for _ in range(header.count):
            length = data[pos]
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
            end = pos + (length >> 1)
            if length & 1 or end > total:
                raise CorruptBatch(f"record of {_zigzag(length)} bytes with {total - pos} left")
            pos += 1  # the record's attributes: none are defined
            delta = data[pos]
            if delta < 0x80:
                pos += 1
            else:
                delta, pos = read_unsigned(data, pos)
            timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1)) if append_time is None else append_time
            delta = data[pos]
            if delta < 0x80:
                pos += 1
            else:
                delta, pos = read_unsigned(data, pos)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta < 0 or delta > last_offset_delta:
                raise CorruptBatch(f"record with offset delta {delta} in a batch whose last is {last_offset_delta}")
            length = data[pos]
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
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
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
            value: bytes | None
            if length & 1:
                if length != 1:
                    raise CorruptBatch(f"record value of {_zigzag(length)} bytes")
                value = None
            else:
                length >>= 1
                value = data[pos : pos + length]
                pos += length
            headers: Headers = ()
            if data[pos] == 0:
                pos += 1
            else:
                headers, pos = _read_headers(data, pos, end)
            if pos != end:
                raise CorruptBatch(f"record contents end at {pos}, its length says {end}")
            yield _new_tuple(Record, (base_offset + delta, timestamp, key, value, headers))
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"records end within a record: {error}") from None
    if pos != total:
        raise CorruptBatch(f"{total - pos} bytes behind the last of {header.count} records")


def iterate_spans(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Where the records of a decompressed body lie (see `records_body`), checked as `iterate_records` does."""
    last_offset_delta = header.last_offset_delta
    total = len(data)
    pos = 0
    try:
        for _ in range(header.count):
            start = pos
            length = data[pos]
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
            end = pos + (length >> 1)
            if length & 1 or end > total:
                raise CorruptBatch(f"record of {_zigzag(length)} bytes with {total - pos} left")
            pos += 1
            delta = data[pos]
            if delta < 0x80:
                pos += 1
            else:
                delta, pos = read_unsigned(data, pos)
            timestamp_delta = (delta >> 1) ^ -(delta & 1)
            delta = data[pos]
            if delta < 0x80:
                pos += 1
            else:
                delta, pos = read_unsigned(data, pos)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta < 0 or delta > last_offset_delta:
                raise CorruptBatch(f"record with offset delta {delta} in a batch whose last is {last_offset_delta}")
            contents = pos
            length = data[pos]
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
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
            if length < 0x80:
                pos += 1
            else:
                length, pos = read_unsigned(data, pos)
            has_value = True
            if length & 1:
                if length != 1:
                    raise CorruptBatch(f"record value of {_zigzag(length)} bytes")
                has_value = False
            else:
                pos += length >> 1
            if data[pos] == 0:
                pos += 1
            else:
                _, pos = _read_headers(data, pos, end)
            if pos != end:
                raise CorruptBatch(f"record contents end at {pos}, its length says {end}")
            yield _new_tuple(RecordSpan, (start, end, contents, timestamp_delta, delta, key, has_value))
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
