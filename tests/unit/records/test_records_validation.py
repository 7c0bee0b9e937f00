"""What a produced batch gets: accepted as it is, stamped, rewritten, or Kafka's error."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import BatchHeader, check_crc, pack_header_into, read_header, seal
from penstock.records.builder import build_batch
from penstock.records.compression import Codec, RecordsTooLarge
from penstock.records.record import Record, iterate_records
from penstock.records.validation import INLINE_DECODE_BYTES, InvalidRecords, rewrite_produced, validate_produce

NOW = 1_700_000_000_000
HOUR = 3_600_000
MEGABYTE = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    max_message_bytes: int = MEGABYTE
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = HOUR


PLAIN = Rules()
COMPACTED = Rules(cleanup_policy=frozenset({"compact"}))
RECORDS: list[Any] = [(NOW + index, b"key%d" % index, b"value" * index, ()) for index in range(10)]


def validate(batch: bytearray, rules: Rules = PLAIN, *, version: int = 9) -> BatchHeader | None:
    return validate_produce(memoryview(batch), read_header(batch), rules, NOW, api_version=version)


def rewritten(batch: bytearray, rules: Rules, *, max_size: int = MEGABYTE) -> bytearray:
    assert validate(batch, rules) is None
    return rewrite_produced(memoryview(batch), read_header(batch), rules, NOW, max_size=max_size)


def records_of(batch: bytearray) -> list[Record]:
    header = read_header(batch)
    check_crc(batch, 0, header)
    return list(iterate_records(batch, 0, header, max_size=MEGABYTE))


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with header fields changed and a CRC that vouches for them."""
    copy = bytearray(batch)
    pack_header_into(copy, 0, read_header(batch)._replace(**fields))
    seal(copy, 0)
    return copy


def refusal(batch: bytearray, rules: Rules = PLAIN, *, version: int = 9) -> ErrorCode:
    before = bytes(batch)
    with pytest.raises(KafkaError) as refused:
        validate(batch, rules, version=version)
    assert bytes(batch) == before
    return refused.value.code


@pytest.mark.parametrize("codec", list(Codec))
def test_an_ordinary_batch_passes_untouched(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    before = bytes(batch)
    assert validate(batch) == read_header(batch)
    assert batch == before


def test_idempotent_and_transactional_batches_pass() -> None:
    for transactional in (False, True):
        batch = build_batch(RECORDS, producer_id=0, producer_epoch=0, base_sequence=0, transactional=transactional)
        assert validate(batch) is not None


def test_frames() -> None:
    batch = build_batch(RECORDS)
    assert refusal(changed(batch, magic=1)) == ErrorCode.INVALID_RECORD
    assert refusal(changed(batch, magic=3)) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(changed(batch, magic=-1)) == ErrorCode.CORRUPT_MESSAGE
    assert refusal(batch + batch) == ErrorCode.INVALID_RECORD
    assert refusal(batch + b"x") == ErrorCode.INVALID_RECORD
    assert refusal(batch[:-1]) == ErrorCode.INVALID_RECORD
    assert refusal(changed(batch, base_offset=1)) == ErrorCode.INVALID_RECORD
    for length in (-1, 0, 48):
        copy = bytearray(batch)
        pack_header_into(copy, 0, read_header(batch)._replace(length=length))
        assert refusal(copy) == ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_crc() -> None:
    batch = build_batch(RECORDS)
    batch[-1] ^= 1
    assert refusal(batch) == ErrorCode.CORRUPT_MESSAGE


def test_too_large() -> None:
    batch = build_batch(RECORDS)
    assert validate(batch, Rules(max_message_bytes=len(batch))) is not None
    assert refusal(batch, Rules(max_message_bytes=len(batch) - 1)) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0, "last_offset_delta": -1},
        {"count": -1, "last_offset_delta": -2},
        {"count": 9},
        {"last_offset_delta": 10},
        {"attributes": 0x20},
        {"attributes": 0x40},
        {"attributes": 0x10},
        {"producer_id": 5},
        {"producer_id": 5, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0},
    ],
    ids=str,
)
def test_inconsistent_fields(fields: dict[str, int]) -> None:
    assert refusal(changed(build_batch(RECORDS), **fields)) == ErrorCode.INVALID_RECORD


