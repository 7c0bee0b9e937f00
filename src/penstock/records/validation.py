"""Validates a produced batch before it is appended to a log.

The common case reads the 61-byte header and the CRC, nothing else. Records are decoded only if the topic requires it: a
compacted topic refuses records without keys, and a `compression.type` other than `producer` stores every batch in its
own codec. Small uncompressed batches are decoded at once; the rest is left to `rewrite_produced`, which runs off the
event loop.

The checks are in Kafka's order, so that a batch with several faults gets the same error as from Kafka.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NoReturn, Protocol

from crc32c import crc32c

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    set_max_timestamp,
)
from penstock.records.builder import assemble
from penstock.records.compression import CODEC_NAMES, Codec, compress, unknown_codec
from penstock.records.record import iterate_spans, records_body

# Uncompressed batches up to this size are decoded at once: at worst a few milliseconds.
INLINE_DECODE_BYTES = 16 * 1024
FIRST_VERSION_WITH_ZSTD = 7


class ProduceRules(Protocol):
    """The topic settings that validation needs; `TopicSettings` has all of them."""

    @property
    def cleanup_policy(self) -> AbstractSet[str]: ...
    @property
    def compression_type(self) -> str: ...
    @property
    def compression_gzip_level(self) -> int: ...
    @property
    def compression_lz4_level(self) -> int: ...
    @property
    def compression_zstd_level(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...


class InvalidRecords(KafkaError):
    """A batch refused because of some of its records; `record_errors` has (index in the batch, message) of each."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def validate_produce(  # noqa: C901
    view: bytearray | memoryview, header: BatchHeader, settings: ProduceRules, now_ms: int, *, api_version: int
) -> BatchHeader | None:
    """Check the one batch in `view`, whose header has been read.

    Returns the header of the batch to append, which differs from `header` if the append time was written to the batch
    in place; None if the records must be decoded first: then `rewrite_produced` makes the batch to append. Raises
    KafkaError, and leaves the batch unchanged, if it must not be appended.
    """
    (
        base_offset, length, _, magic, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = header  # fmt: skip
    size = length + LENGTH_OVERHEAD
    if magic != MAGIC or len(view) != size or base_offset or size < HEADER_SIZE:
        _refuse_frame(view, header)
    codec = attributes & CODEC_MASK
    if codec and codec == Codec.ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version 7, this is {api_version}")
    if size > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes exceeds max.message.bytes={settings.max_message_bytes}",
        )
    if crc32c(view[CRC_START:]) != crc:
        raise CorruptBatch("the CRC of the produced batch does not match its contents")
    if codec and codec > Codec.ZSTD:
        raise unknown_codec(codec)
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers must not set the timestamp type to LogAppendTime")
    if (
        count <= 0
        or last_offset_delta != count - 1
        or attributes & (CONTROL | DELETE_HORIZON)
        or (producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0))
        or (attributes & TRANSACTIONAL and producer_id < 0)
    ):
        _refuse_fields(header)

    compacted = "compact" in settings.cleanup_policy
    if compacted and (codec or size > INLINE_DECODE_BYTES):
        return None
    if settings.compression_type != "producer" and CODEC_NAMES[settings.compression_type] != codec:
        return None
    if compacted:
        _check_records(records_body(view, 0, header, max_size=size), header, settings, now_ms)
    if settings.message_timestamp_type == "LogAppendTime":
        return set_max_timestamp(view, 0, now_ms, True)
    if max_timestamp < base_timestamp:  # the producer miscounted; only the records know their maximum
        return None
    if max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        _refuse_timestamp(max_timestamp, settings, now_ms)
    if base_timestamp != NO_TIMESTAMP and now_ms - base_timestamp > settings.message_timestamp_before_max_ms:
        _refuse_timestamp(base_timestamp, settings, now_ms)
    return header


