"""`python -m bench.spread`: many brokers with many partitions, as real processes.

How long it takes until all partitions are led and in sync, how evenly replicas and leaders are spread over the brokers,
and what a broker costs while nothing happens. Then a record goes to every partition; a broker is stopped, and started,
until all replicas are in sync again; the same with one that is killed, and how long it takes until others lead what it
led; and the active controller is killed, until another creates a topic. On a machine with few cores the brokers mostly
wait for each other.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

from bench.failover import is_created
from bench.processes import cpu_seconds, resident_bytes
from bench.subjects import keep_bytecode
from penstock.client.wire.admin.topics import PartitionDescription
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode

PARTITIONS_A_TOPIC = 500
READY_S = 600.0
IDLE_S = 20.0


class Spread:
    def __init__(self, console: Console, cluster: RunningCluster, topics: list[str], replicas: int) -> None:
        self._console = console
        self._cluster = cluster
        self._topics = topics
        self._replicas = replicas
        self._began = 0.0

    def measure(self) -> None:
        self._start_clock()
        with self._cluster.admin(READY_S) as admin:
            for topic in self._topics:
                admin.topics.create(topic, partitions=PARTITIONS_A_TOPIC, replication_factor=self._replicas)
        self._say("created")
        self._wait(lambda each: each.leader is not None and not each.under_replicated)
        self._say("all are led and in sync")
        self._evenness()
        self._cost()
        self._write()
        *_, stopped, killed = self._cluster.brokers
        self._stop_broker(stopped)
        self._kill_broker(killed)
        self._kill_controller()

    def _start_clock(self) -> None:
        self._began = time.perf_counter()

    def _say(self, what: str) -> None:
        self._console.print(f"{what} after {time.perf_counter() - self._began:.1f} s")

    def _partitions(self) -> list[PartitionDescription]:
        with self._cluster.admin(READY_S) as admin:
            return [partition for topic in admin.topics.describe(self._topics) for partition in topic.partitions]

    def _wait(self, holds: Callable[[PartitionDescription], bool]) -> None:
        self._cluster.wait_until(lambda: all(map(holds, self._partitions())), "the partitions", READY_S)

    def _evenness(self) -> None:
        replicas: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        for partition in self._partitions():
            replicas.update(partition.replicas)
            leaders.update([partition.leader or 0])
        for what, counts in (("replicas", replicas), ("leaders", leaders)):
            self._console.print(f"{what} a broker: {min(counts.values()):,} to {max(counts.values()):,}")

    def _cost(self) -> None:
        brokers = [broker.pid for broker in self._cluster.brokers]
        controllers = [controller.pid for controller in self._cluster.controllers]
        before = {pid: cpu_seconds(pid) for pid in (*brokers, *controllers)}
        began = time.perf_counter()
        time.sleep(IDLE_S)
        seconds = time.perf_counter() - began
        for what, pids in (("broker", brokers), ("controller", controllers)):
            cpu = [(cpu_seconds(pid) - before[pid]) / seconds * 100 for pid in pids]
            memory = [resident_bytes(pid) / 1e6 for pid in pids]
            files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
            self._console.print(
                f"an idle {what}: {min(cpu):.1f} to {max(cpu):.1f}% of a core ({sum(cpu):.0f}% in all), "
                f"{min(memory):.0f} to {max(memory):.0f} MB, up to {max(files):,} open files"
            )

    def _write(self) -> None:
        """A record to each partition, acknowledged by all replicas."""
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all", "linger.ms": 100})
        self._start_clock()
        for topic in self._topics:
            for index in range(PARTITIONS_A_TOPIC):
                producer.produce(topic, b"x" * 100, partition=index, on_delivery=delivered)
                producer.poll(0)
        left = producer.flush(READY_S)
        if left or refused:
            raise RuntimeError(f"{left + len(refused)} records were not acknowledged: {refused[:3]}")
        self._say("a record is in every partition, acks=all")

    def _stop_broker(self, victim: RunningNode) -> None:
        self._start_clock()
        victim.stop()
        self._say("a broker stopped: gone")
        victim.start()
        self._wait(lambda each: not each.under_replicated)
        self._say("stopped and started again: all replicas in sync")

    def _kill_broker(self, victim: RunningNode) -> None:
        led = sum(partition.leader == victim.node_id for partition in self._partitions())
        self._start_clock()
        victim.kill()
        self._wait(lambda each: each.leader not in (None, victim.node_id))
        self._say(f"a broker killed: others lead its {led:,} partitions")
        self._start_clock()
        victim.start()
        self._say("started again: ready")
        self._wait(lambda each: not each.under_replicated)
        self._say("started again: all replicas in sync")

    def _kill_controller(self) -> None:
        controller = self._cluster.active_controller()
        self._start_clock()
        controller.kill()
        with self._cluster.admin(READY_S) as admin:
            self._cluster.wait_until(lambda: is_created(admin, "spread-afterwards"), "a new topic")
        self._say("the active controller killed: another creates a topic")
        controller.start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spread", description=__doc__)
    parser.add_argument("--brokers", type=int, default=20, metavar="N", help="(default: 20)")
    parser.add_argument("--partitions", type=int, default=10_000, metavar="N", help="in all (default: 10,000)")
    parser.add_argument("--replicas", type=int, default=3, metavar="N", help="of each partition (default: 3)")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-spread-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        began = time.perf_counter()
        with start_cluster(
            os.path.join(directory, "cluster"), brokers=arguments.brokers, ready_timeout=READY_S
        ) as cluster:
            console.print(f"{arguments.brokers} brokers are ready after {time.perf_counter() - began:.1f} s")
            topics = [f"spread-{number}" for number in range(arguments.partitions // PARTITIONS_A_TOPIC)]
            Spread(console, cluster, topics, arguments.replicas).measure()


if __name__ == "__main__":
    main()
