"""`python -m bench.rolling`: how long readers stand still while all brokers are restarted, one after the other.

A group of five consumers reads twelve partitions, with librdkafka's settings as they come, and commits what it has
read five times a second. A record goes to each partition every ten milliseconds. Each broker is stopped in good order
and started again, and the next follows when all replicas are in sync. What counts is the time between two records of a
partition as its reader sees them, around each restart; that no commit is lost; and how often the group was rebalanced.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.subjects import keep_bytecode
from penstock.testing.clusters import RunningCluster, start_cluster

TOPIC = "bench-rolling"
PARTITIONS = 12
MEMBERS = 5
INTERVAL_S = 0.010
COMMIT_S = 0.2
SETTLED_S = 60.0

GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Feed(threading.Thread):
    """A record to every partition, again and again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._stopping = threading.Event()
        self.acknowledged = [0] * PARTITIONS
        self.failures: list[str] = []

    def run(self) -> None:
        due = time.perf_counter()
        while not self._stopping.is_set():
            due = max(due + INTERVAL_S, time.perf_counter() - 1.0)
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=self._report)
            self._producer.poll(0)
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
        self._producer.flush(SETTLED_S)

    def _report(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()] += 1
        else:
            self.failures.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@dataclass
class Seen:
    """What all members saw, by partition."""

    moments: list[list[float]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    positions: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    committed: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    rebalances: int = 0
    members: set[int] = field(default_factory=set)
    """Those that have been given partitions."""
    refused: list[str] = field(default_factory=list)


class Member(threading.Thread):
    def __init__(self, bootstrap: str, group: str, settings: dict[str, Any], seen: Seen) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        self._seen = seen
        self._stopping = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        committed_at = 0.0
        while not self._stopping.is_set():
            for message in self._consumer.consume(100, 0.005):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self._seen.moments[partition].append(time.perf_counter())
                    self._seen.positions[partition] = offset + 1
            if time.perf_counter() > committed_at + COMMIT_S:
                self._commit()
                committed_at = time.perf_counter()
        self._commit()
        self._consumer.close()

    def _assigned(self, *_: object) -> None:
        self._seen.rebalances += 1
        self._seen.members.add(id(self))

    def _commit(self) -> None:
        """On the main loop, as programs do: a commit that takes long holds up what is read."""
        try:
            for each in self._consumer.commit(asynchronous=False):
                if each.error is None and each.offset >= 0:
                    self._seen.committed[each.partition] = each.offset
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self._seen.refused.append(str(error))

    def stop(self) -> None:
        self._stopping.set()


def stored_offsets(bootstrap: str, group: str) -> list[int]:
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        found = asking.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], SETTLED_S)
        return [each.offset for each in found]
    finally:
        asking.close()


@dataclass
class Restart:
    broker: int
    seconds: float
    pauses: list[float]
    """The longest time without a record, by partition."""


@dataclass
class Result:
    group: str
    restarts: list[Restart]
    rebalances: int
    refused_commits: list[str]
    records: int

    def to_json(self) -> dict[str, Any]:
        every = [pause for restart in self.restarts for pause in restart.pauses]
        return {**asdict(self), "median_s": median(every), "max_s": max(every)}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.perf_counter() + SETTLED_S
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{what}: not within {SETTLED_S:g} s")
        time.sleep(0.01)


def wait_settled(feed: Feed, seen: Seen) -> None:
    """Until what is written from now on is read."""
    wanted = [count + 100 for count in feed.acknowledged]
    wait_for(lambda: all(there >= end for there, end in zip(seen.positions, wanted, strict=True)), "readers go on")


def longest_pauses(seen: Seen, since: float) -> list[float]:
    """By partition, the longest time that passed between two records of which the later came after `since`."""
    pauses = []
    for moments in seen.moments:
        late = [moment for moment in moments if moment > since - 1.0]
        gaps = [later - earlier for earlier, later in pairwise(late) if later > since]
        pauses.append(max(gaps, default=time.perf_counter() - since))
    return pauses


def rolling_restart(cluster: RunningCluster, name: str) -> Result:
    feed, seen = Feed(cluster.bootstrap), Seen()
    group = f"{TOPIC}-{name}-{time.time_ns()}"
    members = [Member(cluster.bootstrap, group, GROUPS[name], seen) for _ in range(MEMBERS)]
    feed.start()
    for member in members:
        member.start()
    restarts = []
    try:
        wait_for(lambda: len(seen.members) == MEMBERS, "everybody joins")
        wait_settled(feed, seen)
        seen.rebalances = 0
        for broker in cluster.brokers:
            began = time.perf_counter()
            broker.stop()
            broker.start()
            for topic in (TOPIC, "__consumer_offsets"):
                cluster.wait_for_isr(topic)
            wait_settled(feed, seen)
            restarts.append(Restart(broker.node_id, time.perf_counter() - began, longest_pauses(seen, began)))
        committed, stored = list(seen.committed), stored_offsets(cluster.bootstrap, group)
        lost = [index for index in range(PARTITIONS) if stored[index] < committed[index]]
        if lost:
            raise RuntimeError(f"commits were lost: {committed} were acknowledged, {stored} are there")
    finally:
        feed.stop()
        for member in members:
            member.stop()
        for member in members:
            member.join()
    if feed.failures:
        raise RuntimeError(f"{len(feed.failures)} records were refused: {feed.failures[0]}")
    return Result(name, restarts, seen.rebalances, seen.refused, sum(feed.acknowledged))


def show(console: Console, results: list[Result]) -> None:
    table = Table(title="Time without a record, a partition, while a broker is restarted", title_justify="left")
    for heading in ("group", "broker", "p50", "max", "restart"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for result in results:
        for restart in result.restarts:
            table.add_row(
                result.group,
                str(restart.broker),
                f"{median(restart.pauses):.3f} s",
                f"{max(restart.pauses):.3f} s",
                f"{restart.seconds:.1f} s",
            )
    console.print(table)
    for result in results:
        console.print(
            f"{result.group}: {result.rebalances} assignments after the start, "
            f"{len(result.refused_commits)} commits refused and none lost, {result.records} records"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rolling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="of each kind of group (default: 1)")
    parser.add_argument("--only", action="append", default=[], choices=list(GROUPS), help="a kind; repeatable")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="penstock-rolling-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_cluster(os.path.join(directory, "cluster")) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS, 3)
            for name in arguments.only or GROUPS:
                results += [rolling_restart(cluster, name) for _ in range(arguments.rounds)]
    show(Console(), results)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([result.to_json() for result in results], file, indent=1)


if __name__ == "__main__":
    main()
