"""Columns and records are two views of the same bytes: any records, any codec, any damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow.batching import PartitionStream
from penstock.arrow.columns import TYPES, Columns
from penstock.arrow.encoding import byte_column, header_columns
from penstock.arrow.rows import Rows
from penstock.client.librdkafka.partitioners import murmur2
from penstock.client.wire.transaction import ProducerIdentity
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.records import columnar_decoding
from penstock.records.batch import HEADER_SIZE, check_crc, iterate_headers, read_header, seal
from penstock.records.builder import build_batch
from penstock.records.columnar import Spans, decode_batches
from penstock.records.columnar_encoding import order_by_partition, partition_by_key
from penstock.records.record import Record, iterate_records

MEGABYTE = 1024 * 1024
PARTITION = TopicPartition("columns", 0)
COLUMNS = ["key", "value", "offset", "timestamp", "headers"]
END = 2**63 - 1

# The first example may have to load what was compiled.
unhurried = settings(deadline=None)

codecs = st.integers(0, 4)
timestamps = st.integers(-1, 2**45)
maybe_bytes = st.none() | st.binary(max_size=200)
header_pairs = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=3).map(tuple)
records = st.lists(st.tuples(timestamps, maybe_bytes, maybe_bytes, header_pairs), min_size=1, max_size=30)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches on end, of any codec, with gaps between and within them as compaction leaves."""
    data = bytearray()
    offset = draw(st.integers(0, 2**40))
    for new in draw(st.lists(records, min_size=1, max_size=4)):
        steps = draw(st.lists(st.integers(1, 300), min_size=len(new), max_size=len(new)))
        deltas = [sum(steps[: place + 1]) - 1 for place in range(len(new))]
        append_time = draw(st.none() | st.integers(0, 2**45))
        data += build_batch(
            new, base_offset=offset, codec=draw(codecs), offset_deltas=deltas, log_append_time=append_time
        )
        offset += deltas[-1] + draw(st.integers(1, 1000))
    return bytes(data)


def spans_of(data: bytes, first: int = 0, end: int = END, group_bytes: int = MEGABYTE) -> list[Spans]:
    view = memoryview(data)
    return list(decode_batches(view, iterate_headers(view), first, end, group_bytes=group_bytes))


def rows_of(spans: list[Spans]) -> list[Record]:
    """Records as the columns tell of them."""
    columns = Columns(COLUMNS, None, None)
    rows = []
    for each in spans:
        batch = columns.record_batch(each, PARTITION)
        batch.validate(full=True)
        for row, timestamp in zip(batch.to_pylist(), each.timestamps.tolist(), strict=True):
            headers = tuple((header["key"], header["value"]) for header in row["headers"])
            rows.append(Record(row["offset"], timestamp, row["key"], row["value"], headers))
    return rows


def records_of(data: bytes) -> list[Record]:
    return [
        record
        for position, header in iterate_headers(data)
        for record in iterate_records(data, position, header, max_size=MEGABYTE)
    ]


@unhurried
@given(logs())
def test_columns_are_the_records(data: bytes) -> None:
    assert rows_of(spans_of(data)) == records_of(data)
    assert rows_of(spans_of(data, group_bytes=100)) == records_of(data)


@unhurried
@given(logs(), st.data())
def test_bounds_cut_by_offset(data: bytes, draw: st.DataObject) -> None:
    all_records = records_of(data)
    low, high = all_records[0].offset, all_records[-1].offset
    first, end = draw.draw(st.integers(low, high)), draw.draw(st.integers(low, high + 2))
    assert rows_of(spans_of(data, first, end)) == [record for record in all_records if first <= record.offset < end]


def array_of(values: list[Any], kind: Any) -> Any:
    """Also one whose buffers begin elsewhere."""
    return pa.array([values[0], *values], kind)[1:]


