"""Counters of a node that belong to no other object; they are incremented as events happen."""

from __future__ import annotations

from penstock.broker.net.latency import Latencies, Latency
from penstock.broker.partitions.replica import ReplicationCounts


class Counters:
    def __init__(self) -> None:
        self.requests = Latencies()
        self.replication = ReplicationCounts()
        self.loop_lag = Latency("loop")
        self.scrapes = 0
        self.series_left_out = 0  # in the last scrape
