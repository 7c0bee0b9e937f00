"""Timestamps of a batch's records, without all of what they decompress to."""

from __future__ import annotations

from itertools import islice

import pytest

from penstock.records import timestamps
from penstock.records.batch import Buffer, CorruptBatch, pack_header_into, read_header, seal
from penstock.records.builder import build_batch
from penstock.records.compression import Codec, RecordsTooLarge, decompress_start
from penstock.records.record import iterate_records
from penstock.records.timestamps import iterate_stamps

LARGE = 1 << 30
MIB = 1 << 20


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("first_bytes", [1, 10, 300, 1 << 18])
def test_they_are_those_of_the_records(codec: Codec, first_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "FIRST_BYTES", first_bytes)
    records = [(1000 + number * 7 % 50, b"k" * (number % 5), b"v" * (number * number), ()) for number in range(60)]
    batch = build_batch(records, codec=codec, base_offset=500)
    header = read_header(batch)
    expected = [(record.offset, record.timestamp) for record in iterate_records(batch, 0, header, max_size=LARGE)]
    assert [tuple(stamp) for stamp in iterate_stamps(batch, header, max_size=LARGE)] == expected


def test_the_time_of_appending_is_that_of_all() -> None:
    batch = build_batch([(1, None, b"v", ()), (2, None, b"v", ())], codec=Codec.LZ4)
    header = read_header(batch)._replace(max_timestamp=77)
    header = header._replace(attributes=header.attributes | 8)
    assert [stamp.timestamp for stamp in iterate_stamps(batch, header, max_size=LARGE)] == [77, 77]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_grows_a_thousandfold_takes_no_more_than_is_allowed(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = build_batch([(1, None, b"", ()), (2, None, bytes(64 * MIB), ()), (3, None, b"", ())], codec=codec)
    header = read_header(batch)
    assert len(batch) < MIB
    taken: list[int] = []

    def noted(codec: int, data: Buffer, size: int, max_size: int) -> tuple[Buffer, bool]:
        body, is_whole = decompress_start(codec, data, size, max_size)
        taken.append(len(body))
        return body, is_whole

    monkeypatch.setattr(timestamps, "decompress_start", noted)
    first_two = list(islice(iterate_stamps(batch, header, max_size=LARGE), 2))
    assert [stamp.timestamp for stamp in first_two] == [1, 2]
    assert max(taken) < MIB
    with pytest.raises(RecordsTooLarge):
        list(iterate_stamps(batch, header, max_size=8 * MIB))
    assert max(taken) == 8 * MIB


@pytest.mark.parametrize("change", [{"count": 3, "last_offset_delta": 2}, {"count": 1}, {"last_offset_delta": 0}])
def test_records_that_contradict_their_header(change: dict[str, int]) -> None:
    batch = build_batch([(1, None, b"v", ()), (2, None, b"v", ())], codec=Codec.ZSTD)
    pack_header_into(batch, 0, read_header(batch)._replace(**change))
    seal(batch, 0)
    with pytest.raises(CorruptBatch):
        list(iterate_stamps(batch, read_header(batch), max_size=LARGE))
