"""The record batch as the broker sees it: a 61-byte header in front of bytes that it need not parse.

Nothing here copies. A `BatchHeader` is one `struct` read over the buffer that holds the batch (bytes, bytearray or
memoryview); the two functions that change a batch patch it in place. Base offset and leader epoch precede the
checksummed part, so assigning an offset never touches the CRC; changing the timestamp does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.model.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
MAGIC = 2
# The bytes that `length` does not count: the base offset and the length itself.
LENGTH_OVERHEAD = 12
# The smallest `length` of a v2 batch: a header without records.
MIN_LENGTH = HEADER_SIZE - LENGTH_OVERHEAD

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MAX_SEQUENCE = 0x7FFFFFFF

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_LENGTH = struct.Struct(">i")

_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

# The CRC covers everything from the attributes to the end of the batch.
CRC_START = _ATTRIBUTES_AT

_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__


class CorruptBatch(KafkaError):
    """Bytes that are not a well-formed record batch, or have changed since they were written."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's noun; no code calls tuple.count on a header

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes; `length` excludes the base offset and itself."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be removed; set by the first compaction that read them."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequences count records and wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; checks only that it is complete."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        raise CorruptBatch(
            f"{max(len(buffer) - position, 0)} bytes are too few for a record batch header ({HEADER_SIZE})"
        ) from None


def pack_header_into(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    _HEADER.pack_into(buffer, position, *header)


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    size = header.length + LENGTH_OVERHEAD
    if size < HEADER_SIZE or position + size > len(buffer):
        raise CorruptBatch(f"a batch of {size} bytes at position {position} does not fit in {len(buffer)} bytes")
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + size])
    if crc != header.crc:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} has CRC {crc:#010x}, its header says {header.crc:#010x}"
        )


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Every complete batch from `position` on; stops before one that is cut off. Does not check CRCs."""
    end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
        length = header[1]
        if length < MIN_LENGTH or header[3] != MAGIC:
            raise CorruptBatch(f"no record batch at position {position}: length {length}, magic {header[3]}")
        following = position + length + LENGTH_OVERHEAD
        if following > end:
            return
        yield position, header
        position = following


def set_base_offset(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Assign offsets to a batch in place; the CRC covers neither field."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def set_max_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp: int, log_append_time: bool
) -> BatchHeader:
    """Set the maximum timestamp of a batch in place and update its CRC. With `log_append_time` it applies to every
    record.

    Returns the new header.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_AT)
    attributes = attributes | LOG_APPEND_TIME if log_append_time else attributes & ~LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, attributes)
    _BASE_OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp)
    seal(buffer, position)
    return read_header(buffer, position)


def seal(buffer: bytearray | memoryview, position: int) -> None:
    """Write the CRC of the batch at `position`; the last step of building or changing it."""
    (length,) = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + length + LENGTH_OVERHEAD])
    _CRC.pack_into(buffer, position + _CRC_AT, crc)
