"""Maps a group or a transactional id to a partition of an internal topic.

It uses Java's hash of the name, as all Kafka brokers and tools do.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF


@lru_cache(maxsize=1 << 14)  # every request of every member needs it
def java_hash(text: str) -> int:
    """Java's `String.hashCode`, over UTF-16 units, as an unsigned number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & _MASK
    return value


def partition_for(key: str, partitions: int) -> int:
    """Like Kafka's `Utils.abs`: the one number that has no absolute value becomes 0."""
    value = java_hash(key)
    if value > 0x7FFFFFFF:
        value = 0x1_0000_0000 - value
    return 0 if value == 0x8000_0000 else value % partitions