def rewrite_produced(
    view: bytearray | memoryview, header: BatchHeader, settings: ProduceRules, now_ms: int, *, max_size: int
) -> bytearray:
    """Build the batch to append if `validate_produce` returned None: checked record by record, in the topic's codec,
    with the true maximum timestamp. `max_size` limits the decompressed size.

    The records keep their bytes; only their compression and the header change.
    """
    body = records_body(view, 0, header, max_size=max_size)
    max_timestamp = _check_records(body, header, settings, now_ms)
    codec = header.codec
    target = codec if settings.compression_type == "producer" else CODEC_NAMES[settings.compression_type]
    attributes = header.attributes & ~CODEC_MASK | target
    if settings.message_timestamp_type == "LogAppendTime":
        attributes |= LOG_APPEND_TIME
        max_timestamp = now_ms
    if target == codec:
        encoded: bytes | memoryview = memoryview(view)[HEADER_SIZE : header.size]
    else:
        encoded = compress(target, body, _level(settings, target))
    if HEADER_SIZE + len(encoded) > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch, stored as {settings.compression_type}, has {HEADER_SIZE + len(encoded)} bytes, "
            f"which exceeds max.message.bytes={settings.max_message_bytes}",
        )
    return assemble(header._replace(attributes=attributes, max_timestamp=max_timestamp), encoded)


def _level(settings: ProduceRules, codec: int) -> int | None:
    if codec == Codec.GZIP:
        return settings.compression_gzip_level
    if codec == Codec.LZ4:
        return settings.compression_lz4_level
    if codec == Codec.ZSTD:
        return settings.compression_zstd_level
    return None


def _check_records(body: bytes, header: BatchHeader, settings: ProduceRules, now_ms: int) -> int:
    """Check every record of a decompressed body against the topic's rules; returns the largest timestamp."""
    compacted = "compact" in settings.cleanup_policy
    create_time = settings.message_timestamp_type != "LogAppendTime"
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = now_ms + settings.message_timestamp_after_max_ms
    base_timestamp = header.base_timestamp
    max_timestamp = NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, (_, _, _, timestamp_delta, offset_delta, key, _, _, _) in enumerate(iterate_spans(body, header)):
        timestamp = base_timestamp + timestamp_delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if offset_delta != index:
            errors.append((index, f"record {index} has offset delta {offset_delta}"))
        elif compacted and key is None:
            errors.append((index, "a compacted topic cannot accept a record without a key"))
        elif create_time and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            errors.append((index, _out_of_range(timestamp, earliest, latest)))
            code = ErrorCode.INVALID_TIMESTAMP
    if errors:
        raise InvalidRecords(code, f"{len(errors)} of {header.count} records were refused: {errors[0][1]}", errors)
    return max_timestamp


def _refuse_frame(view: bytearray | memoryview, header: BatchHeader) -> NoReturn:
    if header.magic not in (0, 1, MAGIC) or header.length < 0:
        raise CorruptBatch(f"no record batch: magic {header.magic}, length {header.length}")
    if header.magic != MAGIC:
        raise _invalid(f"message format {header.magic} is not accepted, only 2")
    if header.size < HEADER_SIZE:
        raise CorruptBatch(f"a record batch of {header.size} bytes is shorter than its header")
    if len(view) < header.size:
        raise _invalid(f"the produced data ends after {len(view)} of the {header.size} bytes of its batch")
    if len(view) > header.size:
        raise _invalid("a partition takes exactly one record batch a request")
    raise _invalid(f"the base offset of a produced batch must be 0, it is {header.base_offset}")


def _refuse_fields(header: BatchHeader) -> NoReturn:
    if header.count <= 0:
        raise _invalid(f"a batch of {header.count} records")
    if header.last_offset_delta != header.count - 1:
        raise _invalid(f"{header.count} records with a last offset delta of {header.last_offset_delta}")
    if header.is_control:
        raise _invalid("clients are not allowed to write control records")
    if header.attributes & DELETE_HORIZON:
        raise _invalid("clients are not allowed to set a delete horizon")
    if header.is_transactional and header.producer_id < 0:
        raise _invalid("a transactional batch without a producer id")
    raise _invalid(
        f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
    )


def _refuse_timestamp(timestamp: int, settings: ProduceRules, now_ms: int) -> NoReturn:
    message = _out_of_range(
        timestamp, now_ms - settings.message_timestamp_before_max_ms, now_ms + settings.message_timestamp_after_max_ms
    )
    raise KafkaError(ErrorCode.INVALID_TIMESTAMP, message)


def _out_of_range(timestamp: int, earliest: int, latest: int) -> str:
    return f"timestamp {timestamp} is out of range: it should be within [{earliest}, {latest}]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
