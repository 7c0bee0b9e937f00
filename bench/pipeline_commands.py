"""What `bench.pipelines` measures of commands, as processes from start to end: `run`, `test`, `list`, `validate`.

`run` is measured to its first row: the demo's fleet, with records waiting in its topics. By hand means
`python -m bench.pipeline_commands BOOTSTRAP DIRECTORY NUMBER`, a program with the same three queries.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bench.pipeline_latency import PARTITIONS, Names, fleet_by_hand, without_triggers
from bench.pipeline_load import TRUCKS
from bench.subjects import Kafka
from penstock.arrow import write_table
from penstock.client.wire.admin.topics import LATEST
from penstock.client.wire.leaders import Leaders
from penstock.client.wire.log_offsets import READ_COMMITTED, LogOffsets
from penstock.demo.workload import pipeline_file
from penstock.model.ids import TopicPartition

STEPS = 200
RECORDS = 1000
EXAMPLES = Path(__file__).parents[1] / "examples" / "pipelines"
_ROW_S = 300.0
_NUMBERS = count(1)


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    """Of processes that have ended: on a busy machine only this one says something."""


def command(*arguments: str) -> Cost:
    before = _cpu_seconds()
    began = time.monotonic()
    done = subprocess.run([*_PENSTOCK, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"penstock {' '.join(arguments)} has failed:\n{done.stdout}{done.stderr}")
    return Cost(time.monotonic() - began, _cpu_seconds() - before)


_PENSTOCK = [sys.executable, "-m", "penstock"]


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quick_commands(kafka: Kafka, directory: str) -> dict[str, Cost]:
    path = os.path.join(directory, "large.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(large_file(STEPS))
    return {
        "pipeline list": command("pipeline", "list", "--bootstrap-server", kafka.bootstrap),
        "spark status": command("spark", "status", "--bootstrap-server", kafka.bootstrap),
        f"validate, {STEPS} steps": command("pipeline", "validate", path),
    }


def tests(further: int) -> float:
    """The seconds of a file with two tests, and of so many further files in the same call."""
    names = ("routing.yaml", "logs.yaml", "metrics.yaml")[: 1 + further]
    return command("pipeline", "test", *(str(EXAMPLES / name) for name in names)).wall_s


def start_by_file(kafka: Kafka, directory: str) -> float:
    """Seconds from the start of the command to the first row that can be read."""
    names = Names(next(_NUMBERS))
    path = os.path.join(directory, f"start-{names.number}.yaml")
    with open(pipeline_file("fleet"), encoding="utf-8") as demo, open(path, "w", encoding="utf-8") as file:
        file.write(names.apply(without_triggers(demo.read())))
    given = (f"bootstrap={kafka.bootstrap}", f"checkpoints={os.path.join(directory, f'start-{names.number}')}")
    options = [word for each in given for word in ("--set", each)]
    return _first_row([*_PENSTOCK, "pipeline", "run", path, *options], kafka, names)


def start_by_hand(kafka: Kafka, directory: str) -> float:
    names = Names(next(_NUMBERS))
    program = [sys.executable, "-m", "bench.pipeline_commands", kafka.bootstrap, directory, str(names.number)]
    return _first_row(program, kafka, names)


def _first_row(program: list[str], kafka: Kafka, names: Names) -> float:
    with _filled(kafka, names), contextlib.closing(Leaders(kafka.bootstrap, timeout=10.0)) as leaders:
        sink = [TopicPartition(names.of("fleet.locations"), number) for number in range(PARTITIONS)]
        leaders.find({sink[0].topic})
        offsets = LogOffsets(leaders, READ_COMMITTED, 10.0)
        began = time.monotonic()
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                while not any(offsets.at(sink, LATEST).values()):
                    if process.poll() is not None or time.monotonic() - began > _ROW_S:
                        process.kill()
                        raise SystemExit(f"no row came out of {' '.join(program)}:\n{process.communicate()[0]}")
                    time.sleep(0.01)
                return time.monotonic() - began
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate()


@contextlib.contextmanager
def _filled(kafka: Kafka, names: Names) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for topic in names.topics:
            stack.enter_context(kafka.topic(topic, PARTITIONS))
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = [
            f'{{"truck": "truck-{number % TRUCKS}", "sequence": {number}, "latitude": 52.5, "longitude": 8.25, '
            f'"speed": 70, "litres": 62.5, "at": "{at}"}}'
            for number in range(RECORDS)
        ]
        for topic in ("truck-locations", "truck-fuel"):
            write_table(kafka.bootstrap, names.of(topic), pa.table({"value": values}))
        yield


def large_file(steps: int) -> str:
    """Twenty sources, each with a chain of steps, and every tenth of them written to a topic."""
    sources = "\n".join(
        f'  s{number}: {{topic: t{number}, value: {{format: json, schema: "id BIGINT, name STRING, amount DOUBLE"}}}}'
        for number in range(20)
    )
    lines, sinks = [], []
    for number in range(steps):
        before = f"s{number}" if number < 20 else f"p{number - 20}"
        sql = f"SELECT id, upper(name) AS name, amount * 2 AS amount FROM {before} WHERE amount > 0"
        lines.append(f"  p{number}:\n    sql: {sql}")
        lines.append("    expect: [{that: amount < 1000000}]")
        if number % 10 == 0 or number >= steps - 20:
            sinks.append(f"  p{number}: {{from: p{number}, topic: out{number}, key: id}}")
    return "\n".join(["name: large", "sources:", sources, "steps:", *lines, "sinks:", *sinks, ""])


def _by_hand(bootstrap: str, directory: str, number: int) -> None:
    from penstock.spark import session

    names = Names(number)
    spark = session("by-hand", "local[2]", {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"})
    fleet_by_hand(spark, bootstrap, os.path.join(directory, names.of("by-hand")), names)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    _by_hand(sys.argv[1], sys.argv[2], int(sys.argv[3]))
