"""Partitioners: which partition a record goes to.

A record with a key goes to the same partition as with Kafka's Java clients: murmur2 of its bytes, modulo the number of
partitions. So all records of a key share a partition, and with it their order, whichever client writes them; adding
partitions moves keys. librdkafka computes this for the Producer; `murmur2` is here for code that must know the
partition beforehand, and as a fallback for custom partitioners.

Records without a key are distributed: one partition after the other, or one partition for as long as a batch lingers
(sticky), which makes larger batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

SpreadName = Literal["round_robin", "sticky"]

Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]
"""From topic, key, value (both as bytes) and number of partitions to a partition; None for the default."""

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
    """Return the partition of a record with this key, on a topic with this many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
