"""Builds record batches: for clients, for the coordinators' own records, and for compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    pack_header_into,
    seal,
)
from penstock.records.compression import compress
from penstock.records.varint import varint

HeaderPairs = Sequence[tuple[str | bytes, Buffer | None]]
# Timestamp, key, value, headers.
NewRecord = tuple[int, Buffer | None, Buffer | None, HeaderPairs]

_NULL = varint(-1)
_NO_HEADERS = varint(0)
_NO_ATTRIBUTES = b"\x00"


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    delete_horizon: int | None = None,
) -> bytearray:
    """Build one batch with its CRC.

    Offsets count up from `base_offset` unless `offset_deltas` is given; `last_offset_delta` keeps the offset range of a
    batch whose last records were removed. `log_append_time` and `delete_horizon` are in milliseconds; each sets its
    attribute bit.
    """
    new_records = list(records)
    timestamps = [record[0] for record in new_records]
    first_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon is None else delete_horizon
    deltas: Sequence[int] = range(len(new_records)) if offset_deltas is None else offset_deltas
    body = _encode(new_records, deltas, base_timestamp)
    attributes = codec & CODEC_MASK
    if codec:
        body = compress(codec, body, level)
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if delete_horizon is not None:
        attributes |= DELETE_HORIZON
    max_timestamp = max(timestamps, default=NO_TIMESTAMP)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if new_records else 0
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(new_records),
    )
    return assemble(header, body)


def _encode(records: Sequence[NewRecord], deltas: Sequence[int], base_timestamp: int) -> Buffer:
    parts: list[Buffer] = []
    for record, delta in zip(records, deltas, strict=True):
        append_record(parts, record[0] - base_timestamp, delta, record)
    return b"".join(parts)


def assemble(header: BatchHeader, body: Buffer) -> bytearray:
    """Build a batch from `header` (length and CRC are computed here) and an encoded, already compressed, `body`."""
    batch = bytearray(HEADER_SIZE + len(body))
    pack_header_into(batch, 0, header._replace(length=len(batch) - LENGTH_OVERHEAD))
    batch[HEADER_SIZE:] = body
    seal(batch, 0)
    return batch


def append_record(parts: list[Buffer], timestamp_delta: int, offset_delta: int, record: NewRecord) -> None:
    """Append one record's encoding to `parts`, without copying key or value."""
    _, key, value, headers = record
    front = _NO_ATTRIBUTES + varint(timestamp_delta) + varint(offset_delta)
    front += _NULL if key is None else varint(len(key))
    middle = _NULL if value is None else varint(len(value))
    tail = _encode_headers(headers) if headers else _NO_HEADERS
    size = len(front) + len(middle) + len(tail)
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    parts.append(varint(size))
    parts.append(front)
    if key is not None:
        parts.append(key)
    parts.append(middle)
    if value is not None:
        parts.append(value)
    parts.append(tail)


def _encode_headers(headers: HeaderPairs) -> bytes:
    parts: list[Buffer] = [varint(len(headers))]
    for key, value in headers:
        raw = key.encode() if isinstance(key, str) else key
        parts.append(varint(len(raw)))
        parts.append(raw)
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(varint(len(value)))
            parts.append(value)
    return b"".join(parts)
