"""`python -m bench.cluster`: three brokers on this machine, replication factor 3.

Throughput and latency with acks=all beside acks=1, in turn, by librdkafka; and what the cluster costs when no one uses
it. Brokers, controllers and clients share the cores, so the figures are of the machine as much as of the cluster.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count

from rich.console import Console

from bench.clients import ClientSettings
from bench.latency import LatencySettings
from bench.loads import LATENCY_RATE
from bench.processes import cpu_seconds, resident_bytes, run_job
from bench.results import Row, Target
from bench.subjects import PENSTOCK, TOPIC_CONFIGS, keep_bytecode
from bench.table import amount, target_text
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS = 6
VALUE_SIZES = {"100 B": 100, "1 KiB": 1024}
_NUMBERS = count(1)


class Runs:
    def __init__(self, cluster: RunningCluster, rounds: int, seconds: float) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._seconds = seconds

    def idle(self) -> list[Row]:
        """CPU of all six processes, and memory of a broker, while each broker follows the two others."""
        cpu = Row("idle", "CPU of the idle cluster, all nodes", "%", Target("below", 3.0))
        memory = Row("idle", "memory of a broker, idle", "MB", Target("below", 60.0))
        pids = [node.pid for node in (*self._cluster.brokers, *self._cluster.controllers)]
        with self._topic():
            for _ in range(self._rounds):
                before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
                time.sleep(self._seconds)
                cpu.add(PENSTOCK, (sum(map(cpu_seconds, pids)) - before) / (time.perf_counter() - began) * 100)
        for broker in self._cluster.brokers:
            memory.add(PENSTOCK, resident_bytes(broker.pid) / 1e6)
        return [cpu, memory]

    def throughput(self, title: str, value_size: int) -> list[Row]:
        rows = {
            acks: Row(acks, f"librdkafka {title} produce, acks={acks}", "messages/s", None, value_size)
            for acks in ("1", "all")
        }
        for _ in range(self._rounds):
            for acks, row in rows.items():
                with self._topic() as topic:
                    settings = ClientSettings(
                        bootstrap=self._cluster.bootstrap,
                        action="produce",
                        topic=topic,
                        partitions=PARTITIONS,
                        value_size=value_size,
                        seconds=self._seconds,
                        max_messages=1_500_000_000 // value_size,
                        acks=acks,
                    )
                    row.add(PENSTOCK, run_job("bench.clients", asdict(settings))["messages_per_second"])
        return list(rows.values())

    def latency(self) -> list[Row]:
        rows: list[Row] = []
        for acks in ("1", "all"):
            targets = {"p50": None, "p99": Target("below", 10.0) if acks == "all" else None}
            of_acks = {
                quantile: Row("latency", f"end to end at {LATENCY_RATE}/s, acks={acks}: {quantile}", "ms", target)
                for quantile, target in targets.items()
            }
            for _ in range(self._rounds):
                with self._topic(partitions=1) as topic:
                    settings = LatencySettings(
                        bootstrap=self._cluster.bootstrap,
                        topic=topic,
                        messages_per_second=LATENCY_RATE,
                        seconds=self._seconds,
                        acks=acks,
                    )
                    result = run_job("bench.latency", asdict(settings))
                    for quantile, row in of_acks.items():
                        row.add(PENSTOCK, result[f"{quantile}_ms"])
            rows += of_acks.values()
        return rows

    @contextmanager
    def _topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        name = f"bench-{next(_NUMBERS)}"
        self._cluster.create_topic(name, partitions, 3, TOPIC_CONFIGS)
        yield name
        with self._cluster.admin() as admin:
            admin.topics.delete(name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each load (default: 3)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of each round (default: 4)")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-cluster-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_cluster(os.path.join(directory, "cluster")) as cluster:
            runs = Runs(cluster, arguments.rounds, arguments.seconds)
            _print(console, runs.idle())
            _print(console, runs.latency())
            for title, value_size in VALUE_SIZES.items():
                rows = runs.throughput(title, value_size)
                _print(console, rows)
                one, every = (row.result or 0.0 for row in rows)
                console.print(f"  acks=all to acks=1: {every / one:.2f} (≥ 0.25)")


def _print(console: Console, rows: list[Row]) -> None:
    for row in rows:
        verdict = {True: "met", False: "missed", None: ""}[row.met]
        console.print(f"{row.title}: {amount(row, row.result)} {target_text(row.target)} {verdict}")


if __name__ == "__main__":
    main()
