"""The compression codecs of record batches, with decompression that is limited in memory.

Every decompression writes into our own buffer, whose size never exceeds the caller's limit; the codec stops when it is
full. If a format declares the size of its content, that is the first buffer size; otherwise the buffer grows by a
factor of four and the work starts over, which costs at most a third more than a known size would.

Two formats need care, because the Java client is stricter than the libraries:

- lz4: Java's reader refuses linked blocks, which the usual encoders write. Frames are assembled here from independent
  64 KiB blocks, as Java does.
- snappy: Java, kafka-python and kafkajs write xerial's framing around raw blocks, librdkafka one raw block. Both are
  read; xerial is written, which all clients read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import Buffer, CorruptBatch


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Kafka's spellings, for `compression.type`.
CODEC_NAMES: dict[str, Codec] = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

DEFAULT_GZIP_LEVEL = 6
DEFAULT_ZSTD_LEVEL = 3
# By default Kafka's lz4 uses the fast compressor; other levels select the high-compression one.
DEFAULT_LZ4_LEVEL = 9

_SMALLEST_GUESS = 4096
_GUESSED_RATIO = 4
_GROWTH = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024

# Magic, flags (version 1, independent blocks, no checksums), 64 KiB blocks, and the checksum of those two bytes.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

# The codecs' error when the output buffer is full: up to there it holds the contents.
_IS_FULL = "write whole buffer"
_INTO: dict[int, Callable[[Buffer, memoryview], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}

_BE_INT = struct.Struct(">i")
_LE_UINT = struct.Struct("<I")


class RecordsTooLarge(KafkaError):
    """Records whose decompressed size exceeds the limit: a decompression bomb, or an unreasonably large batch."""

    def __init__(self, codec: int, max_size: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE, f"records compressed with {Codec(codec).name.lower()} exceed {max_size} bytes"
        )


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the framing of Kafka's Java client; without `level`, at Kafka's default level."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=DEFAULT_GZIP_LEVEL if level in (None, -1) else level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, DEFAULT_LZ4_LEVEL if level is None else level)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=DEFAULT_ZSTD_LEVEL if level is None else level))
    raise unknown_codec(codec)


def decompress(codec: int, data: Buffer, max_size: int) -> bytes:
    """Decompress to at most `max_size` bytes; CorruptBatch if the codec cannot decode the data."""
    if codec == Codec.NONE:
        if len(data) > max_size:
            raise RecordsTooLarge(codec, max_size)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_bounded(codec, cramjam.gzip.decompress_into, data, _gzip_hint(data), max_size)
    if codec == Codec.SNAPPY:
        if bytes(data[:8]) == _XERIAL_MAGIC:
            return _decompress_xerial(data, max_size)
        return _decompress_snappy_block(data, max_size)
    if codec == Codec.LZ4:
        return _decompress_bounded(codec, cramjam.lz4.decompress_into, data, _lz4_hint(data), max_size)
    if codec == Codec.ZSTD:
        return _decompress_bounded(codec, cramjam.zstd.decompress_into, data, _zstd_hint(data), max_size)
    raise unknown_codec(codec)


def decompress_start(codec: int, data: Buffer, size: int, max_size: int) -> tuple[Buffer, bool]:
    """The first `size` bytes of the contents, and whether they are all of them.

    Snappy's blocks are returned whole, up to `max_size`: their contents are at most about twenty times as large.
    """
    if codec == Codec.NONE or not data:
        return data, True
    if codec == Codec.SNAPPY:
        return decompress(codec, data, max_size), True
    decompress_into = _INTO.get(codec)
    if decompress_into is None:
        raise unknown_codec(codec)
    # Memory from the kernel: filling a large bytearray with zeros would block every other thread.
    output = memoryview(mmap.mmap(-1, size))
    try:
        written = decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if _IS_FULL not in str(error):
            raise CorruptBatch(f"records do not decompress as {Codec(codec).name.lower()}: {error}") from error
        return output, False
    return output[:written], True


def unknown_codec(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")


def _decompress_bounded(
    codec: int, decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, hint: int, max_size: int
) -> bytes:
    size = min(max(hint, len(data) * _GUESSED_RATIO, _SMALLEST_GUESS), max_size)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _IS_FULL not in str(error):
                raise CorruptBatch(f"records do not decompress as {Codec(codec).name.lower()}: {error}") from error
        else:
            return bytes(memoryview(output)[:written])
        if size >= max_size:
            raise RecordsTooLarge(codec, max_size)
        size = min(size * _GROWTH, max_size)


def _gzip_hint(data: Buffer) -> int:
    """The last member's trailer ends with its size modulo 2^32."""
    return int(_LE_UINT.unpack_from(data, len(data) - 4)[0]) if len(data) >= 18 else 0


def _lz4_hint(data: Buffer) -> int:
    """A frame with flag bit 3 declares its content size after the two descriptor bytes."""
    if len(data) >= 15 and data[4] & 0x08:
        return int.from_bytes(data[6:14], "little")
    return 0


def _zstd_hint(data: Buffer) -> int:
    """The first frame's content size, if its header has one."""
    if len(data) < 14 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    size_flag = descriptor >> 6
    single_segment = descriptor & 0x20
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if size_flag == 0:
        return data[start] if single_segment else 0
    width = (1, 2, 4, 8)[size_flag]
    return int.from_bytes(data[start : start + width], "little") + (256 if size_flag == 1 else 0)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_BE_INT.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy_block(data: Buffer, max_size: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_size:
            raise RecordsTooLarge(Codec.SNAPPY, max_size)
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"records do not decompress as snappy: {error}") from error
    return bytes(memoryview(output)[:written])


def _decompress_xerial(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    left = max_size
    position = len(_XERIAL_HEADER)
    end = len(view)
    while position < end:
        if position + 4 > end:
            raise CorruptBatch("xerial snappy stream ends within a block length")
        (length,) = _BE_INT.unpack_from(view, position)
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # streams may be concatenated
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if length < 0 or position + length > end:
            raise CorruptBatch(f"xerial snappy block of {length} bytes with {end - position} left")
        block = _decompress_snappy_block(view[position : position + length], left)
        parts.append(block)
        left -= len(block)
        position += length
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        if level == DEFAULT_LZ4_LEVEL:
            compressed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        else:
            compressed = bytes(
                cramjam.lz4.compress_block(block, mode="high_compression", compression=level, store_size=False)
            )
        if len(compressed) < len(block):
            parts.append(_LE_UINT.pack(len(compressed)))
            parts.append(compressed)
        else:
            parts.append(_LE_UINT.pack(len(block) | _LZ4_STORED))
            parts.append(bytes(block))
    parts.append(_LZ4_END)
    return b"".join(parts)
