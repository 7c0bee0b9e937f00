"""`python -m bench.pipelines`: what a pipeline file costs beside the same written by hand in Structured Streaming.

Both read the same topic of JSON in the same batches, in turns and in one session of `local[2]`, and write to a topic
exactly once: rows that are decoded and filtered, and windows that are counted. Measured is the time from start to end
of a whole run (`--once`; by hand: `availableNow`), with what is planned before the first batch. Then
`penstock pipeline validate` of a file with 200 steps, as a process, from start to end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.subjects import Kafka, keep_bytecode, penstock
from penstock.arrow import Writer
from penstock.demo.events import Stream, page_views
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.runner import Runner
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
TOPIC = "page-views"
PARTITIONS = 2
CHUNK = 100_000
COST_MAX = 1.05
VALIDATE_SECONDS_MAX = 1.0
STEPS = 200
_NUMBERS = count(1)

SCHEMA = "user STRING NOT NULL, page STRING, at TIMESTAMP NOT NULL"
FILE = """\
name: bench-{number}
bootstrap: {bootstrap}
checkpoints: {directory}/checkpoints
sources:
  views:
    topic: page-views
    value: {{format: json, schema: "{schema}"}}
    on_error: drop
    max_records: {batch}
    watermark: {{column: at, delay: 10 minutes}}
steps:
  made:
    sql: |
      {sql}
sinks:
  made: {{from: made, topic: made-{number}, key: user}}
