"""`python -m bench.transactions`: what transactions cost producers, on one broker and on three.

The same client, three ways in turn: records one after the other; the same in transactions of a thousand; and, to tell
what waiting costs from what transactions cost, the same with a wait for all acknowledgements after each thousand. The
clients are those of `bench/transactional_producers.py`; `--client java` needs a JDK and `--java-classpath`, the path of
Kafka's client library.

A transaction is two or three round trips one after the other (partitions join, with most clients; records; the end),
during which its producer does nothing else. One producer therefore shows how long a transaction takes, and several at
once what brokers and machine can do with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.processes import Job
from bench.subjects import keep_bytecode, penstock
from bench.transactional_producers import CLIENTS, JAVA, TIMEOUT_S, TOPIC, WAYS, ProducerSettings, produce
from penstock.client.wire.admin import Admin
from penstock.testing.clusters import start_cluster

TARGET = 0.8
START_S = 1.5
START_JAVA_S = 9.0  # its source is compiled first, and then what it does most
PEER = "peer"
_NUMBERS = count(1)


class Load(NamedTuple):
    brokers: str
    client: str
    producers: int


Samples = dict[str, list[float]]
"""Records a second, by way; those of one round have the same place."""


def sample(way: str, bootstrap: str, load: Load, arguments: argparse.Namespace) -> float:
    starts_at = time.time() + (START_JAVA_S if load.client == JAVA else START_S)
    jobs = [
        Job(
            "bench.transactions",
            asdict(
                ProducerSettings(
                    client=load.client,
                    bootstrap=bootstrap,
                    way=way,
                    transactional_id=f"bench-{os.getpid()}-{next(_NUMBERS)}",
                    starts_at=starts_at,
                    seconds=arguments.seconds,
                    records=arguments.records,
                    value_size=arguments.value_size,
                    partitions=arguments.partitions,
                    java_classpath=arguments.java_classpath,
                )
            ),
        )
        for _ in range(load.producers)
    ]
    return sum(float(job.result()["records_a_second"]) for job in jobs)


def measure(bootstrap: str, brokers: str, arguments: argparse.Namespace) -> dict[Load, Samples]:
    replicas = 1 if brokers == PEER else min(3, int(brokers))
    with Admin(bootstrap, timeout=TIMEOUT_S) as admin:
        admin.topics.create(TOPIC, partitions=arguments.partitions, replication_factor=replicas)
    loads = [
        Load(brokers, client, producers)
        for client in arguments.client or ("confluent-kafka",)
        for producers in arguments.producers or (1, 4)
    ]
    results: dict[Load, Samples] = {load: {way: [] for way in WAYS} for load in loads}
    sample("transactions", bootstrap, loads[0], arguments)  # the internal topics are made
    for _ in range(arguments.rounds):
        for load, samples in results.items():
            for way, values in samples.items():
                values.append(sample(way, bootstrap, load, arguments))
    with Admin(bootstrap, timeout=TIMEOUT_S) as admin:
        admin.topics.delete(TOPIC)
    return results


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps({"records_a_second": produce(ProducerSettings(**json.loads(sys.argv[1])))}))
        return
    arguments = _arguments()
    results: dict[Load, Samples] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-transactions-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        if arguments.peer:
            results |= measure(arguments.peer, PEER, arguments)
        for brokers in arguments.brokers or (1, 3):
            with ExitStack() as stack:
                if brokers == 1:
                    bootstrap = stack.enter_context(penstock(os.path.join(directory, "one"))).bootstrap
                else:
                    cluster = start_cluster(os.path.join(directory, f"cluster-{brokers}"), brokers=brokers)
                    bootstrap = stack.enter_context(cluster).bootstrap
                results |= measure(bootstrap, str(brokers), arguments)
    _print(results, arguments)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{**load._asdict(), **samples} for load, samples in results.items()], file, indent=2)


def _print(results: dict[Load, Samples], arguments: argparse.Namespace) -> None:
    table = Table(
        title=f"transactions of {arguments.records:,} records of {arguments.value_size} B, "
        f"{arguments.partitions} partitions, medians of {arguments.rounds}",
        title_justify="left",
    )
    headings = ("brokers", "client", "producers", *WAYS, "to plain", f"≥ {TARGET}", "to flushed")
    for heading in headings:
        table.add_column(heading, justify="right")
    for load, samples in results.items():
        plain, flushed = (_ratios(samples, way) for way in ("plain", "flushed"))
        table.add_row(
            load.brokers,
            load.client,
            str(load.producers),
            *(f"{median(values):,.0f}/s" for values in samples.values()),
            _span(plain),
            "met" if median(plain) >= TARGET else "missed",
            _span(flushed),
        )
    Console(width=140).print(table)


def _ratios(samples: Samples, way: str) -> list[float]:
    return [ours / other for ours, other in zip(samples["transactions"], samples[way], strict=True)]


def _span(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each way (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each round (default: 3)")
    parser.add_argument("--records", type=int, default=1000, metavar="N", help="a transaction (default: 1000)")
    parser.add_argument("--value-size", type=int, default=100, metavar="BYTES", help="(default: 100)")
    parser.add_argument("--partitions", type=int, default=3, metavar="N", help="written to (default: 3)")
    parser.add_argument("--producers", type=int, action="append", metavar="N", help="at once (default: 1 and 4)")
    parser.add_argument(
        "--client", action="append", choices=(*CLIENTS, JAVA), help="any number (default: confluent-kafka)"
    )
    parser.add_argument("--java-classpath", default="", metavar="PATH", help="of Kafka's client library")
    parser.add_argument("--peer", metavar="HOST:PORT", help="an Apache Kafka that runs, to compare with")
    parser.add_argument("--brokers", type=int, action="append", metavar="N", help="(default: 1 and 3)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
