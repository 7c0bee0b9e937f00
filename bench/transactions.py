"""`python -m bench.transactions`: what transactions cost a producer, on one broker and on three.

One client (confluent-kafka, acks=all, idempotent, its settings as they come), three ways in turn: records one after the
other; the same in transactions of a thousand; and, to tell what waiting costs from what transactions cost, the same
with a wait for all acknowledgements after each thousand.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from statistics import median
from typing import Any

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.subjects import keep_bytecode, penstock
from penstock.client.admin import Admin
from penstock.testing.clusters import start_cluster

TOPIC = "bench-transactions"
TARGET = 0.8
TIMEOUT_S = 60.0
WARMUP = 5
_NUMBERS = count(1)

Write = Callable[[Producer, argparse.Namespace, bytes], None]


def _records(producer: Producer, arguments: argparse.Namespace, value: bytes) -> None:
    for number in range(arguments.records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % arguments.partitions)
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


def _stream(producer: Producer, arguments: argparse.Namespace, value: bytes) -> None:
    _records(producer, arguments, value)


def _flushed(producer: Producer, arguments: argparse.Namespace, value: bytes) -> None:
    _records(producer, arguments, value)
    producer.flush(TIMEOUT_S)


def _transaction(producer: Producer, arguments: argparse.Namespace, value: bytes) -> None:
    producer.begin_transaction()
    _records(producer, arguments, value)
    producer.commit_transaction(TIMEOUT_S)


WAYS: dict[str, Write] = {"plain": _stream, "flushed": _flushed, "transactions": _transaction}


def sample(way: str, bootstrap: str, arguments: argparse.Namespace) -> float:
    """Records a second, all of them acknowledged or committed."""
    write = WAYS[way]
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
    if write is _transaction:
        settings["transactional.id"] = f"bench-{next(_NUMBERS)}"
    producer = Producer(settings)
    if write is _transaction:
        producer.init_transactions(TIMEOUT_S)
    value = b"v" * arguments.value_size
    for _ in range(WARMUP):
        write(producer, arguments, value)
    producer.flush(TIMEOUT_S)
    began, written = time.perf_counter(), 0
    while time.perf_counter() - began < arguments.seconds:
        write(producer, arguments, value)
        written += arguments.records
    producer.flush(TIMEOUT_S)
    return written / (time.perf_counter() - began)


def measure(bootstrap: str, brokers: int, arguments: argparse.Namespace) -> dict[str, list[float]]:
    with Admin(bootstrap, timeout=TIMEOUT_S) as admin:
        admin.topics.create(TOPIC, partitions=arguments.partitions, replication_factor=min(3, brokers))
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    sample("transactions", bootstrap, argparse.Namespace(**{**vars(arguments), "seconds": 0.5}))
    for _ in range(arguments.rounds):
        for way, values in samples.items():
            values.append(sample(way, bootstrap, arguments))
    return samples


def main() -> None:
    arguments = _arguments()
    results: dict[int, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-transactions-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
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


def _print(results: dict[int, dict[str, list[float]]], arguments: argparse.Namespace) -> None:
    table = Table(
        title=f"transactions of {arguments.records:,} records of {arguments.value_size} B, "
        f"{arguments.partitions} partitions, medians of {arguments.rounds}",
        title_justify="left",
    )
    for heading in ("brokers", "plain", "flushed", "transactions", "to plain", f"≥ {TARGET}", "to flushed"):
        table.add_column(heading, justify="right")
    for brokers, samples in results.items():
        ratios = {
            way: [ours / other for ours, other in zip(samples["transactions"], samples[way], strict=True)]
            for way in ("plain", "flushed")
        }
        to_plain, to_flushed = (f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})" for each in ratios.values())
        table.add_row(
            str(brokers),
            *(f"{median(values):,.0f}/s" for values in samples.values()),
            to_plain,
            "met" if median(ratios["plain"]) >= TARGET else "missed",
            to_flushed,
        )
    Console(width=120).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each way (default: 5)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of each round (default: 3)")
    parser.add_argument("--records", type=int, default=1000, metavar="N", help="a transaction (default: 1000)")
    parser.add_argument("--value-size", type=int, default=100, metavar="BYTES", help="(default: 100)")
    parser.add_argument("--partitions", type=int, default=3, metavar="N", help="written to (default: 3)")
    parser.add_argument("--brokers", type=int, action="append", metavar="N", help="(default: 1 and 3)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