"""
LOADS = {
    "rows": "SELECT user, page, at, length(page) AS size FROM views WHERE page <> '/help'",
    "windows": "SELECT user, window.start, count(*) AS views FROM views GROUP BY user, window(at, '5 minutes')",
}


@dataclass
class Pair:
    """Seconds of both ways, round by round."""

    load: str
    file: list[float] = field(default_factory=list)
    hand: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [ours / other for ours, other in zip(self.file, self.hand, strict=True)]


@dataclass(frozen=True)
class Bench:
    spark: SparkSession
    kafka: Kafka
    directory: str
    batch: int

    def by_file(self, load: str) -> float:
        number = next(_NUMBERS)
        path = os.path.join(self.directory, f"{number}.yaml")
        text = FILE.format(
            number=number,
            bootstrap=self.kafka.bootstrap,
            directory=self.directory,
            schema=SCHEMA,
            batch=self.batch,
            sql=LOADS[load],
        )
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        with self.kafka.topic(f"made-{number}", PARTITIONS):
            return _seconds(lambda: self._run_file(path))

    def _run_file(self, path: str) -> None:
        loaded, _ = load_checked(path)
        Runner(loaded, self.spark).run_once()

    def by_hand(self, load: str) -> float:
        number = next(_NUMBERS)
        with self.kafka.topic(f"made-{number}", PARTITIONS) as topic:
            return _seconds(lambda: self._run_hand(load, topic, number))

    def _run_hand(self, load: str, topic: str, number: int) -> None:
        made = _by_hand(self.spark, self.kafka.bootstrap, self.batch, LOADS[load])
        made = made.selectExpr("user AS key", "to_json(struct(*), map('ignoreNullFields', 'false')) AS value")
        query = (
            made.writeStream.format("penstock")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", os.path.join(self.directory, f"by-hand-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _by_hand(spark: SparkSession, bootstrap: str, batch: int, sql: str) -> DataFrame:
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch))
        .load()
    )
    read = f.from_json(f.col("value").cast("string"), f"{SCHEMA}, bad STRING", {"columnNameOfCorruptRecord": "bad"})
    rows = (
        records.select(read.alias("row")).select("row.*").filter("bad IS NULL AND user IS NOT NULL AND at IS NOT NULL")
    )
    rows.drop("bad").withWatermark("at", "10 minutes").createOrReplaceTempView("views")
    return spark.sql(sql)


def _seconds(run: Callable[[], None]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def fill(kafka: Kafka, rows: int) -> None:
    events = page_views(Stream(step_ms=12 * 3_600_000 / rows, keys=1000, late=0.0, poison=0.0))
    with Writer(kafka.bootstrap) as writer:
        for _ in range(0, rows, CHUNK):
            chunk = list(islice(events, CHUNK))
            table = pa.table({"key": [each.key for each in chunk], "value": [each.value for each in chunk]})
            writer.write(TOPIC, table)


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


def validate_seconds(directory: str, rounds: int) -> list[tuple[float, float]]:
    """By the clock and of CPU: on a busy machine only the second says something. The first run is not counted."""
    path = os.path.join(directory, "large.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(large_file(STEPS))
    command = [sys.executable, "-m", "penstock", "pipeline", "validate", path]
    samples = []
    for _ in range(rounds + 1):
        before = _cpu_seconds()
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        samples.append((time.monotonic() - began, _cpu_seconds() - before))
    return samples[1:]


def _cpu_seconds() -> float:
    """Of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    arguments = _arguments()
    console = Console(width=120)
    pairs = [Pair(load) for load in LOADS]
    with tempfile.TemporaryDirectory(prefix="penstock-pipelines-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        validated = validate_seconds(directory, max(3, arguments.rounds))
        if not arguments.validate_only:
            _measure(pairs, directory, arguments, console)
    _print(console, pairs, validated, arguments)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            made = {pair.load: {"file": pair.file, "hand": pair.hand} for pair in pairs}
            json.dump({"seconds": made, "validate_seconds": validated}, file, indent=2)


def _measure(pairs: list[Pair], directory: str, arguments: argparse.Namespace, console: Console) -> None:
    with penstock(os.path.join(directory, "node"), TWO_PHASE) as kafka, kafka.topic(TOPIC, PARTITIONS):
        fill(kafka, arguments.rows)
        config = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
        spark = session("bench", "local[2]", config)
        spark.sparkContext.setLogLevel("OFF")
        bench = Bench(spark, kafka, directory, arguments.rows // arguments.batches)
        for number in range(arguments.rounds + 1):  # the first warms up
            for pair in pairs:
                seconds = bench.by_file(pair.load), bench.by_hand(pair.load)
                console.print(f"round {number}: {pair.load}: {seconds[0]:.2f} s by file, {seconds[1]:.2f} s by hand")
                if number:
                    pair.file.append(seconds[0])
                    pair.hand.append(seconds[1])
        spark.stop()


def _print(
    console: Console, pairs: list[Pair], validated: list[tuple[float, float]], arguments: argparse.Namespace
) -> None:
    if not arguments.validate_only:
        title = f"{arguments.rows:,} events in {arguments.batches} batches, topic to topic, exactly once"
        table = Table(title=title, title_justify="left")
        for heading in ("load", "by file", "by hand", "ratio", "target", ""):
            table.add_column(heading, justify="left" if heading == "load" else "right")
        for pair in pairs:
            ratio = median(pair.ratios)
            table.add_row(
                pair.load,
                f"{median(pair.file):.2f} s",
                f"{median(pair.hand):.2f} s",
                f"{ratio:.3f} ({min(pair.ratios):.2f}-{max(pair.ratios):.2f})",
                f"≤ {COST_MAX:g}",
                "yes" if ratio <= COST_MAX else "no",
            )
        console.print(table)
    clock, cpu = (median(samples) for samples in zip(*validated, strict=True))
    met = "yes" if clock <= VALIDATE_SECONDS_MAX else "no"
    console.print(f"validate of {STEPS} steps: {clock:.2f} s, {cpu:.2f} s of CPU (≤ {VALIDATE_SECONDS_MAX:g} s: {met})")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each way (default: 3)")
    parser.add_argument("--rows", type=int, default=2_000_000, metavar="N", help="in the topic (default: 2,000,000)")
    parser.add_argument("--batches", type=int, default=8, metavar="N", help="of a run (default: 8)")
    parser.add_argument("--validate-only", action="store_true", help="without Spark")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
