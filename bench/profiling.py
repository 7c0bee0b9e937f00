"""Where a broker's time goes under one request load.

With py-spy on the path: a flame graph, from a broker that runs at full speed. Without it: the broker under cProfile,
which slows Python down by half and C not at all, so its shares mislead a little but its call counts are exact.
"""

from __future__ import annotations

import contextlib
import os
import pstats
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console

from bench.loads import REQUEST_LOADS, RequestLoad
from bench.processes import Job, ServerProcess, stopped_at_end
from bench.progress import Steps
from bench.run import QUICK, Runs, blast_settings
from bench.subjects import PENSTOCK, Kafka, PenstockNode
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports

LINES = 45
SECONDS = 4.0


def request_load(name: str) -> RequestLoad:
    for load in REQUEST_LOADS:
        if load.name == name:
            return load
    raise ValueError(f"no request load {name!r}; there are {', '.join(load.name for load in REQUEST_LOADS)}")


def profile(console: Console, directory: str, name: str) -> None:
    load = request_load(name)
    py_spy = shutil.which("py-spy")
    if py_spy is None:
        _with_cprofile(console, directory, load)
    else:
        _with_py_spy(console, directory, load, py_spy)


def _with_py_spy(console: Console, directory: str, load: RequestLoad, py_spy: str) -> None:
    output = os.path.abspath(f"profile-{load.name}.svg")
    node = PenstockNode(os.path.join(directory, "profile"))
    try:
        node.start()
        spy = [py_spy, "record", "--pid", str(node.kafka.pid), "--duration", f"{SECONDS:.0f}", "--output", output]

        _load(console, directory, load, node.kafka, lambda: subprocess.run(spy, check=True, stdout=subprocess.DEVNULL))
    finally:
        node.stop()
    console.print(f"flame graph: {output}")


def _with_cprofile(console: Console, directory: str, load: RequestLoad) -> None:
    output = os.path.join(directory, "broker.prof")
    (port,) = free_ports(1)
    node = LocalNode(1, os.path.join(directory, "profile"), host="127.0.0.1", port=port)
    node.start()
    node.wait_ready()
    node.stop()
    command = [sys.executable, "-m", "cProfile", "-o", output, "-m", "penstock", "server", node.properties_path]
    with stopped_at_end(ServerProcess(command, port, os.path.join(directory, "profile.out"))) as server:
        server.wait_for(node.is_ready)
        kafka = Kafka(PENSTOCK, "127.0.0.1", port, server.pid, node.data_path)
        _load(console, directory, load, kafka, lambda: None)
    pstats.Stats(output).strip_dirs().sort_stats("tottime").print_stats(LINES)


def _load(
    console: Console, directory: str, load: RequestLoad, kafka: Kafka, while_running: Callable[[], object]
) -> None:
    with contextlib.ExitStack() as stack:
        if load.api == "produce":
            topic = stack.enter_context(kafka.topic("bench-0001", load.connections))
            offsets: list[int] = []
        else:
            runs = Runs(directory, QUICK, [kafka], stack.enter_context(Steps(console, 1)))
            topic = runs.fetch_topic
            offsets = load.offsets(*stack.enter_context(runs.filled_topics()))
        settings = blast_settings(
            load, port=kafka.port, pid=kafka.pid, topic=topic, offsets=offsets, seconds=SECONDS, kafka=True
        )
        job = Job("bench.blaster", asdict(settings))
        while_running()
        result = job.result()
    console.print(
        f"{load.title}: {result['requests_per_second']:,.0f} requests/s, {result['server_cpu_us']:.1f} us of CPU each"
    )
