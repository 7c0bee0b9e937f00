"""`python -m bench.transactions`: what transactions cost producers, on one broker and on three.

The same client (confluent-kafka, acks=all, idempotent, its settings as they come), three ways in turn: records one
after the other; the same in transactions of a thousand; and, to tell what waiting costs from what transactions cost,
the same with a wait for all acknowledgements after each thousand.

A transaction is three round trips one after the other (partitions join, records, the end), during which its producer
does nothing else. One producer therefore shows how long a transaction takes, and several at once what brokers and
machine can do with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from statistics import median
from typing import Any

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.processes import Job
from bench.subjects import keep_bytecode, penstock
from penstock.client.admin import Admin
from penstock.testing.clusters import start_cluster

TOPIC = "bench-transactions"
TARGET = 0.8
TIMEOUT_S = 60.0
WARMUP = 5
START_S = 1.5
_NUMBERS = count(1)


@dataclass(frozen=True, kw_only=True)
class ProducerSettings:
    bootstrap: str
    way: str
    transactional_id: str
    starts_at: float
    """By `time.time`, for all producers at once."""
    seconds: float
    records: int
    value_size: int
    partitions: int


Write = Callable[[Producer, ProducerSettings, bytes], None]


def _records(producer: Producer, settings: ProducerSettings, value: bytes) -> None:
    for number in range(settings.records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % settings.partitions)
                break
            except BufferError:
                producer.poll(0.002)
    producer.poll(0)


def _flushed(producer: Producer, settings: ProducerSettings, value: bytes) -> None:
    _records(producer, settings, value)
    producer.flush(TIMEOUT_S)


def _transaction(producer: Producer, settings: ProducerSettings, value: bytes) -> None:
    producer.begin_transaction()
    _records(producer, settings, value)
    producer.commit_transaction(TIMEOUT_S)


WAYS: dict[str, Write] = {"plain": _records, "flushed": _flushed, "transactions": _transaction}


def produce(settings: ProducerSettings) -> float:
    """Records a second, all of them acknowledged or committed."""
    write = WAYS[settings.way]
    properties: dict[str, Any] = {"bootstrap.servers": settings.bootstrap, "enable.idempotence": True, "acks": "all"}
    if write is _transaction:
        properties["transactional.id"] = settings.transactional_id
    producer = Producer(properties)
    if write is _transaction:
        producer.init_transactions(TIMEOUT_S)
    value = b"v" * settings.value_size
    for _ in range(WARMUP):
        write(producer, settings, value)
    producer.flush(TIMEOUT_S)
    time.sleep(max(0.0, settings.starts_at - time.time()))
    began, written = time.perf_counter(), 0
    while time.perf_counter() - began < settings.seconds:
        write(producer, settings, value)
        written += settings.records
    producer.flush(TIMEOUT_S)
    return written / (time.perf_counter() - began)


def sample(way: str, bootstrap: str, producers: int, arguments: argparse.Namespace) -> float:
    starts_at = time.time() + START_S
    jobs = [
        Job(
            "bench.transactions",
            asdict(
                ProducerSettings(
                    bootstrap=bootstrap,
                    way=way,
                    transactional_id=f"bench-{next(_NUMBERS)}",
                    starts_at=starts_at,
                    seconds=arguments.seconds,
                    records=arguments.records,
                    value_size=arguments.value_size,
                    partitions=arguments.partitions,
                )
            ),
        )
        for _ in range(producers)
    ]
    return sum(float(job.result()["records_a_second"]) for job in jobs)


def measure(bootstrap: str, brokers: int, arguments: argparse.Namespace) -> dict[int, dict[str, list[float]]]:
    """By number of producers and by way."""
    with Admin(bootstrap, timeout=TIMEOUT_S) as admin:
        admin.topics.create(TOPIC, partitions=arguments.partitions, replication_factor=min(3, brokers))
    counts = arguments.producers or (1, 4)
    samples: dict[int, dict[str, list[float]]] = {producers: {way: [] for way in WAYS} for producers in counts}
    sample("transactions", bootstrap, 1, arguments)  # the internal topics are made
    for _ in range(arguments.rounds):
        for producers, by_way in samples.items():
            for way, values in by_way.items():
                values.append(sample(way, bootstrap, producers, arguments))
    return samples


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps({"records_a_second": produce(ProducerSettings(**json.loads(sys.argv[1])))}))
        return
    arguments = _arguments()
    results: dict[int, dict[int, dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-transactions-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        if arguments.peer:
            results[0] = measure(arguments.peer, 1, arguments)
        for brokers in arguments.brokers or (1, 3):
            with ExitStack() as stack:
                if brokers == 1:
                    bootstrap = stack.enter_context(penstock(os.path.join(directory, "one"))).bootstrap
                else:
                    cluster = start_cluster(os.path.join(directory, f"cluster-{brokers}"), brokers=brokers)
                    bootstrap = stack.enter_context(cluster).bootstrap
                results[brokers] = measure(bootstrap, brokers, arguments)
    _print(results, arguments)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


def _print(results: dict[int, dict[int, dict[str, list[float]]]], arguments: argparse.Namespace) -> None:
    table = Table(
        title=f"transactions of {arguments.records:,} records of {arguments.value_size} B, "
        f"{arguments.partitions} partitions, medians of {arguments.rounds}",
        title_justify="left",
    )
    headings = ("brokers", "producers", "plain", "flushed", "transactions", "to plain", f"≥ {TARGET}", "to flushed")
    for heading in headings:
        table.add_column(heading, justify="right")
    for brokers, by_count in results.items():
        for producers, samples in by_count.items():
            plain, flushed = (_ratios(samples, way) for way in ("plain", "flushed"))
            table.add_row(
                str(brokers) if brokers else "peer",
                str(producers),
                *(f"{median(values):,.0f}/s" for values in samples.values()),
                _span(plain),
                "met" if median(plain) >= TARGET else "missed",
                _span(flushed),
            )
    Console(width=130).print(table)


def _ratios(samples: dict[str, list[float]], way: str) -> list[float]:
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
    parser.add_argument("--peer", metavar="HOST:PORT", help="an Apache Kafka that runs, to compare with")
    parser.add_argument("--brokers", type=int, action="append", metavar="N", help="(default: 1 and 3)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
