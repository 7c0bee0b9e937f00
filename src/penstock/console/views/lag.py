"""Lag in seconds, from when the ends of partitions were where.

The record that a group reads next was written about when the end of the partition passed it. Ends are remembered for
the partitions that groups read, thinned as they grow old, so that hours fit into a few hundred pairs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from penstock.model.ids import TopicPartition

REMEMBERED = 512


class EndTimes:
    def __init__(self) -> None:
        self._ends: dict[TopicPartition, list[tuple[int, int]]] = {}

    def remember(self, partition: TopicPartition, end: int, at_ms: int) -> None:
        """Only changes are kept, and the last time that an end was seen."""
        seen = self._ends.setdefault(partition, [])
        if seen and end < seen[-1][0]:
            seen.clear()  # deleted and created again, or cut
        if len(seen) >= 2 and seen[-1][0] == seen[-2][0] == end:
            seen[-1] = (end, at_ms)
        else:
            seen.append((end, at_ms))
        if len(seen) > REMEMBERED:
            half = len(seen) // 2
            self._ends[partition] = [*seen[:half:2], *seen[half:]]

    def keep_only(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        for gone in self._ends.keys() - wanted:
            del self._ends[gone]

    def seconds_behind(self, partition: TopicPartition, committed: int, now_ms: int) -> float | None:
        """None if the record was written before the first time that is remembered."""
        seen = self._ends.get(partition)
        if not seen:
            return None
        if committed >= seen[-1][0]:
            return 0.0
        index = bisect_right(seen, (committed, now_ms))
        if index == 0:
            return None
        (low, left_ms), (high, right_ms) = seen[index - 1], seen[index]
        share = (committed - low) / (high - low) if high > low else 0.0
        return max(0.0, (now_ms - (left_ms + share * (right_ms - left_ms))) / 1000)
