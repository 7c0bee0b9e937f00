"""`python -m bench`: the loads, their floors, one table."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator

from rich.console import Console

from bench.footprint import Footprint
from bench.loads import CLIENT_LOADS, GROUPS, REQUEST_LOADS, RESTART_LOADS, chosen
from bench.profiling import profile, request_load
from bench.progress import Steps
from bench.results import Row
from bench.run import FULL, QUICK, Runs, Scale, samples_of, warm_memory
from bench.subjects import Kafka, keep_bytecode, peer, penstock
from bench.table import markdown, print_table

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
        scale = QUICK if arguments.quick else FULL
        rows = measure(console, directory, scale, arguments.only, arguments.peer)
    print_table(console, rows, arguments.peer_name if arguments.peer else None)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump([row.to_json() for row in rows], file, indent=1)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(rows, arguments.peer_name if arguments.peer else None) + "\n")
    if arguments.plot:
        from bench.plot import plot

        plot(rows, arguments.plot)


def measure(console: Console, directory: str, scale: Scale, loads: list[str], peer_address: str | None) -> list[Row]:
    kafkas = 1 if peer_address is None else 2
    total = sum(samples_of(name, scale, kafkas) for name in loads)
    rows: list[Row] = []
    with Steps(console, total) as steps:
        steps.doing("warming the page cache up")
        warm_memory(directory, scale.memory_warmup_bytes)
        with _brokers(directory, loads, peer_address) as subjects:
            if subjects:
                rows += _against_brokers(Runs(directory, scale, subjects, steps), loads)
        footprint = Footprint(directory, scale, steps)
        if "idle" in loads:
            rows += footprint.idle()
        if "partitions" in loads:
            rows += footprint.partitions()
        rows += [footprint.restart(load) for load in RESTART_LOADS if load.name in loads]
    return rows


@contextlib.contextmanager
def _brokers(directory: str, loads: list[str], peer_address: str | None) -> Iterator[list[Kafka]]:
    """One broker for all loads that need a running one, and the peer."""
    if not any(name in GROUPS[group] for group in ("produce", "fetch", "librdkafka", "latency") for name in loads):
        yield []
        return
    with penstock(os.path.join(directory, "node")) as ours:
        yield [ours] if peer_address is None else [ours, peer(peer_address)]


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
    parser.add_argument("--peer-name", default="peer", metavar="NAME", help="what to call it in the table")
    parser.add_argument("--plot", metavar="FILE.png", help="draw ratios and latency")
    parser.add_argument("--json", metavar="FILE", help="write every sample")
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
    except ValueError as error:
        parser.error(str(error))
    return arguments


if __name__ == "__main__":
    main()
