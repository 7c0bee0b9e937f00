"""`python -m bench.metrics`: what it costs to count, on the way of a produce request.

Two brokers are written to in turns: one as it is, with its metrics asked for every second, and one from which the
statements that count were taken out (`bench.uncounted`). What counts is the CPU of the broker a request: it is what
counting adds, and the machine's other work disturbs it less than it does rates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.loads import REQUEST_LOADS
from bench.processes import ServerProcess, accepts, run_job
from bench.run import blast_settings
from bench.subjects import Kafka, keep_bytecode, penstock
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports

TARGET = 0.03
CHOSEN = ("produce-pipelined", "produce-16KiB")
SCRAPE_S = 1.0


@contextlib.contextmanager
def uncounted(directory: str) -> Iterator[Kafka]:
    node = LocalNode(1, directory, host="127.0.0.1", port=free_ports(1)[0])
    os.makedirs(directory)
    node.write_properties()
    command = [sys.executable, "-m", "bench.uncounted", node.properties_path]
    server = ServerProcess(command, node.port, node.log_path)
    try:
        server.wait_for(lambda: accepts(node.port))
        yield Kafka("uncounted", node.host, node.port, server.pid, node.data_path)
    finally:
        server.stop()


@contextlib.contextmanager
def scraped(port: int) -> Iterator[None]:
    """As Prometheus does, and more often than it would."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(SCRAPE_S):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                page.read()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def measure(kafka: Kafka, name: str, topic: str, seconds: float) -> float:
    load = next(each for each in REQUEST_LOADS if each.name == name)
    with kafka.topic(topic, load.connections):
        settings = blast_settings(
            load, port=kafka.port, pid=kafka.pid, topic=topic, offsets=[], seconds=seconds, kafka=True
        )
        return float(run_job("bench.blaster", asdict(settings))["server_cpu_us"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of every sample (2)")
    arguments = parser.parse_args()
    console = Console()
    table = Table("load", "CPU a request, us", "without counting", "counting adds", "in single rounds", "aim")
    missed = False
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        (port,) = free_ports(1)
        properties = {"penstock.metrics.listener": f"127.0.0.1:{port}"}
        with (
            penstock(os.path.join(directory, "counted"), properties) as ours,
            uncounted(os.path.join(directory, "uncounted")) as bare,
            scraped(port),
        ):
            for name in CHOSEN:
                samples: list[tuple[float, float]] = []
                for number in track(range(arguments.rounds), name, console=console, transient=True):
                    kafkas = (ours, bare) if number % 2 else (bare, ours)
                    found = {each: measure(each, name, f"bench-{number}", arguments.seconds) for each in kafkas}
                    samples.append((found[ours], found[bare]))
                added = [counted / plain - 1 for counted, plain in samples]
                missed |= median(added) > TARGET
                table.add_row(
                    name,
                    f"{median(counted for counted, _ in samples):.2f}",
                    f"{median(plain for _, plain in samples):.2f}",
                    f"{median(added):+.1%}",
                    f"{min(added):+.1%} to {max(added):+.1%}",
                    f"below {TARGET:.0%}",
                )
    console.print(table)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
