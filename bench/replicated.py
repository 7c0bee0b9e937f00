"""`python -m bench.replicated`: what replication costs the leader and each follower, in CPU a produce request.

Three brokers on this machine. Every round sends each load to topics whose partitions are all led by one broker: without
followers, and with two followers and acks=1 or acks=all, in turn. The CPU of a process comes from /proc, so that other
work on the machine matters little; only ratios within a round are compared.

With `--compare FILE` the medians are put beside those of an earlier `--json FILE`. `make bench` runs the same loads,
and with `--kafka` also sends them to three nodes of Apache Kafka's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from statistics import median
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.table import Table

from bench.blaster import BlastSettings
from bench.loads import GIB, REPLICATED_LOADS, ReplicatedLoad
from bench.processes import cpu_seconds, run_job
from bench.progress import Steps
from bench.results import Row, spread_of
from bench.subjects import PEER, PENSTOCK, TOPIC_CONFIGS, keep_bytecode
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import start_cluster

PARTITIONS = 16
ALL, ONE = -1, 1
_NUMBERS = count(1)


class Broker(Protocol):
    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_directory(self) -> str: ...


class Cluster(Protocol):
    """Three brokers, ours or Apache Kafka's."""

    @property
    def brokers(self) -> Sequence[Broker]: ...
    def admin(self, timeout: float) -> AbstractContextManager[Admin]: ...
    def wait_for_isr(self, topic: str) -> None: ...
    def wait_until(self, condition: Callable[[], bool], what: str) -> None: ...


class Way(NamedTuple):
    name: str
    replicas: int
    acks: int


WAYS = (Way("factor 1", 1, ONE), Way("factor 3, acks=1", 3, ONE), Way("factor 3, acks=all", 3, ALL))


@dataclass
class Samples:
    """CPU us a request of leader and followers, and requests a second; those of one round have the same place."""

    leader: list[float] = field(default_factory=list)
    follower: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


Results = dict[str, dict[str, Samples]]


class Runs:
    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._leader, *self._followers = cluster.brokers

    def sample(self, load: ReplicatedLoad, way: Way, samples: Samples) -> None:
        with self._topic(way.replicas) as topic:
            settings = BlastSettings(
                port=self._leader.port,
                host=self._leader.host,
                server_pid=self._leader.pid,
                api="produce",
                topic=topic,
                connections=load.connections,
                depth=load.depth,
                value_size=load.value_size,
                batch_size=load.batch_size,
                acks=way.acks,
                seconds=self._seconds,
                max_bytes=GIB // 2,
            )
            before = self._followers_cpu()
            result = run_job("bench.blaster", asdict(settings))
            # The warm-up counts for the followers, which the load generator does not know; its requests are unknown
            # too, but as many a second as those that count.
            spent = self._followers_cpu() - before
            requests = result["requests"] * (1 + settings.warmup_s / result["seconds"])
            samples.leader.append(result["server_cpu_us"])
            samples.follower.append(spent / len(self._followers) / requests * 1e6)
            samples.rate.append(result["requests_per_second"])

    def _followers_cpu(self) -> float:
        return sum(cpu_seconds(broker.pid) for broker in self._followers)

    @contextmanager
    def _topic(self, replicas: int) -> Iterator[str]:
        name = f"bench-{next(_NUMBERS):06d}"
        everybody = [self._leader.node_id, *(broker.node_id for broker in self._followers)]
        with self._cluster.admin(30.0) as admin:
            admin.topics.create(name, assignment=[everybody[:replicas]] * PARTITIONS, configs=TOPIC_CONFIGS)
        self._cluster.wait_for_isr(name)
        yield name
        with self._cluster.admin(30.0) as admin:
            admin.topics.delete(name)
        self._cluster.wait_until(lambda: not self._directories(name), f"removal of {name}")

    def _directories(self, topic: str) -> list[str]:
        return [
            entry
            for broker in self._cluster.brokers
            for entry in os.listdir(broker.data_directory)
            if entry.startswith((topic + "-", topic + "."))
        ]


