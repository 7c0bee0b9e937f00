"""Reads offsets and timestamps of a batch's records without decompressing all of it into memory.

A batch of a few kilobytes may decompress to a gigabyte. A search for a timestamp needs the first bytes of each record,
mostly of the first records. So it decompresses the beginning of the records, four times as much if that was not enough,
and never more than a limit. Nothing is copied out of that buffer.

It runs on a worker thread, and yields to other threads after a number of records: otherwise a computing thread holds
the GIL for milliseconds each time the event loop needs it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from penstock.records.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from penstock.records.compression import RecordsTooLarge, decompress_start
from penstock.records.varint import read_unsigned

FIRST_BYTES = 256 * 1024
GROWTH = 4
RECORDS_BETWEEN_PAUSES = 1000


class Stamp(NamedTuple):
    offset: int
    timestamp: int


def iterate_stamps(batch: Buffer, header: BatchHeader, *, max_size: int) -> Iterator[Stamp]:
    """The stamp of every record, in order; RecordsTooLarge if a record is beyond the first `max_size` bytes."""
    records = memoryview(batch)[HEADER_SIZE : header.size]
    append_time = header.max_timestamp if header.is_log_append_time else None
    size = min(FIRST_BYTES, max_size)
    at = read = 0
    while read < header.count:
        body, is_whole = decompress_start(header.codec, records, size, max_size)
        while read < header.count and at < len(body):
            try:
                following, timestamp_delta, offset_delta = _read_start(body, at)
            except (IndexError, ValueError) as error:
                if is_whole:
                    raise CorruptBatch(f"records end within a record: {error}") from None
                break
            if not 0 <= offset_delta <= header.last_offset_delta or following <= at:
                raise CorruptBatch(f"a record of {following - at} bytes with offset delta {offset_delta}")
            timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
            yield Stamp(header.base_offset + offset_delta, timestamp)
            at, read = following, read + 1
            if not read % RECORDS_BETWEEN_PAUSES:
                time.sleep(0)
        if is_whole:
            if read < header.count or at != len(body):
                raise CorruptBatch(f"{read} of {header.count} records in {len(body)} bytes, the last ends at {at}")
        elif read < header.count and size >= max_size:
            raise RecordsTooLarge(header.codec, max_size)
        del body  # freed before a larger one is allocated
        size = min(max(size * GROWTH, at + FIRST_BYTES), max_size)


def _read_start(body: Buffer, at: int) -> tuple[int, int, int]:
    """The end of the record at `at`, its timestamp delta and its offset delta."""
    length, at = read_unsigned(body, at)
    following = at + ((length >> 1) ^ -(length & 1))
    timestamp_delta, at = read_unsigned(body, at + 1)  # after the record's attributes
    offset_delta, _ = read_unsigned(body, at)
    return following, (timestamp_delta >> 1) ^ -(timestamp_delta & 1), (offset_delta >> 1) ^ -(offset_delta & 1)
