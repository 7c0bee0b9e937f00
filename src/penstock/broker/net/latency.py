"""How long requests took, by API.

A request is counted when its answer is handed to the socket, or was found not to be wanted: with the time since the
read that brought it, so that what came before it in that read, and what it was parked for (replicas, data), is in it.
Buckets are powers of two of nanoseconds: finding one is a single instruction, and the error of a quantile is below a
factor of two whatever the load is.
"""

from __future__ import annotations

import time
from typing import Final

now_ns = time.perf_counter_ns

BITS: Final = 65
FIRST_BUCKET: Final = 14  # 16 us; whatever was quicker is in it
LAST_BUCKET: Final = 35  # 34 s


class Latency:
    __slots__ = ("counts", "name", "total_ns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = [0] * BITS
        """By the number of bits of the nanoseconds a request took."""
        self.total_ns = 0

    def add(self, elapsed_ns: int, requests: int = 1) -> None:
        self.counts[elapsed_ns.bit_length()] += requests
        self.total_ns += elapsed_ns * requests

    @property
    def requests(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds in seconds, and how many requests were at most that long."""
        counts = list(self.counts)
        below = sum(counts[:FIRST_BUCKET])
        found = []
        for bits in range(FIRST_BUCKET, LAST_BUCKET + 1):
            below += counts[bits]
            found.append((((1 << bits) - 1) / 1e9, below))
        return found


class Latencies:
    """Of every API, by Kafka's names; fetches of consumers and of followers apart, as Kafka has them."""

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
