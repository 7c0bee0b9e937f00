"""`python -m bench.spread`: many brokers with many partitions, as real processes.

How long it takes until all partitions are led and in sync, how evenly replicas and leaders are spread over the brokers,
and what a broker then costs. On a machine with few cores the brokers mostly wait for each other.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter

from rich.console import Console

from bench.processes import cpu_seconds, resident_bytes
from bench.subjects import keep_bytecode
from penstock.client.admin import Admin
from penstock.testing.clusters import RunningCluster, start_cluster

PARTITIONS_A_TOPIC = 500
READY_S = 600.0
IDLE_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spread", description=__doc__)
    parser.add_argument("--brokers", type=int, default=20, metavar="N", help="(default: 20)")
    parser.add_argument("--partitions", type=int, default=10_000, metavar="N", help="in all (default: 10,000)")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="of each partition (default: 1)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-spread-") as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        began = time.perf_counter()
        with start_cluster(
            os.path.join(directory, "cluster"), brokers=arguments.brokers, ready_timeout=READY_S
        ) as cluster:
            console.print(f"{arguments.brokers} brokers are ready after {time.perf_counter() - began:.1f} s")
            began = time.perf_counter()
            topics = [f"spread-{number}" for number in range(arguments.partitions // PARTITIONS_A_TOPIC)]
            with Admin(cluster.bootstrap, timeout=READY_S) as admin:
                for topic in topics:
                    admin.topics.create(topic, partitions=PARTITIONS_A_TOPIC, replication_factor=arguments.replicas)
            console.print(f"{arguments.partitions:,} partitions are created after {time.perf_counter() - began:.1f} s")
            for topic in topics:
                cluster.wait_for_isr(topic, READY_S)
            console.print(f"all are led and in sync after {time.perf_counter() - began:.1f} s")
            _spread(console, cluster, topics)
            _cost(console, cluster)


def _spread(console: Console, cluster: RunningCluster, topics: list[str]) -> None:
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    with Admin(cluster.bootstrap, timeout=READY_S) as admin:
        for topic in admin.topics.describe(topics):
            for partition in topic.partitions:
                replicas.update(partition.replicas)
                leaders.update([partition.leader or 0])
    for what, counts in (("replicas", replicas), ("leaders", leaders)):
        console.print(f"{what} a broker: {min(counts.values()):,} to {max(counts.values()):,}")


def _cost(console: Console, cluster: RunningCluster) -> None:
    pids = [node.pid for node in (*cluster.brokers, *cluster.controllers)]
    before, began = sum(map(cpu_seconds, pids)), time.perf_counter()
    time.sleep(IDLE_S)
    cpu = (sum(map(cpu_seconds, pids)) - before) / (time.perf_counter() - began) * 100
    memory = max(resident_bytes(broker.pid) for broker in cluster.brokers) / 1e6
    console.print(f"idle: {cpu:.1f}% of a core in all, up to {memory:.0f} MB a broker")


if __name__ == "__main__":
    main()
