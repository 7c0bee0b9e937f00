"""Which partition of an internal topic looks after a group or a transactional id: Java's hash of the name, as all
brokers and tools of Kafka compute it."""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=1 << 14)  # every request of every member asks for it
def java_hash(text: str) -> int:
    """`String.hashCode`, of UTF-16 units, without its sign."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & _MASK
    return value


def partition_for(key: str, partitions: int) -> int:
    """Kafka's `Utils.abs` drops the sign bit's meaning: the one number without an absolute value becomes 0."""
    value = java_hash(key)
    if value > 0x7FFFFFFF:
        value = 0x1_0000_0000 - value
    return 0 if value == 0x8000_0000 else value % partitions
