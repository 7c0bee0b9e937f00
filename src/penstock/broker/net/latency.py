"""Histograms of request latency, by API.

A request is counted when its answer is handed to the socket, or when it turns out to need no answer. Its latency is the
time since the read that brought it. It includes the requests handled before it in the same read, and the time it was
parked (for replicas or data). Buckets are powers of two of nanoseconds: finding a bucket takes a single instruction,
and the error of a quantile is below a factor of two at any load.
"""

from __future__ import annotations

import time
from typing import Final

now_ns = time.perf_counter_ns

BITS: Final = 65
FIRST_BUCKET: Final = 14  # 16 us; includes all faster requests
LAST_BUCKET: Final = 35  # 34 s


class Latency:
    __slots__ = ("counts", "name", "total_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = [0] * BITS
        """Requests by the bit length of their latency in nanoseconds."""
        self.total_ns = 0

    def add(self, elapsed_ns: int, requests: int = 1) -> None:
        self.counts[elapsed_ns.bit_length()] += requests
        self.total_ns += elapsed_ns * requests

    @property
    def requests(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds in seconds, each with the number of requests that took at most that long."""
        counts = list(self.counts)
        below = sum(counts[:FIRST_BUCKET])
        found = []
        for bits in range(FIRST_BUCKET, LAST_BUCKET + 1):
            below += counts[bits]
            found.append((((1 << bits) - 1) / 1e9, below))
        return found


class Latencies:
    """The latencies of all APIs, by Kafka's names. Consumer and follower fetches are separate, as in Kafka."""

    def __init__(self) -> None:
        self._by_name: dict[str, Latency] = {}
        self.produce = self.of("Produce")
        self.follower_fetch = self.of("FetchFollower")

    def of(self, name: str) -> Latency:
        latency = self._by_name.get(name)
        if latency is None:
            latency = self._by_name[name] = Latency(name)
        return latency

    def all(self) -> list[Latency]:
        return list(self._by_name.values())
