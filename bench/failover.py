"""`python -m bench.failover`: how long writes stand still when a node of three goes away.

librdkafka writes one record every two milliseconds to one partition, acks=all and idempotent, with its settings as
they come. Then a node goes: the partition's leader, killed or stopped; or the active controller, killed. What counts is
the longest time in which nothing was acknowledged, around that moment. For the controller also: how long until the
cluster creates a topic again, which no load keeps anybody from noticing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median

from confluent_kafka import Producer
from rich.console import Console

from bench.results import Row, Target
from bench.subjects import PENSTOCK, keep_bytecode
from bench.table import amount, target_text
from penstock.client.wire.admin import Admin
from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.clusters import RunningCluster, start_cluster

TOPIC = "bench-failover"
INTERVAL_S = 0.002
SETTLED_RECORDS = 200
RECOVERY_S = 60.0


class Load(threading.Thread):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        self._stopping = threading.Event()
        self.sent = 0
        self.acknowledged: list[tuple[int, float]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        due = time.perf_counter()
        while not self._stopping.is_set():
            due = max(due + INTERVAL_S, time.perf_counter() - 1.0)
            self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=self._report(self.sent))
            self.sent += 1
            self._producer.poll(0)
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)  # it returns with every acknowledgement
        self._producer.flush(RECOVERY_S)

    def _report(self, number: int) -> Callable[[object, object], None]:
        def report(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append((number, time.perf_counter()))
            else:
                self.failures.append(str(error))

        return report

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def wait_settled(self) -> None:
        """Until records that are sent from now on are acknowledged."""
        wanted = self.sent + SETTLED_RECORDS
        deadline = time.perf_counter() + RECOVERY_S
        while not self.acknowledged or self.acknowledged[-1][0] < wanted:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"writes do not go on: {self.failures[:3]}")
            time.sleep(0.01)

    def longest_pause(self, since: float) -> float:
        """Seconds, between two acknowledgements of which the later came after `since`."""
        times = [moment for _, moment in self.acknowledged]
        return max(later - earlier for earlier, later in pairwise(times) if later > since)


def leader_killed(cluster: RunningCluster, load: Load) -> float:
    leader = cluster.leader_of(TOPIC, 0)
    moment = time.perf_counter()
    leader.kill()
    load.wait_settled()
    pause = load.longest_pause(moment)
    leader.start()
    return pause


def leader_stopped(cluster: RunningCluster, load: Load) -> float:
    leader = cluster.leader_of(TOPIC, 0)
    moment = time.perf_counter()
    leader.stop()
    load.wait_settled()
    pause = load.longest_pause(moment)
    leader.start()
    return pause


def controller_killed(cluster: RunningCluster, load: Load) -> float:
    controller = cluster.active_controller()
    moment = time.perf_counter()
    controller.kill()
    load.wait_settled()
    pause = load.longest_pause(moment)
    controller.start()
    return pause


def is_created(admin: Admin, topic: str) -> bool:
    """Whether it exists now: an attempt that got no answer may have been carried out."""
    try:
        admin.topics.create(topic, partitions=1)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return True


def metadata_after_controller_killed(cluster: RunningCluster, load: Load) -> float:
    controller = cluster.active_controller()
    topic = f"{TOPIC}-{load.sent}"
    moment = time.perf_counter()
    controller.kill()

    with cluster.admin(timeout=30.0) as admin:
        cluster.wait_until(lambda: is_created(admin, topic), "a new topic")
    seconds = time.perf_counter() - moment
    controller.start()
    return seconds


CASES: dict[str, tuple[str, Callable[[RunningCluster, Load], float], float]] = {
    "leader-killed": ("writes, leader killed", leader_killed, 1.5),
    "leader-stopped": ("writes, leader stopped (controlled shutdown)", leader_stopped, 0.1),
    "controller-killed": ("writes, active controller killed", controller_killed, 1.5),
    "metadata": ("new topics, active controller killed", metadata_after_controller_killed, 0.0),
}


def main() -> None:
    arguments = _arguments()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-failover-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_cluster(os.path.join(directory, "cluster")) as cluster:
            cluster.create_topic(TOPIC, 1)
            for name in arguments.only or CASES:
                title, measure, target = CASES[name]
                row = Row(name, title, "s", Target("below", target) if target else None)
                for _ in range(arguments.rounds):
                    row.add(PENSTOCK, _round(cluster, measure))
                samples = row.samples[PENSTOCK]
                console.print(
                    f"{title}: median {amount(row, median(samples))} of {len(samples)} "
                    f"({min(samples):.3f} to {max(samples):.3f}) {target_text(row.target)}"
                )


def _round(cluster: RunningCluster, measure: Callable[[RunningCluster, Load], float]) -> float:
    load = Load(cluster.bootstrap)
    load.start()
    try:
        load.wait_settled()
        seconds = measure(cluster, load)
        cluster.wait_for_isr(TOPIC)
    finally:
        load.stop()
    if load.failures:
        raise RuntimeError(f"{len(load.failures)} records were refused: {load.failures[0]}")
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each case (default: 10)")
    parser.add_argument("--only", action="append", default=[], choices=list(CASES), help="a case; repeatable")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
