"""Any records, any codec, any damage."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import KafkaError
from penstock.records.batch import HEADER_SIZE, check_crc, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.compression import compress, decompress
from penstock.records.record import iterate_records, iterate_spans, records_body
from penstock.records.varint import read_unsigned, varint

MEGABYTE = 1024 * 1024

codecs = st.integers(0, 4)
timestamps = st.integers(-1, 2**45)
maybe_bytes = st.none() | st.binary(max_size=200)
header_pairs = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple)
records = st.lists(st.tuples(timestamps, maybe_bytes, maybe_bytes, header_pairs), min_size=1, max_size=30)


@given(records, codecs, st.integers(0, 2**62))
def test_batches_round_trip(new: list[Any], codec: int, base_offset: int) -> None:
    batch = build_batch(new, codec=codec, base_offset=base_offset)
    header = read_header(batch)
    check_crc(batch, 0, header)
    read = list(iterate_records(batch, 0, header, max_size=MEGABYTE))
    assert [(record.timestamp, record.key, record.value, record.headers) for record in read] == new
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(new)))
    assert header.max_timestamp == max(record.timestamp for record in read)


@given(records)
def test_spans_cover_the_body_and_copy_to_the_same_batch(new: list[Any]) -> None:
    batch = build_batch(new)
    header = read_header(batch)
    body = records_body(batch, 0, header, max_size=MEGABYTE)
    spans = list(iterate_spans(body, header))
    assert b"".join(body[span[0] : span[1]] for span in spans) == body
    assert [span[5] for span in spans] == [record[1] for record in new]
    assert [span[6] >= 0 for span in spans] == [record[2] is not None for record in new]


@given(records, codecs, st.data())
def test_damage_is_an_error_or_other_records_never_a_crash(new: list[Any], codec: int, data: st.DataObject) -> None:
    batch = build_batch(new, codec=codec)
    for _ in range(data.draw(st.integers(1, 5))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    del batch[len(batch) - data.draw(st.integers(0, 3)) :]
    try:
        header = read_header(batch)
        read = list(iterate_records(batch, 0, header, max_size=MEGABYTE))
        assert len(read) == header.count
        list(iterate_headers(batch))
    except KafkaError:
        pass


@given(st.binary(max_size=300))
def test_arbitrary_bytes_as_a_batch(junk: bytes) -> None:
    try:
        for position, header in iterate_headers(junk):
            list(iterate_records(junk, position, header, max_size=MEGABYTE))
    except KafkaError:
        pass


@given(st.binary(min_size=1, max_size=300), st.integers(1, 40))
def test_arbitrary_bytes_as_records(junk: bytes, count: int) -> None:
    header = read_header(build_batch([(0, None, None, ())]))
    header = header._replace(length=len(junk) + HEADER_SIZE - 12, count=count, last_offset_delta=2**31 - 1)
    with contextlib.suppress(KafkaError):
        assert len(list(iterate_records(bytes(HEADER_SIZE) + junk, 0, header, max_size=MEGABYTE))) == count


@given(codecs, st.binary(max_size=5000), st.integers(1, 5))
def test_codecs_round_trip(codec: int, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times), MEGABYTE) == data * times


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = varint(value)
    raw, position = read_unsigned(encoded, 0)
    assert position == len(encoded) <= 10
    assert (raw >> 1) ^ -(raw & 1) == value