def measure(
    clusters: Sequence[Cluster],
    loads: Sequence[ReplicatedLoad],
    rounds: int,
    seconds: float,
    steps: Steps | None = None,
) -> list[Results]:
    """The results of each cluster; the clusters take turns."""
    everything = [Runs(cluster, seconds) for cluster in clusters]
    results: list[Results] = [{load.name: {way.name: Samples() for way in WAYS} for load in loads} for _ in clusters]
    for _ in range(rounds):
        for load in loads:
            for way in WAYS:
                for runs, of_cluster in zip(everything, results, strict=True):
                    if steps is not None:
                        steps.doing(f"produce {load.title}, {way.name}")
                    runs.sample(load, way, of_cluster[load.name][way.name])
                    if steps is not None:
                        steps.advance()
    return results


def rows(ours: Results, peer: Results | None, loads: Sequence[ReplicatedLoad]) -> list[Row]:
    """For the table of `make bench`: rates, and what followers cost the leader."""
    found = []
    for load in loads:
        for way in WAYS:
            rate = Row(load.name, f"produce {load.title}, {way.name} (of 3 brokers)", "requests/s")
            times = Row(
                load.name,
                f"produce {load.title}, {way.name}: leader's CPU to factor 1",
                "times",
                load.target if way.acks == ALL else None,
            )
            for subject, results in ((PENSTOCK, ours), (PEER, peer)):
                if results is not None:
                    samples, base = results[load.name][way.name], results[load.name][WAYS[0].name]
                    for value, cpu_us in zip(samples.rate, samples.leader, strict=True):
                        rate.add(subject, value, cpu_us)
                    for with_followers, without in zip(samples.leader, base.leader, strict=True):
                        times.add(subject, with_followers / without)
            found += [rate, times] if way.replicas > 1 else [rate]
    return found


def ratio(samples: Samples, base: Samples) -> float:
    """The median of the ratios of the rounds: what disturbs the machine disturbs both samples of a round."""
    return median(ours / other for ours, other in zip(samples.leader, base.leader, strict=True))


def table(results: Results, loads: Sequence[ReplicatedLoad], earlier: Results | None, rounds: int) -> Table:
    title = f"CPU us a produce request, medians of {rounds} rounds; load of the machine {os.getloadavg()[0]:.1f}"
    shown = Table(title=title, title_justify="left")
    headings = ["load", "", "leader", "spread", "to factor 1", "aim", "a follower", "requests/s"]
    for heading in [*headings, "leader before", "to factor 1 before"] if earlier else headings:
        shown.add_column(heading, justify="left" if heading in ("load", "") else "right")
    for load in loads:
        base = results[load.name][WAYS[0].name]
        for way in WAYS:
            samples = results[load.name][way.name]
            middle = median(samples.leader)
            cells = [load.title, way.name, f"{middle:.1f}", f"±{spread_of(samples.leader):.0%}"]
            cells += [f"{ratio(samples, base):.2f}" if way.replicas > 1 else ""]
            cells += [f"≤ {load.target.value:g}" if way.acks == ALL else ""]
            cells += [f"{median(samples.follower):.1f}" if way.replicas > 1 else "", f"{median(samples.rate):,.0f}"]
            if earlier and load.name in earlier:
                before = earlier[load.name][way.name]
                cells.append(f"{median(before.leader):.1f}")
                cells.append(f"{ratio(before, earlier[load.name][WAYS[0].name]):.2f}" if way.replicas > 1 else "")
            shown.add_row(*cells)
    return shown


def read(path: str) -> Results:
    with open(path) as file:
        stored = json.load(file)
    return {load: {way: Samples(**samples) for way, samples in ways.items()} for load, ways in stored.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replicated", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each load (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.5, metavar="S", help="of each sample (default: 1.5)")
    parser.add_argument(
        "--only", action="append", choices=[load.name for load in REPLICATED_LOADS], help="a load; repeatable"
    )
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    parser.add_argument("--compare", metavar="FILE", help="the samples of an earlier run, shown beside")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    loads = [load for load in REPLICATED_LOADS if not arguments.only or load.name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="penstock-replicated-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_cluster(os.path.join(directory, "cluster"), controllers=1) as cluster:
            [results] = measure([cluster], loads, arguments.rounds, arguments.seconds)
    earlier = read(arguments.compare) if arguments.compare else None
    Console(width=150).print(table(results, loads, earlier, arguments.rounds))
    if arguments.json:
        with open(arguments.json, "w") as file:
            stored = {load: {way: asdict(samples) for way, samples in ways.items()} for load, ways in results.items()}
            json.dump(stored, file)


if __name__ == "__main__":
    main()
