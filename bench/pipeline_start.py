"""`python -m bench.pipeline_start`: how long a pipeline takes to start, beside the same without what makes it quick.

Each round runs every load in every variant, one after the other: as it is, without the archive of Java's classes,
without forked workers, and without both. What counts beside the time is the processor time of all processes of the
command, Java and workers included: it depends less on what else the machine does. The archive and numba's kernels are
made before the first round, if there are none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.results import circumstances
from penstock import Admin, Producer, TopicPartition
from penstock.spark.runtime.kernels import compile_kernels
from penstock.spark.runtime.session import plan
from penstock.testing.nodes import start_node

# Runs a command; prints its status when it ends, and the processor time of all its processes when the last has ended.
# (PR_SET_CHILD_SUBREAPER: orphans of children become children.)
_METER = """\
import ctypes, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
print(subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), flush=True)
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime)
"""
RECORDS = 100

OFF = {"archive": "spark.penstock.classArchive", "forks": "spark.penstock.forkServer"}
VARIANTS: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "no archive": ("archive",),
    "no forks": ("forks",),
    "neither": ("archive", "forks"),
}

FILE = """\
name: start
bootstrap: {bootstrap}
checkpoints: {checkpoints}
spark: {{{settings}}}
sources:
  orders: {{topic: orders, value: {{format: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}}}
steps:
  large: {{sql: "SELECT id, amount FROM orders WHERE amount > 10"}}
sinks:
  out: {{from: large, topic: {sink}, key: id}}
tests:
  - name: one
    given: {{orders: [{{value: {{id: 1, amount: 20}}}}, {{value: {{id: 2, amount: 1}}}}]}}
    expect: {{out: [{{value: {{id: 1}}}}]}}
  - name: two
    given: {{orders: [{{value: {{id: 3, amount: 30}}}}]}}
    expect: {{out: [{{value: {{id: 3}}}}]}}
"""


class Cost(NamedTuple):
    wall_s: float
    """Until the first row is out, or the command has ended."""
    cpu_s: float
    """Of all processes, until the last of them has ended."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    chosen = parser.parse_args()
    make_caches()
    before = circumstances()
    costs: dict[tuple[str, str], list[Cost]] = {}
    with (
        tempfile.TemporaryDirectory() as place,
        start_node(Path(place) / "node") as node,
        Admin(node.bootstrap) as admin,
    ):
        admin.topics.create("orders", partitions=2)
        with Producer(node.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("orders", b'{"id": %d, "amount": 20}' % number)
        for turn in range(chosen.rounds):
            for variant in chosen.variants:
                file, sink = _written(Path(place), node.bootstrap, f"{turn}-{variant}", variant)
                admin.topics.create(sink, partitions=1)
                run = _cost(["pipeline", "run", file, "--once"], lambda: _rows(admin, sink) >= RECORDS)  # noqa: B023
                costs.setdefault(("run, first row", variant), []).append(run)
                test = _cost(["pipeline", "test", file])
                costs.setdefault(("test, two tests", variant), []).append(test)
                print(f"{variant}: run {run}, test {test}", flush=True)
    _print(costs)
    print(f"{before}, load average afterwards {circumstances()['load_average']}")


def make_caches() -> None:
    """What is otherwise made behind the first commands, which would be measured with it."""
    archive = plan("bench", {}).classes
    if archive is not None:
        subprocess.run([sys.executable, "-m", "penstock.spark.runtime.class_training", *archive, "{}"], check=True)
    compile_kernels()


def _written(place: Path, bootstrap: str, name: str, variant: str) -> tuple[str, str]:
    settings = ", ".join(f"{OFF[each]}: 'false'" for each in VARIANTS[variant])
    sink = f"out-{name.replace(' ', '-')}"
    file = place / f"{name}.yaml"
    checkpoints = place / f"checkpoints-{name}"
    file.write_text(FILE.format(bootstrap=bootstrap, checkpoints=checkpoints, settings=settings, sink=sink))
    return str(file), sink


def _rows(admin: Admin, topic: str) -> int:
    return admin.topics.offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]


def _cost(command: list[str], ready: Callable[[], bool] | None = None) -> Cost:
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _METER, sys.executable, "-m", "penstock", *command], stdout=subprocess.PIPE, text=True
    ) as meter:
        assert meter.stdout is not None
        while ready is not None and meter.poll() is None and not ready():
            time.sleep(0.05)
        ready_s = time.monotonic() - began
        status = meter.stdout.readline().strip()
        ended_s = time.monotonic() - began
        cpu_s = float(meter.stdout.readline())
    if status != "0":
        raise SystemExit(f"penstock {' '.join(command)} has failed with status {status}")
    return Cost(ready_s if ready is not None else ended_s, cpu_s)


def _print(costs: dict[tuple[str, str], list[Cost]]) -> None:
    table = Table(box=None, header_style="bold")
    for name in ("load", "variant", "seconds", "processor seconds", "to as it is"):
        table.add_column(name, justify="left" if name in ("load", "variant") else "right")
    for (load, variant), found in costs.items():
        cpu_s = median(cost.cpu_s for cost in found)
        usual = costs.get((load, "as it is"), found)
        ratio = cpu_s / median(cost.cpu_s for cost in usual)
        table.add_row(load, variant, f"{median(cost.wall_s for cost in found):.1f}", f"{cpu_s:.1f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
