"""`python -m bench.shares`: records a second through a share group with 1, 10 and 50 of Java's share consumers.

All consumers of a load are in one JVM, which serves all loads in turn, so that it is warm and the same for Penstock and
for its peer (`--kafka`: Apache Kafka from Maven Central). They read a topic that was filled before, each load with a
group of its own from the first record on.

*batch*: a poll acknowledges all that the one before returned, with the next fetch. *explicit*: each record is
acknowledged by itself, and `commitSync` after each poll waits until that is persisted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from statistics import median
from typing import IO, NamedTuple

from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from bench.apache_kafka import CLIENTS, CLIENTS_VERSION, VERSION, apache_kafka, class_path
from bench.processes import cpu_seconds
from bench.subjects import PEER, PENSTOCK, Kafka, keep_bytecode, penstock
from penstock.client.wire.admin import Admin

JAVA_SOURCE = os.path.join(os.path.dirname(__file__), "ShareConsumers.java")
TOPIC = "bench-shares"
WAYS = ("batch", "explicit")
BATCH_RECORDS = 100
FLUSH_S = 120.0
_NUMBERS = count(1)


class Load(NamedTuple):
    way: str
    consumers: int


class Sample(NamedTuple):
    rate: float
    """Acknowledged records a second."""
    cpu_us: float
    """Of the broker, a record."""


class TooFewRecords(Exception):
    """The consumers were about to reach the end of the topic."""


def fill(kafka: Kafka, arguments: argparse.Namespace) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 50, "batch.num.messages": BATCH_RECORDS, "acks": 1}
    )
    value = os.urandom(arguments.value_size)
    for number in range(arguments.records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % arguments.partitions)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(FLUSH_S):
        raise RuntimeError(f"{kafka.name} did not take the records within {FLUSH_S:g} s")


class ShareConsumers:
    """A JVM with Java's share consumers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        jars = class_path(CLIENTS_VERSION, CLIENTS)
        self._process = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", "-Xmx2g", "-cp", jars, JAVA_SOURCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def sample(self, kafka: Kafka, load: Load, seconds: float) -> Sample:
        group = f"bench-{next(_NUMBERS)}"
        self._input.write(f"{kafka.bootstrap} {TOPIC} {group} {load.consumers} {load.way} {seconds}\n")
        self._input.flush()
        if self._line() != "ready":
            raise RuntimeError(f"the consumers of {kafka.name} did not start: {load}")
        cpu = cpu_seconds(kafka.pid)
        handled, nanoseconds, total = map(int, self._line().split())
        cpu = cpu_seconds(kafka.pid) - cpu
        if total > self._arguments.records * 0.95:
            raise TooFewRecords(f"{load}: {total:,} of {self._arguments.records:,} records were read: give more")
        return Sample(handled / (nanoseconds / 1e9), cpu / handled * 1e6)

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the consumers ended with status {self._process.wait()}")
        return line.strip()

    def close(self) -> None:
        self._input.close()
        self._process.wait()


@contextlib.contextmanager
def subjects(directory: str, arguments: argparse.Namespace) -> Iterator[list[Kafka]]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(penstock(os.path.join(directory, "penstock")))]
        if arguments.kafka:
            found.append(stack.enter_context(apache_kafka(directory, version=arguments.kafka)).kafka)
        for kafka in found:
            with Admin(kafka.bootstrap) as admin:
                admin.topics.create(TOPIC, partitions=arguments.partitions, replication_factor=1)
            fill(kafka, arguments)
        yield found


Results = dict[Load, dict[str, list[Sample]]]
"""By load and subject; those of one round have the same place."""


def measure(kafkas: list[Kafka], arguments: argparse.Namespace) -> Results:
    loads = [Load(way, consumers) for way in arguments.way or WAYS for consumers in arguments.consumers or (1, 10, 50)]
    results: Results = {load: {kafka.name: [] for kafka in kafkas} for load in loads}
    with contextlib.closing(ShareConsumers(arguments)) as consumers:
        for number in range(arguments.rounds + 1):
            for load, samples in results.items():
                for kafka in kafkas if number % 2 else reversed(kafkas):
                    sample = consumers.sample(kafka, load, arguments.seconds if number else arguments.warm_up)
                    if number:
                        samples[kafka.name].append(sample)
    return results


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="penstock-shares-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with subjects(directory, arguments) as kafkas:
            results = measure(kafkas, arguments)
    _print(results, arguments)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump([{**load._asdict(), **samples} for load, samples in results.items()], file, indent=2)


def _print(results: Results, arguments: argparse.Namespace) -> None:
    table = Table(
        title=f"share consumers of kafka-clients {CLIENTS_VERSION}, {arguments.partitions} partitions, records of "
        f"{arguments.value_size} B, medians of {arguments.rounds}",
        title_justify="left",
        caption="CPU us: of the broker, a record; times: median of the rounds' ratios, the lowest and the highest",
        caption_justify="left",
    )
    headings = ["acknowledgement", "consumers", "Penstock", "CPU us"]
    if arguments.kafka:
        headings += [f"Kafka {arguments.kafka}", "CPU us", "times as fast"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for load, samples in results.items():
        cells = [load.way, str(load.consumers), *_cells(samples[PENSTOCK])]
        if arguments.kafka:
            ratios = [ours.rate / theirs.rate for ours, theirs in zip(samples[PENSTOCK], samples[PEER], strict=True)]
            cells += [*_cells(samples[PEER]), f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"]
        table.add_row(*cells)
    Console(width=140).print(table)


def _cells(samples: list[Sample]) -> list[str]:
    rates = [sample.rate for sample in samples]
    spread = (max(rates) - min(rates)) / 2 / median(rates)
    return [f"{median(rates):,.0f}/s ±{spread:.0%}", f"{median(sample.cpu_us for sample in samples):.2f}"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.shares", description=__doc__)
    parser.add_argument("--kafka", nargs="?", const=VERSION, metavar="VERSION", help=f"(default: {VERSION})")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each load (default: 5)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of each round (default: 4)")
    parser.add_argument(
        "--warm-up", type=float, default=5.0, metavar="S", help="of each load before the first round (default: 5)"
    )
    parser.add_argument("--consumers", type=int, action="append", metavar="N", help="(default: 1, 10 and 50)")
    parser.add_argument("--way", action="append", choices=WAYS, help="of acknowledging (default: both)")
    parser.add_argument("--partitions", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--records", type=int, default=5_000_000, metavar="N", help="in the topic (default: 5,000,000)")
    parser.add_argument("--value-size", type=int, default=100, metavar="BYTES", help="(default: 100)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
