"""`python -m bench`: the loads, their floors, one table.

The peer is a Kafka that runs already (`--peer`), or Apache Kafka, fetched and started here (`--kafka`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator

from rich.console import Console

from bench import readers, replicated
from bench.apache_kafka import VERSION, NoKafka, apache_kafka, class_path
from bench.compare import print_changes, read_samples
from bench.footprint import Footprint
from bench.loads import (
    CLIENT_LOADS,
    GROUPS,
    READER_LOADS,
    REPLICATED_LOADS,
    REQUEST_LOADS,
    RESTART_LOADS,
    chosen,
)
from bench.profiling import profile, request_load
from bench.progress import Steps
from bench.results import Row
from bench.run import FULL, QUICK, Runs, Scale, samples_of, warm_memory
from bench.subjects import Kafka, keep_bytecode, peer, penstock
from bench.table import markdown, print_table
from penstock.testing.clusters import start_cluster

NEED_BROKER = ("produce", "fetch", "librdkafka", "latency", "readers")
TABLE_WIDTH = 180


def main() -> None:
    arguments = _arguments()
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)  # into a file or a pipe the table goes whole
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        if arguments.profile:
            profile(console, directory, arguments.profile)
            return
        bench = Bench(console, directory, QUICK if arguments.quick else FULL, arguments.only)
        rows = bench.measure(arguments.peer, arguments.kafka)
    peer_name = f"Apache Kafka {arguments.kafka}" if arguments.kafka else arguments.peer_name
    peer_name = peer_name if arguments.kafka or arguments.peer else None
    print_table(console, rows, peer_name)
    if arguments.compare:
        print_changes(console, rows, arguments.compare)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([row.to_json() for row in rows], file, indent=1)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(rows, peer_name) + "\n")
    if arguments.plot:
        from bench.plot import plot

        plot(rows, arguments.plot)


class Bench:
    def __init__(self, console: Console, directory: str, scale: Scale, loads: list[str]) -> None:
        self._console = console
        self._directory = directory
        self._scale = scale
        self._loads = loads

    def measure(self, peer_address: str | None, kafka_version: str | None) -> list[Row]:
        kafkas = 1 if peer_address is None and kafka_version is None else 2
        total = sum(samples_of(name, self._scale, kafkas) for name in self._loads)
        rows: list[Row] = []
        with Steps(self._console, total) as steps:
            steps.doing("warming the page cache up")
            warm_memory(self._directory, self._scale.memory_warmup_bytes)
            if any(name in GROUPS[group] for group in NEED_BROKER for name in self._loads):
                with self._peer(peer_address, kafka_version) as other:
                    rows += self._against_brokers(other, steps)
                    rows += self._readers(other, steps)
            rows += self._replicated(kafka_version, steps)
            footprint = Footprint(self._directory, self._scale, steps)
            if "idle" in self._loads:
                rows += footprint.idle()
            if "partitions" in self._loads:
                rows += footprint.partitions()
            rows += [footprint.restart(load) for load in RESTART_LOADS if load.name in self._loads]
        return rows

    @contextlib.contextmanager
    def _peer(self, address: str | None, kafka_version: str | None) -> Iterator[Kafka | None]:
        if kafka_version is not None:
            with apache_kafka(os.path.join(self._directory, "one"), 1, kafka_version) as cluster:
                yield cluster.kafka
        else:
            yield None if address is None else peer(address)

    def _against_brokers(self, other: Kafka | None, steps: Steps) -> list[Row]:
        """One broker for all loads that need a running one, and the peer."""
        if not any(name in GROUPS[group] for group in NEED_BROKER[:-1] for name in self._loads):
            return []
        with penstock(os.path.join(self._directory, "node")) as ours:
            kafkas = [ours] if other is None else [ours, other]
            return list(_against_brokers(Runs(self._directory, self._scale, kafkas, steps), self._loads))

    def _readers(self, other: Kafka | None, steps: Steps) -> list[Row]:
        loads = [load for load in READER_LOADS if load.name in self._loads]
        if not loads:
            return []
        measured = readers.Readers(self._directory, seconds=self._scale.seconds, peer=other, steps=steps)
        return readers.rows(measured.measure(loads, self._scale.rounds), loads)

    def _replicated(self, kafka_version: str | None, steps: Steps) -> list[Row]:
        """Three brokers of ours, and three of Apache Kafka's; a peer that runs already may have any number."""
        loads = [load for load in REPLICATED_LOADS if load.name in self._loads]
        if not loads:
            return []
        with contextlib.ExitStack() as stack:
            clusters: list[replicated.Cluster] = [
                stack.enter_context(start_cluster(os.path.join(self._directory, "cluster"), controllers=1))
            ]
            if kafka_version is not None:
                three = os.path.join(self._directory, "three")
                clusters.append(stack.enter_context(apache_kafka(three, 3, kafka_version)))
            ours, *others = replicated.measure(clusters, loads, self._scale.rounds, self._scale.seconds, steps)
        return replicated.rows(ours, others[0] if others else None, loads)


def _against_brokers(runs: Runs, loads: list[str]) -> Iterator[Row]:
    requests = [load for load in REQUEST_LOADS if load.name in loads]
    for load in requests:
        if load.api == "produce":
            yield runs.produce(load)
    fetches = [load for load in requests if load.api == "fetch"]
    if fetches:
        with runs.filled_topics() as (batches, records_a_batch):
            for load in fetches:
                yield runs.fetch(load, batches, records_a_batch)
    for client_load in CLIENT_LOADS:
        if client_load.name in loads:
            yield from runs.clients(client_load)
    if "latency" in loads:
        yield from runs.latency()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: about a minute")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a load or a group; repeatable")
    parser.add_argument("--peer", metavar="HOST:PORT", help="a Kafka that runs already, measured alternately")
    parser.add_argument(
        "--kafka",
        nargs="?",
        const=VERSION,
        metavar="VERSION",
        help=f"Apache Kafka from Maven Central as the peer, one node and three (default: {VERSION})",
    )
    parser.add_argument("--peer-name", default="peer", metavar="NAME", help="what to call it in the table")
    parser.add_argument("--plot", metavar="FILE.png", help="draw ratios and latency")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
    parser.add_argument("--compare", metavar="FILE", help="an earlier --json FILE: what has changed, and the noise")
    parser.add_argument("--markdown", metavar="FILE", help="write the table for a document")
    parser.add_argument(
        "--profile", metavar="LOAD", help="instead of measuring, profile a broker under this request load"
    )
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    arguments = parser.parse_args()
    try:
        arguments.only = chosen(arguments.only)
        if arguments.profile:
            request_load(arguments.profile)
        if arguments.kafka and arguments.peer:
            parser.error("--kafka and --peer are two peers; choose one")
        if arguments.kafka:
            class_path(arguments.kafka)  # before anything is measured
        if arguments.compare:
            read_samples(arguments.compare)
    except (ValueError, KeyError, OSError, NoKafka) as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    main()
