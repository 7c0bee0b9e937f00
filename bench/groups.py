"""`python -m bench.groups`: a thousand groups with ten thousand members on one broker.

How long until all have joined (with the settings as they come: a new classic group waits three seconds for more
members, one of the consumer protocol settles in a few heartbeats), what their heartbeats cost, how soon they are
answered, what a member takes in memory, and what groups without members cost.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.members import MembersSettings
from bench.processes import run_job
from bench.subjects import Kafka, keep_bytecode, penstock

PROTOCOLS = ("classic", "consumer")
TOPIC = "bench-groups"
JOB_TIMEOUT_S = 600.0

_LINES = {
    "join_s": ("all joined after", "s", 1),
    "join_cpu_s": ("CPU of the broker for it", "s", 2),
    "heartbeats_a_second": ("heartbeats", "/s", 0),
    "cpu_percent": ("CPU of the broker", "%", 1),
    "cpu_us_a_heartbeat": ("CPU of the broker a heartbeat", "us", 1),
    "p50_ms": ("answered within, p50", "ms", 2),
    "p99_ms": ("answered within, p99", "ms", 2),
    "max_ms": ("answered within, longest", "ms", 1),
    "connection_bytes": ("memory a connection", "B", 0),
    "member_bytes": ("memory a member", "B", 0),
    "idle_cpu_percent": ("CPU, all have left", "%", 2),
    "client_cpu_percent": ("CPU of the clients, for comparison", "%", 1),
}


def measure(kafka: Kafka, protocol: str, arguments: argparse.Namespace) -> dict[str, Any]:
    settings = MembersSettings(
        host=kafka.host,
        port=kafka.port,
        pid=kafka.pid,
        protocol=protocol,
        groups=arguments.groups,
        members_a_group=arguments.members // arguments.groups,
        topic=TOPIC,
        partitions=arguments.members // arguments.groups,
        seconds=arguments.seconds,
    )
    return run_job("bench.members", asdict(settings), JOB_TIMEOUT_S)


def main() -> None:
    arguments = _arguments()
    console = Console()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-groups-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        for protocol in arguments.only or PROTOCOLS:
            with (
                penstock(os.path.join(directory, protocol)) as kafka,
                kafka.topic(TOPIC, arguments.members // arguments.groups),
            ):
                results[protocol] = measure(kafka, protocol, arguments)
    table = Table(title=f"{arguments.groups:,} groups, {arguments.members:,} members, one broker", title_justify="left")
    table.add_column("")
    for protocol in results:
        table.add_column(protocol, justify="right")
    for name, (title, unit, digits) in _LINES.items():
        table.add_row(title, *(f"{result[name]:,.{digits}f} {unit}" for result in results.values()))
    console.print(table)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--members", type=int, default=10_000, metavar="N", help="in all (default: 10000)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of heartbeats (default: 20)")
    parser.add_argument("--only", action="append", default=[], choices=PROTOCOLS, help="a protocol; repeatable")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
