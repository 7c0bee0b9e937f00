"""Which partition a record goes to.

A record with a key goes where Kafka's Java clients put the key: murmur2 of its bytes, modulo the number of partitions.
So all records of a key share a partition, and with it their order, whoever writes them; adding partitions moves keys.
librdkafka computes this for the Producer; `murmur2` is here for whoever must know the place beforehand, and a
partitioner of one's own may fall back to it.

Records without a key are spread: one partition after the other, or one at a time for as long as a batch lingers
(sticky), which makes larger batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SpreadName = Literal["round_robin", "sticky"]

Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]
"""From topic, key, value (both as bytes) and number of partitions to a partition; None: the usual one."""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32 bits of MurmurHash2 with Kafka's seed, unsigned."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where a record with this key goes, on a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
