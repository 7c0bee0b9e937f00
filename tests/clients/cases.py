"""Records that a broker or a client could get wrong, and the arithmetic clients must agree on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from clients.drivers import Client, Header, Position, Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

BASE_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
"""An hour ago: in the past, so that no client's own clock can be mistaken for it, and well within any retention."""


def awkward_records(client: Client, partitions: Sequence[int] = (0, 2)) -> list[Record]:
    """Nulls, empties, duplicates, binary and text, with explicit timestamps that go forth and back."""
    no_value = None if client.sends_null_headers else b""
    kinds: list[tuple[bytes | None, bytes | None, tuple[Header, ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"empty value", b"", ()),
        (b"", b"empty key", ()),
        (b"headers", b"one", (Header("trace", b"00-4bf9"),)),
        (b"headers", b"twice the same name", (Header("tag", b"a"), Header("tag", b"b"), Header("tag", b"a"))),
        (b"headers", b"null and empty", (Header("null", no_value), Header("empty", b""))),
        (b"headers", None, (Header("reason", b"deleted"),)),
        (b"headers", b"not text", (Header("bytes", bytes(range(256))), Header("naïve ☃", b"\xff\xfe"))),
        (bytes(range(256)), bytes(reversed(range(256))), ()),
        ("schlüssel".encode(), "wert ☃ 𝄞".encode(), ()),
        (b"compressible", b"abcdefgh" * 2_500, ()),
        (b"last", b"\x00", ()),
    ]
    return [
        Record(key, value, headers, BASE_TIMESTAMP_MS + 1000 * (index % 4) + index, partition)
        for partition in partitions
        for index, (key, value, headers) in enumerate(kinds)
    ]


def as_read(records: Iterable[Record], positions: Iterable[Position]) -> list[Record]:
    """What a consumer must see of records that were sent and got these positions: by partition, then offset."""
    stored = [
        record._replace(partition=position.partition, offset=position.offset)
        for record, position in zip(records, positions, strict=True)
    ]
    return by_position(stored)


def by_position(records: Iterable[Record]) -> list[Record]:
    """Order by partition, keep the order of arrival within each: readers may interleave partitions, never offsets."""
    return sorted(records, key=lambda record: record.partition or 0)


def numbered_records(count: int, partitions: int = 1, size: int = 100) -> list[Record]:
    return [Record(b"%d" % n, b"%0*d" % (size, n), (), BASE_TIMESTAMP_MS + n, n % partitions) for n in range(count)]


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as an unsigned 32-bit number."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    result = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        result = (result * multiplier & mask) ^ word
    if tail := data[whole:]:
        result = (result ^ int.from_bytes(tail, "little")) * multiplier & mask
    result = (result ^ result >> 13) * multiplier & mask
    return result ^ result >> 15


def default_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
