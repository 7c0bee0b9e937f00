"""The header view, the in-place patches, and batches exchanged with other implementations."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from penstock.model.errors import ErrorCode
from penstock.records.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    CorruptBatch,
    check_crc,
    iterate_headers,
    read_header,
    set_base_offset,
    set_max_timestamp,
)
from penstock.records.builder import build_batch
from penstock.records.compression import Codec
from penstock.records.record import Record, iterate_records

with warnings.catch_warnings():  # it loads its schemas through a deprecated door
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

MEGABYTE = 1024 * 1024
NOW = 1_700_000_000_000

RECORDS: list[Any] = [
    (NOW, b"key", b"value", ()),
    (NOW + 1, None, b"no key", (("trace", b"1"), ("empty", b""), ("null", None))),
    (NOW - 5, b"", None, ()),
    (NOW + 100_000, b"k" * 100, b"v" * 20_000, (("ünï", b"\x00\xff"),)),
]


def decoded(batch: bytes | bytearray | memoryview) -> list[Record]:
    header = read_header(batch)
    check_crc(batch, 0, header)
    return list(iterate_records(batch, 0, header, max_size=MEGABYTE))


def contents(records: list[Record]) -> list[Any]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_round_trip(codec: Codec, view: type) -> None:
    batch = view(build_batch(RECORDS, codec=codec, base_offset=1000))
    assert contents(decoded(batch)) == RECORDS
    assert [record.offset for record in decoded(batch)] == [1000, 1001, 1002, 1003]


def test_the_header_says_what_was_built() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=7,
        codec=Codec.LZ4,
        leader_epoch=3,
        producer_id=42,
        producer_epoch=2,
        base_sequence=9,
        transactional=True,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset, header.count) == (7, 10, 11, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (42, 2, 9, 12)
    assert (header.codec, header.is_transactional, header.is_control) == (Codec.LZ4, True, False)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 100_000)
    assert (header.is_log_append_time, header.delete_horizon_ms, header.leader_epoch) == (False, None, 3)


def test_append_time_is_the_timestamp_of_every_record() -> None:
    batch = build_batch(RECORDS, log_append_time=NOW + 999)
    assert {record.timestamp for record in decoded(batch)} == {NOW + 999}


def test_a_delete_horizon_moves_the_base_and_keeps_the_timestamps() -> None:
    batch = build_batch(RECORDS, delete_horizon=NOW + 10**9, offset_deltas=[0, 2, 5, 6], last_offset_delta=9)
    header = read_header(batch)
    assert header.delete_horizon_ms == NOW + 10**9
    assert header.last_offset == 9
    assert contents(decoded(batch)) == RECORDS
    assert [record.offset for record in decoded(batch)] == [0, 2, 5, 6]


def test_sequences_wrap() -> None:
    header = read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1))
    assert header.last_sequence == 1


def test_offsets_are_assigned_without_touching_the_crc() -> None:
    batch = build_batch(RECORDS)
    set_base_offset(memoryview(batch), 0, 2**40, 77)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (2**40, 77)
    check_crc(batch, 0, header)


def test_stamping_renews_the_crc() -> None:
    batch = bytearray(b"front") + build_batch(RECORDS) + b"behind"
    header = set_max_timestamp(memoryview(batch), 5, NOW + 5, True)
    check_crc(batch, 5, header)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW + 5
    header = set_max_timestamp(batch, 5, NOW + 6, False)
    check_crc(batch, 5, header)
    assert not header.is_log_append_time


def test_headers_that_are_not_there() -> None:
    batch = build_batch(RECORDS)
    for size in (0, 1, HEADER_SIZE - 1):
        with pytest.raises(CorruptBatch) as refused:
            read_header(batch[:size])
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptBatch):
        read_header(batch, len(batch) - 10)


def test_any_flipped_bit_behind_the_crc_is_found() -> None:
    batch = build_batch(RECORDS[:3])
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_crc(damaged, 0, read_header(damaged))


def test_walking_batches_ends_before_one_that_is_cut_off() -> None:
    first = build_batch(RECORDS)
    second = build_batch(RECORDS[:1], base_offset=4)
    both = first + second
    assert [(at, header.base_offset) for at, header in iterate_headers(both)] == [(0, 0), (len(first), 4)]
    assert len(list(iterate_headers(memoryview(both)[: len(both) - 1]))) == 1
    assert len(list(iterate_headers(memoryview(both)[: len(first) + 20]))) == 1
    assert list(iterate_headers(b"")) == []


@pytest.mark.parametrize(("at", "value"), [(8, b"\x00\x00\x00\x00"), (8, b"\xff\xff\xff\xff"), (16, b"\x01")])
def test_walking_nonsense_raises_instead_of_looping(at: int, value: bytes) -> None:
    batch = build_batch(RECORDS)
    batch[at : at + len(value)] = value
    with pytest.raises(CorruptBatch):
        list(iterate_headers(batch))


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    batch = build_batch([], codec=Codec.NONE, base_offset=10, last_offset_delta=4, producer_id=1, base_sequence=3)
    assert decoded(batch) == []
    assert read_header(batch).next_offset == 15


def test_header_keys_that_are_not_text_survive() -> None:
    records: list[Any] = [(NOW, b"k", b"v", ((b"\xff\xfe", b"x"),))]
    batch = build_batch(records)
    again = build_batch(contents(decoded(batch)))
    assert again == batch


def test_damaged_records_raise_and_never_escape_their_batch() -> None:
    source = random.Random(11)
    plain = build_batch(RECORDS[:3] + [(NOW, b"kk", b"vv", (("a", b"b"), ("c", None)))] * 5)
    header = read_header(plain)
    for _ in range(4000):
        damaged = bytearray(plain)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(HEADER_SIZE, len(damaged))] = source.randrange(256)
        try:
            records = list(iterate_records(damaged, 0, header, max_size=MEGABYTE))
        except CorruptBatch:
            continue
        assert len(records) == header.count
        assert all(header.base_offset <= record.offset <= header.last_offset for record in records)


@pytest.mark.parametrize("change", [{"count": 3}, {"count": 5}, {"count": 2**31 - 1}, {"last_offset_delta": 2}])
def test_counts_that_do_not_match(change: dict[str, int]) -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)._replace(**change)
    with pytest.raises(CorruptBatch):
        list(iterate_records(batch, 0, header, max_size=MEGABYTE))


def test_a_length_beyond_the_buffer() -> None:
    batch = build_batch(RECORDS)
    for length in (-1, 0, 48, len(batch), 2**31 - 1):
        header = read_header(batch)._replace(length=length)
        with pytest.raises(CorruptBatch):
            list(iterate_records(batch, 0, header, max_size=MEGABYTE))
        with pytest.raises(CorruptBatch):
            check_crc(batch, 0, header)


# --- other implementations ---------------------------------------------------------------------------------------


def others_records(batch: Any) -> list[Any]:
    return [(record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch]


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_ours(codec: Codec) -> None:
    batch = AioBatch(bytes(build_batch(RECORDS, codec=codec, base_offset=5)))
    assert batch.validate_crc()
    assert others_records(batch) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_aiokafkas(codec: Codec) -> None:
    builder = AioBuilder(2, codec, 1, 123, 4, 5, MEGABYTE)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, list(headers))
    batch = bytes(builder.build())
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 4, 5)
    assert header.is_transactional
    assert contents(decoded(batch)) == RECORDS


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_ours(codec: Codec) -> None:
    batch = KafkaPythonBatch(bytes(build_batch(RECORDS, codec=codec)))
    assert batch.validate_crc()
    assert others_records(batch) == RECORDS


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_we_read_kafka_pythons(codec: Codec) -> None:
    builder = KafkaPythonBuilder(2, codec, 0, -1, -1, -1, MEGABYTE)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, list(headers))
    assert contents(decoded(bytes(builder.build()))) == RECORDS


def test_uncompressed_batches_are_bytewise_those_of_aiokafka() -> None:
    builder = AioBuilder(2, 0, 0, -1, -1, -1, MEGABYTE)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, list(headers))
    ours = build_batch(RECORDS)
    set_base_offset(ours, 0, 0, 0)
    theirs = bytearray(builder.build())
    set_base_offset(theirs, 0, 0, 0)
    assert ours == theirs


def test_header_is_a_plain_tuple() -> None:
    header = read_header(build_batch(RECORDS))
    assert header == BatchHeader(*header)