def test_codecs() -> None:
    batch = build_batch(RECORDS, codec=Codec.ZSTD)
    assert refusal(batch, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert validate(batch, version=7) is not None
    assert refusal(changed(batch, attributes=5)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_timestamp_bounds() -> None:
    rules = Rules(message_timestamp_before_max_ms=HOUR)
    for offset, accepted in ((HOUR, True), (HOUR + 1, False), (-HOUR, True), (-HOUR - 1, False)):
        batch = build_batch([(NOW + offset, b"k", b"v", ())])
        if accepted:
            assert validate(batch, rules) is not None
        else:
            assert refusal(batch, rules) == ErrorCode.INVALID_TIMESTAMP
    assert validate(build_batch([(-1, b"k", b"v", ())]), rules) is not None
    assert refusal(changed(build_batch(RECORDS), attributes=0x08)) == ErrorCode.INVALID_TIMESTAMP


def test_a_late_record_behind_a_missing_timestamp() -> None:
    batch = build_batch([(-1, b"k", b"v", ()), (NOW + HOUR + 1, b"k", b"v", ())])
    assert refusal(batch) == ErrorCode.INVALID_TIMESTAMP


def test_bounds_do_not_apply_to_append_time() -> None:
    rules = Rules(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    batch = build_batch([(5, b"k", b"v", ())])
    header = validate(batch, rules)
    assert header == read_header(batch)
    assert header is not None
    assert header.is_log_append_time
    assert [record.timestamp for record in records_of(batch)] == [NOW]


def test_a_wrong_maximum_is_put_right() -> None:
    batch = changed(build_batch(RECORDS), max_timestamp=-1)
    again = rewritten(batch, PLAIN)
    assert again == build_batch(RECORDS)


def test_compacted_topics_want_keys() -> None:
    batch = build_batch(RECORDS)
    assert validate(batch, COMPACTED) == read_header(batch)
    holes: list[Any] = [(NOW, None if index in (2, 5) else b"k", b"v", ()) for index in range(7)]
    with pytest.raises(InvalidRecords) as refused:
        validate(build_batch(holes), COMPACTED)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == [2, 5]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compressed_and_large_batches_of_compacted_topics_are_decoded_elsewhere(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert rewritten(batch, COMPACTED) == batch
    with pytest.raises(InvalidRecords):
        rewritten(build_batch([*RECORDS, (NOW, None, b"", ())], codec=codec), COMPACTED)
    large = build_batch([(NOW, b"k", b"v" * INLINE_DECODE_BYTES, ())])
    assert rewritten(large, COMPACTED) == large


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_codec(source: Codec, target: str) -> None:
    rules = Rules(compression_type=target)
    batch = build_batch(RECORDS, codec=source, producer_id=4, producer_epoch=1, base_sequence=8)
    if source == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[target]:
        assert validate(batch, rules) is not None
        return
    again = rewritten(batch, rules)
    header = read_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (4, 1, 8, 10)
    assert records_of(again) == records_of(batch)
    assert again == build_batch(RECORDS, codec=header.codec, producer_id=4, producer_epoch=1, base_sequence=8)


def test_recompressed_batches_get_the_append_time_too() -> None:
    again = rewritten(build_batch(RECORDS), Rules(compression_type="lz4", message_timestamp_type="LogAppendTime"))
    assert {record.timestamp for record in records_of(again)} == {NOW}


def test_what_recompression_makes_too_large() -> None:
    batch = build_batch([(NOW, b"k", b"v" * 10_000, ())], codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as refused:
        rewritten(batch, Rules(compression_type="uncompressed", max_message_bytes=5000))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_bombs_and_nonsense_where_records_are_decoded() -> None:
    bomb = build_batch([(NOW, b"k", bytes(8 * MEGABYTE), ())], codec=Codec.GZIP)
    with pytest.raises(RecordsTooLarge):
        rewritten(bomb, COMPACTED)
    nonsense = changed(build_batch(RECORDS), attributes=Codec.LZ4)
    with pytest.raises(KafkaError) as refused:
        rewritten(nonsense, COMPACTED)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


def test_records_are_checked_one_by_one_where_they_are_decoded() -> None:
    late: list[Any] = [(NOW, b"k", b"v", ()), (NOW + 2 * HOUR, b"k", b"v", ()), (NOW, b"k", b"v", ())]
    with pytest.raises(InvalidRecords) as refused:
        rewritten(build_batch(late), Rules(compression_type="gzip"))
    assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [1]
    gaps = changed(build_batch(RECORDS, offset_deltas=[0, 1, 2, 3, 4, 5, 6, 7, 9, 8]), last_offset_delta=9)
    with pytest.raises(InvalidRecords):
        validate(gaps, COMPACTED)
