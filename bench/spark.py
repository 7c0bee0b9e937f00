"""`python -m bench.spark`: topics through Spark, beside rows that Spark makes itself, and from one topic to another.

What is compared, in turns and in one session of `local[2]`:

- the source into nothing (`noop`) and into a windowed count, beside the *floor*: rows of the same shape that Spark's
  own `rate-micro-batch` source makes in the JVM; and beside Spark's own Kafka connector, where `--connector` names a
  version of it that Maven can bring;
- the sink, at least once and exactly once, fed with the rows of the floor;
- the latency of a query from topic to topic at 100 records a second, by the clock of this machine, in both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from statistics import median
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench.spark_loads import (
    PARTITIONS,
    WARM_UP_BATCHES,
    Latency,
    fill,
    floor_stream,
    latency,
    rows_a_second,
    topic_stream,
    windowed,
)
from bench.subjects import Kafka, keep_bytecode, penstock
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:"
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
PARTS = ("source", "sink", "latency")
TOPIC = "bench"
SINK_TARGET = 500_000
_NUMBERS = count(1)


@dataclass
class Line:
    """One way, its samples in rows a second, and what it is compared with, round by round."""

    name: str
    measure: Callable[[], float] = field(repr=False)
    beside: Line | None = None
    target: float | None = None
    samples: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return median(self.samples)

    @property
    def ratios(self) -> list[float]:
        if self.beside is None:
            return []
        return [ours / other for ours, other in zip(self.samples, self.beside.samples, strict=True)]

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return (median(self.ratios) if self.beside is not None else self.rate) >= self.target


def source_lines(spark: SparkSession, bootstrap: str, directory: str, arguments: argparse.Namespace) -> list[Line]:
    rows, batches = arguments.rows, arguments.batches
    fill(bootstrap, TOPIC, rows, WARM_UP_BATCHES + batches)

    def topic(form: str) -> Callable[[], float]:
        return lambda: rows_a_second(topic_stream(spark, form, bootstrap, TOPIC, rows), batches, directory)

    def windows(form: str) -> Callable[[], float]:
        return lambda: rows_a_second(
            windowed(topic_stream(spark, form, bootstrap, TOPIC, rows)), batches, directory, mode="update"
        )

    floor = Line("floor into nothing", lambda: rows_a_second(floor_stream(spark, rows), batches, directory))
    ours = Line("topic into nothing", topic("penstock"), floor, 0.6)
    floor_windows = Line(
        "floor into windows",
        lambda: rows_a_second(windowed(floor_stream(spark, rows)), batches, directory, mode="update"),
    )
    our_windows = Line("topic into windows", windows("penstock"), floor_windows, 0.45)
    lines = [floor, ours, floor_windows, our_windows]
    if arguments.connector:
        theirs = Line('format("kafka") into nothing', topic("kafka"))
        their_windows = Line('format("kafka") into windows', windows("kafka"))
        lines += [theirs, Line("topic beside it", topic("penstock"), theirs, 1.0)]
        lines += [their_windows, Line("windows beside it", windows("penstock"), their_windows, 1.0)]
    return lines


def sink_lines(spark: SparkSession, kafka: Kafka, directory: str, arguments: argparse.Namespace) -> list[Line]:
    def into_topic(guarantee: str) -> Callable[[], float]:
        def measure() -> float:
            with kafka.topic(f"{TOPIC}-{guarantee}-{next(_NUMBERS)}", PARTITIONS) as topic:
                rows = floor_stream(spark, arguments.rows).select("value")
                options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "deliveryGuarantee": guarantee}
                return rows_a_second(rows, arguments.batches, directory, form="penstock", **options)

        return measure

    once = Line("into a topic, at least once", into_topic("at-least-once"), target=SINK_TARGET)
    exactly = Line("into a topic, exactly once", into_topic("exactly-once"), once, 0.7)
    return [once, exactly]


def run(lines: list[Line], rounds: int, console: Console) -> None:
    for number in range(rounds):
        for line in lines:
            line.samples.append(line.measure())
            console.print(f"round {number + 1}: {line.name}: {line.samples[-1] / 1e6:.2f}M rows/s")


def main() -> None:
    arguments = _arguments()
    console = Console(width=140)
    lines: list[Line] = []
    latencies: list[Latency] = []
    config = {"spark.driver.memory": "1g"}
    if arguments.connector:
        jars = arguments.connector.endswith(".jar")
        config["spark.jars" if jars else "spark.jars.packages"] = (
            arguments.connector if jars else CONNECTOR + arguments.connector
        )
    with tempfile.TemporaryDirectory(prefix="penstock-spark-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with penstock(os.path.join(directory, "node"), TWO_PHASE) as kafka:
            spark = session("bench", "local[2]", config)
            spark.sparkContext.setLogLevel("OFF")  # queries are stopped in mid-batch, which Spark calls an error
            parts = arguments.only or PARTS
            if "source" in parts:
                lines += source_lines(spark, kafka.bootstrap, directory, arguments)
            if "sink" in parts:
                lines += sink_lines(spark, kafka, directory, arguments)
            run(lines, arguments.rounds, console)
            if "latency" in parts:
                latencies = [
                    latency(spark, kafka.bootstrap, directory, delivery, arguments.records)
                    for delivery in ("at-least-once", "exactly-once")
                ]
            spark.stop()
    _print(console, lines, latencies, arguments)
    if arguments.json:
        with open(arguments.json, "w") as file:
            rates = {line.name: line.samples for line in lines}
            json.dump({"rows_a_second": rates, "latency": list(map(asdict, latencies))}, file, indent=2)


def _print(console: Console, lines: list[Line], latencies: list[Latency], arguments: argparse.Namespace) -> None:
    if lines:
        table = Table(
            title=f"batches of {arguments.rows:,} rows, values of 100 B; medians of {arguments.rounds}",
            title_justify="left",
        )
        for heading in ("load", "rows/s", "ratio", "target", ""):
            table.add_column(heading, justify="left" if heading == "load" else "right")
        for line in lines:
            ratios = line.ratios
            table.add_row(
                line.name,
                f"{line.rate / 1e6:.2f}M",
                f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "",
                "" if line.target is None else f"≥ {line.target:g}" if ratios else f"≥ {line.target / 1e6:g}M",
                {None: "", True: "yes", False: "no"}[line.met],
            )
        console.print(table)
    for each in latencies:
        console.print(str(each))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="any number (default: all)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each way (default: 3)")
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="a batch (default: 1,000,000)")
    parser.add_argument("--batches", type=int, default=5, metavar="N", help="that are measured (default: 5)")
    parser.add_argument("--records", type=int, default=2000, metavar="N", help="of a latency (default: 2000)")
    parser.add_argument("--connector", metavar="VERSION|JAR,...", help="Spark's own connector, to compare with")
    parser.add_argument("--json", metavar="FILE", help="write all samples there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
