"""Codecs: what others write is read, what we write the strict readers accept, and no input makes us eat the machine."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import CorruptBatch
from penstock.records.compression import Codec, RecordsTooLarge, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NOISE = random.Random(7).randbytes(300_000)
MEGABYTE = 1024 * 1024


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 50_000, NOISE, bytes(70_000)], ids=len)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_what_went_in_comes_out(codec: Codec, data: bytes, view: type) -> None:
    assert decompress(codec, view(compress(codec, view(data))), MEGABYTE) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_exactly_the_limit_fits_and_one_byte_more_does_not(codec: Codec) -> None:
    data = NOISE[:1000] * 100
    encoded = compress(codec, data)
    assert decompress(codec, encoded, len(data)) == data
    with pytest.raises(RecordsTooLarge) as refused:
        decompress(codec, encoded, len(data) - 1)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def bomb(codec: Codec) -> bytes:
    """64 MiB of zeros, as small as the codec makes them."""
    if codec == Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(bytes(64 * MEGABYTE)))
    return compress(codec, bytes(64 * MEGABYTE))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_allocates_no_more_than_the_limit(codec: Codec) -> None:
    encoded = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(RecordsTooLarge):
            decompress(codec, encoded, 2 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * MEGABYTE


def test_a_snappy_block_that_lies_about_its_length_is_refused() -> None:
    encoded = b"\xff\xff\xff\xff\x0f" + b"\x00x"
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.SNAPPY, encoded, MEGABYTE)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"", b"\x00", b"not compressed at all", bytes(100), b"\xff" * 64], ids=len)
def test_garbage_is_corrupt_not_a_crash(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(CorruptBatch, RecordsTooLarge):
        assert len(decompress(codec, garbage, MEGABYTE)) <= MEGABYTE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_streams_never_pass_for_whole(codec: Codec) -> None:
    data = NOISE[:100_000]
    encoded = compress(codec, data)
    for cut in range(1, len(encoded), len(encoded) // 50):
        with contextlib.suppress(CorruptBatch, RecordsTooLarge):
            assert decompress(codec, encoded[:cut], MEGABYTE) != data


def test_raw_snappy_as_librdkafka_writes_it() -> None:
    data = b"record" * 10_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MEGABYTE) == data


def test_concatenated_xerial_streams() -> None:
    encoded = compress(Codec.SNAPPY, b"one" * 30_000) + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, encoded, MEGABYTE) == b"one" * 30_000 + b"two"


def test_xerial_blocks_that_leave_the_stream() -> None:
    header = compress(Codec.SNAPPY, b"")
    for rest in (b"\x00", struct.pack(">i", 100) + b"xx", struct.pack(">i", -5) + b"xxxxxxxx"):
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, header + rest, MEGABYTE)


def test_several_gzip_members() -> None:
    encoded = gzip.compress(b"a" * 5000) + gzip.compress(b"b" * 50_000)
    assert decompress(Codec.GZIP, encoded, MEGABYTE) == b"a" * 5000 + b"b" * 50_000


def test_several_zstd_frames_with_and_without_content_size() -> None:
    streaming = cramjam.zstd.Compressor(3)
    streaming.compress(b"s" * 100_000)
    encoded = bytes(streaming.finish()) + bytes(cramjam.zstd.compress(b"t" * 100_000))
    assert decompress(Codec.ZSTD, encoded, MEGABYTE) == b"s" * 100_000 + b"t" * 100_000
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.ZSTD, encoded, 199_999)


def test_lz4_frames_of_other_encoders() -> None:
    data = b"linked" * 50_000
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)), MEGABYTE) == data
    twice = compress(Codec.LZ4, data) + compress(Codec.LZ4, b"again")
    assert decompress(Codec.LZ4, twice, MEGABYTE) == data + b"again"


def test_our_lz4_blocks_are_independent_as_java_demands() -> None:
    encoded = compress(Codec.LZ4, b"x" * 200_000)
    version_and_independence = encoded[4] & 0xE0
    assert version_and_independence == 0x60
    assert encoded[5] == 0x40


def test_our_snappy_is_framed_as_java_frames_it() -> None:
    encoded = compress(Codec.SNAPPY, b"x" * 100)
    assert encoded[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def test_gzip_is_readable_by_zlib() -> None:
    assert zlib.decompress(compress(Codec.GZIP, b"y" * 1000), 31) == b"y" * 1000


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [-1, 1, 9]), (Codec.LZ4, [1, 9, 17]), (Codec.ZSTD, [-131072, -5, 1, 22])],
)
def test_every_level_a_topic_may_ask_for(codec: Codec, levels: list[int]) -> None:
    data = NOISE[:500] * 20
    for level in levels:
        assert decompress(codec, compress(codec, data, level), MEGABYTE) == data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    calls: list[Callable[[], object]] = [lambda: compress(codec, b"x"), lambda: decompress(codec, b"x", 10)]
    for call in calls:
        with pytest.raises(KafkaError) as refused:
            call()
        assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