@unhurried
@given(
    records,
    codecs,
    st.integers(61, 2000),
    st.sampled_from([(pa.binary(), pa.binary()), (pa.large_binary(), pa.binary())]),
)
def test_encoded_columns_are_the_records(new: list[Any], codec: int, batch_bytes: int, kinds: tuple[Any, Any]) -> None:
    rows = Rows(
        byte_column(array_of([record[1] for record in new], kinds[0]), "key"),
        byte_column(array_of([record[2] for record in new], kinds[1]), "value"),
        header_columns(array_of([list(record[3]) for record in new], pa.map_(pa.string(), pa.binary())), "headers", 0),
        np.array([record[0] for record in new], np.int64),
    )
    identity = ProducerIdentity(7, 3)
    stream = PartitionStream(
        PARTITION,
        rows,
        np.arange(len(new), dtype=np.int64),
        batch_bytes=batch_bytes,
        codec=codec,
        level=None,
        identity=identity,
        transactional=False,
    )
    data = bytearray()
    for batch in encoded(stream):
        header = read_header(batch)
        check_crc(batch, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, len(records_of(bytes(data))))
        assert header.last_offset_delta == header.count - 1
        assert codec or len(batch) <= batch_bytes or header.count == 1
        data += batch
    read = records_of(bytes(data))
    assert [(record.timestamp, record.key, record.value, record.headers) for record in read] == new
    assert rows_of(spans_of(bytes(data))) == read
    assert all(
        header.max_timestamp == max(record.timestamp for record in records_of(bytes(data[position:][: header.size])))
        for position, header in iterate_headers(data)
    )


def encoded(stream: PartitionStream) -> Iterator[bytes]:
    while stream.can_prepare:
        stream.prepare()
        stream.under_way, stream.prepared = stream.prepared, None
        yield bytes(stream.confirm().data)


@unhurried
@given(st.lists(maybe_bytes, min_size=1, max_size=50), st.integers(1, 20), st.integers(0, 19))
def test_rows_go_where_their_keys_say(keys: list[bytes | None], partitions: int, turn: int) -> None:
    turn %= partitions
    chosen = np.empty(len(keys), np.int32)
    following = partition_by_key(*byte_column(pa.array(keys, pa.binary()), "key"), partitions, turn, chosen)
    for key, partition in zip(keys, chosen.tolist(), strict=True):
        if key is None:
            assert partition == turn
            turn = (turn + 1) % partitions
        else:
            assert partition == (murmur2(key) & 0x7FFFFFFF) % partitions
    assert following == turn
    bounds, order = np.zeros(partitions + 1, np.int64), np.empty(len(keys), np.int64)
    order_by_partition(chosen, bounds, order)
    for partition in range(partitions):
        rows = order[bounds[partition] : bounds[partition + 1]].tolist()
        assert rows == [row for row, where in enumerate(chosen.tolist()) if where == partition]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    chosen = np.empty(1, np.int32)
    partition_by_key(*byte_column(pa.array([key]), "key"), 2**31 - 1, 0, chosen)
    assert chosen[0] == (hashed & 0x7FFFFFFF) % (2**31 - 1)


# -- damage


@pytest.fixture(scope="module")
def slow_kernels() -> Iterator[None]:
    """The kernels as Python runs them: where compiled code would read outside an array, this raises."""
    compiled = {
        name: getattr(columnar_decoding, name) for name in ("_long_varint", "_varint", "_span", "_skip_headers")
    }
    patch = pytest.MonkeyPatch()
    patch.setattr(columnar_decoding, "pointer_to", Checked)
    for name, dispatcher in compiled.items():
        patch.setattr(columnar_decoding, name, dispatcher.py_func)
    patch.setattr("penstock.records.columnar.walk_records", columnar_decoding.walk_records.py_func)
    yield
    patch.undo()


class Checked:
    """Memory that notices who leaves it."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, position: int) -> Any:
        assert 0 <= position < len(self._array), f"read at {position} of {len(self._array)}"
        return self._array[position]


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """Sealed again, so that the CRC does not give them away."""
    batch = build_batch(draw(records), codec=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))
        batch[place] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, min(3, len(batch) - HEADER_SIZE)))
    del batch[len(batch) - cut :]
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch, 0)
    return bytes(batch)


def outcome(data: bytes) -> list[Record] | None:
    try:
        return rows_of(spans_of(data))
    except KafkaError as error:
        assert "offset 0" in str(error)
        return None


def reference(data: bytes) -> list[Record] | None:
    try:
        return records_of(data)
    except KafkaError:
        return None


def readable(rows: list[Record] | None) -> bool:
    """What both can say: header keys that are text, timestamps of 64 bits."""
    return rows is None or all(
        abs(row.timestamp) < 2**63 and all(isinstance(key, str) for key, _ in row.headers) for row in rows
    )


@unhurried
@given(damaged_batches())
def test_damage_is_found_as_by_the_reference(data: bytes) -> None:
    expected = reference(data)
    if readable(expected):
        assert outcome(data) == expected
    else:
        outcome(data)


@pytest.mark.usefixtures("slow_kernels")
@unhurried
@given(damaged_batches())
def test_damage_never_leads_outside_the_buffer(data: bytes) -> None:
    outcome(data)


@pytest.mark.usefixtures("slow_kernels")
@unhurried
@given(st.binary(min_size=7, max_size=300), st.integers(1, 40))
def test_junk_never_leads_outside_the_buffer(junk: bytes, count: int) -> None:
    batch = bytearray(build_batch([(0, None, None, ())]))
    batch[HEADER_SIZE:] = junk
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (2**31 - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    seal(batch, 0)
    outcome(bytes(batch))


def test_a_wrong_crc_is_named_by_its_offset() -> None:
    batch = build_batch([(0, b"k", b"v", ())], base_offset=42)
    batch[-1] ^= 1
    with pytest.raises(KafkaError, match="offset 42 has CRC"):
        spans_of(bytes(batch))


def test_the_columns_are_those_of_spark() -> None:
    assert Columns(TYPES, None, None).schema.to_string() == "\n".join(
        [
            "key: binary",
            "value: binary",
            "topic: string",
            "partition: int32",
            "offset: int64",
            "timestamp: timestamp[us, tz=UTC]",
            "timestampType: int32",
            "headers: list<element: struct<key: string, value: binary>>",
            "  child 0, element: struct<key: string, value: binary>",
            "      child 0, key: string",
            "      child 1, value: binary",
        ]
    )


# -- sending again


@unhurried
@given(
    st.lists(st.binary(max_size=100), min_size=1, max_size=60),
    st.integers(100, 1500),
    st.integers(2**31 - 40, 2**31 - 1) | st.just(0),
    st.lists(st.sampled_from(["confirmed", "answer lost", "refused", "too large", "encode ahead"]), max_size=60),
)
def test_whatever_is_sent_again_is_written_once_and_in_order(
    values: list[bytes], batch_bytes: int, sequence: int, fates: list[str]
) -> None:
    count = len(values)
    rows = Rows(
        byte_column(pa.nulls(count), "key"),
        byte_column(pa.array(values, pa.binary()), "value"),
        header_columns(pa.nulls(count), "headers", 0),
        np.zeros(count, np.int64),
    )
    stream = PartitionStream(
        PARTITION,
        rows,
        np.arange(count, dtype=np.int64),
        batch_bytes=batch_bytes,
        codec=0,
        level=None,
        identity=ProducerIdentity(1, 0, {PARTITION: sequence}),
        transactional=False,
    )
    log: list[bytes | None] = []
    expected = sequence  # what a broker would take next
    pending = iter([*fates, *["confirmed"] * count])
    while not stream.finished:
        if stream.prepared is None:
            stream.prepare()
        stream.under_way, stream.prepared = stream.prepared, None
        assert stream.under_way is not None
        data = bytes(stream.under_way.data)
        fate = next(pending)
        if fate == "encode ahead":
            if stream.can_prepare:
                stream.prepare()
            fate = next(pending)
        header = read_header(data)
        if fate == "too large" and header.count > 1 and header.base_sequence == expected:
            stream.shrink()
            continue
        if fate in ("confirmed", "answer lost"):
            if header.base_sequence == expected:
                log += [record.value for record in records_of(data)]
                expected = (expected + header.count) & (2**31 - 1)
            else:  # the answer to this very batch was lost before
                assert (header.base_sequence + header.count) & (2**31 - 1) == expected
        if fate == "confirmed":
            stream.confirm()
        else:
            stream.retry()
    assert log == values
