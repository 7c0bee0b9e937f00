"""`python -m bench.pipelines`: what a pipeline file costs beside the same written by hand in Structured Streaming.

Six parts, each meant to fit into four minutes on a quiet machine of two cores (`--only PART`):

- `commands`: `pipeline list`, `spark status`, `pipeline validate` of 200 steps, and `pipeline test`;
- `start`: from `pipeline run` to the first row, beside a program with the same queries;
- `latency`: the demo's fleet with three queries, 200 events a second into each of two topics, both ways in turns;
- `rows`: 2,000,000 rows through whole runs, both ways in turns;
- `load`: the latency with 1, 3 and 6 queries at 100, 1,000 and 20,000 events a second;
- `highest`: the highest rate of 1, 3 and 6 queries at which p99 stays below 5 s.

Java's class archive and numba's kernels are made first: otherwise processes behind the first samples would make them.

Samples are added to the file of `--json`, part by part, with the commit and the load of the machine
before and after each part, and `--plot` draws a picture of all that are there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench.pipeline_commands import quick_commands, start_by_file, start_by_hand, tests
from bench.pipeline_latency import Clock, Latencies
from bench.pipeline_start import make_caches
from bench.pipeline_volume import LOADS, PARTITIONS, TOPIC, WholeRuns, fill
from bench.results import circumstances
from bench.subjects import Kafka, keep_bytecode, penstock
from penstock.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}
PARTS = ("commands", "start", "latency", "rows", "load", "highest")
QUERIES = (1, 3, 6)
RATES = (100, 1_000, 20_000)
HIGHEST_P99_S = 5.0
HIGHEST_RATES = (20_000, 40_000, 60_000, 80_000, 120_000, 160_000, 240_000)
COST_MAX = 1.05
SENT_MIN = 0.98
"""Of a rate: below that the generator is the limit, and not the queries."""
FURTHER_FILES = 2

ONE_FILE, THREE_FILES = "test, two tests", "test, three files"

Samples = dict[str, Any]


class Bench:
    def __init__(self, kafka: Kafka, directory: str, arguments: argparse.Namespace, console: Console) -> None:
        self._kafka = kafka
        self._directory = directory
        self._rounds: int = arguments.rounds
        self._arguments = arguments
        self._console = console
        self._spark: SparkSession | None = None

    def measure(self, part: str) -> Samples:
        made: Samples = getattr(self, f"_{part}")()
        return made

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            config = {
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.session.timeZone": "UTC",
            }
            self._spark = session("bench", "local[2]", config)
            self._spark.sparkContext.setLogLevel("OFF")  # queries by hand are stopped in mid-batch
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    def _say(self, text: str) -> None:
        self._console.print(text)

    def _commands(self) -> Samples:
        quick_commands(self._kafka, self._directory)  # the first compiles modules
        samples: Samples = {}
        for _ in range(max(3, self._rounds)):
            for name, cost in quick_commands(self._kafka, self._directory).items():
                samples.setdefault(name, []).append(cost.wall_s)
        for _ in range(self._rounds):
            alone, together = tests(0), tests(FURTHER_FILES)
            self._say(f"pipeline test: {alone:.1f} s, three files {together:.1f} s")
            samples.setdefault(ONE_FILE, []).append(alone)
            samples.setdefault(THREE_FILES, []).append(together)
        return samples

    def _start(self) -> Samples:
        samples: Samples = {"file": [], "hand": []}
        for _ in range(self._rounds):
            samples["file"].append(start_by_file(self._kafka, self._directory))
            samples["hand"].append(start_by_hand(self._kafka, self._directory))
            self._say(f"first row: {samples['file'][-1]:.1f} s by file, {samples['hand'][-1]:.1f} s by hand")
        return samples

    def _latency(self) -> Samples:
        latencies = Latencies(self.spark, self._kafka, self._directory)
        ways = (("file", latencies.fleet_by_file), ("hand", latencies.fleet_by_hand))
        samples: Samples = {"file": [], "hand": []}
        for _, measured in ways:
            measured(Clock(warm_up_s=5.0, seconds=2.0))  # Java compiles
        clock = Clock(warm_up_s=8.0, seconds=self._arguments.seconds)
        for _ in range(self._rounds):
            for way, measured in ways:
                sample = measured(clock)
                self._say(
                    f"latency by {way}: p50 {sample.load.p50_s:.2f} s, p99 {sample.load.p99_s:.2f} s; {sample.batches}"
                )
                samples[way].append(sample.to_json())
        return samples

    def _rows(self) -> Samples:
        rows = self._arguments.rows
        samples: Samples = {load: {"file": [], "hand": []} for load in LOADS}
        with self._kafka.topic(TOPIC, PARTITIONS):
            fill(self._kafka, rows)
            runs = WholeRuns(self.spark, self._kafka, self._directory, rows // self._arguments.batches)
            for number in range(self._rounds + 1):  # the first warms up
                for load in LOADS:
                    seconds = runs.by_file(load), runs.by_hand(load)
                    self._say(f"round {number}: {load}: {seconds[0]:.2f} s by file, {seconds[1]:.2f} s by hand")
                    if number:
                        samples[load]["file"].append(seconds[0])
                        samples[load]["hand"].append(seconds[1])
        return samples

    def _load(self) -> Samples:
        latencies = Latencies(self.spark, self._kafka, self._directory)
        latencies.load(1, RATES[0], Clock(warm_up_s=5.0, seconds=2.0))  # warms up
        samples: Samples = {"cells": []}
        for queries in QUERIES:
            for rate in RATES:
                made = latencies.load(queries, rate, Clock(warm_up_s=5.0, seconds=self._arguments.seconds / 2))
                self._say(f"{queries} queries, {rate} events/s: p50 {made.p50_s:.2f} s, p99 {made.p99_s:.2f} s")
                samples["cells"].append({"queries": queries, "rate": rate, **made.__dict__})
        return samples

    def _highest(self) -> Samples:
        latencies = Latencies(self.spark, self._kafka, self._directory)
        latencies.load(1, RATES[0], Clock(warm_up_s=5.0, seconds=2.0))  # warms up
        samples: Samples = {"cells": []}
        for queries in QUERIES:
            for rate in HIGHEST_RATES:
                made = latencies.load(queries, rate, Clock(warm_up_s=5.0, seconds=self._arguments.seconds / 2))
                cell = {"queries": queries, "rate": rate, **made.__dict__}
                self._say(f"{queries} queries, {rate} events/s ({made.sent_a_second:.0f} sent): p99 {made.p99_s:.2f} s")
                samples["cells"].append(cell)
                if not is_held(cell):
                    break
        return samples


def is_sent(cell: Samples) -> bool:
    return bool(cell["sent_a_second"] >= SENT_MIN * cell["rate"])


def is_held(cell: Samples) -> bool:
    """The rate was really sent, everything came out, and p99 is within the limit."""
    return is_sent(cell) and not cell["missing"] and bool(cell["p99_s"] < HIGHEST_P99_S)


def report(console: Console, samples: Samples) -> None:
    table = Table(title="medians (all rounds)", title_justify="left")
    for heading in ("", "by file", "by hand", "aim"):
        table.add_column(heading, justify="left" if not heading else "right")
    for row in rows_of(samples):
        table.add_row(*row)
    console.print(table)


def rows_of(samples: Samples) -> Iterator[tuple[str, str, str, str]]:
    aims = {
        "pipeline list": "0.5 s",
        "spark status": "0.5 s",
        ONE_FILE: "12 s",
        THREE_FILES: "16 s",
    }
    commands = samples.get("commands", {})
    for name, found in commands.items():
        yield name, _seconds(found), "", f"≤ {aims.get(name, '1 s')}"
    if THREE_FILES in commands:
        further = (median(commands[THREE_FILES]) - median(commands[ONE_FILE])) / FURTHER_FILES
        yield "test, each further file", f"{further:.2f} s", "", "≤ 2 s"
    if start := samples.get("start"):
        yield "run, to the first row", _seconds(start["file"]), _seconds(start["hand"]), "≤ 12 s"
    if latency := samples.get("latency"):
        for name, aim in (("p50_s", "0.4 s"), ("p99_s", "1 s")):
            ways = [[each[name] for each in latency[way]] for way in ("file", "hand")]
            yield f"latency, {name[:3]}", _seconds(ways[0]), _seconds(ways[1]), f"≤ {aim}, 1.2 of by hand"
        ways = [[each["batches"]["triggerExecution"] / 1000 for each in latency[way]] for way in ("file", "hand")]
        yield "batch of the fleet's locations", _seconds(ways[0]), _seconds(ways[1]), "≤ 0.25 s"
    for load, found in samples.get("rows", {}).items():
        ratios = [ours / other for ours, other in zip(found["file"], found["hand"], strict=True)]
        ratio = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) ≤ {COST_MAX:g}"
        yield f"{load}, whole run", _seconds(found["file"]), _seconds(found["hand"]), ratio
    for cell in samples.get("load", {}).get("cells", ()):
        name = f"{cell['queries']} queries, {cell['rate']:,} events/s"
        less = "" if is_sent(cell) else f", only {cell['sent_a_second']:,.0f}/s sent"
        yield name, f"{cell['p50_s']:.2f} / {cell['p99_s']:.2f} s{less}", "", ""
    for queries in QUERIES:
        cells = [each for each in samples.get("highest", {}).get("cells", ()) if each["queries"] == queries]
        if cells:
            yield f"{queries} queries, highest rate with p99 < {HIGHEST_P99_S:g} s", _highest(cells), "", ""


def _highest(cells: list[Samples]) -> str:
    held = [f"{each['rate']:,}/s" for each in cells if is_held(each)] or ["none"]
    last = cells[-1]
    if is_sent(last):
        return held[-1]
    return f"{held[-1]}; the generator sent only {last['sent_a_second']:,.0f} of {last['rate']:,}/s"


def _seconds(found: list[float]) -> str:
    return f"{median(found):.2f} s ({', '.join(f'{each:.2f}' for each in found)})"


def plot(samples: Samples, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    cells = [*samples.get("load", {}).get("cells", ()), *samples.get("highest", {}).get("cells", ())]
    for queries, colour in zip(QUERIES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        mine = sorted((each["rate"], each["p50_s"], each["p99_s"]) for each in cells if each["queries"] == queries)
        if mine:
            rates, halves, worst = zip(*mine, strict=True)
            axes.plot(rates, worst, "o-", color=colour, label=f"{queries} queries, p99")
            axes.plot(rates, halves, "o:", color=colour, label=f"{queries} queries, p50")
    axes.axhline(HIGHEST_P99_S, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("events a second, all queries together")
    axes.set_ylabel("seconds from sent to readable (read_committed)")
    axes.set_title("Latency of pipelines, topic to topic, exactly once")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    arguments = _arguments()
    console = Console(width=140)
    kept = _read(arguments.json)
    with tempfile.TemporaryDirectory(prefix="penstock-pipelines-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(arguments.directory or tempfile.gettempdir(), "penstock-bench-bytecode"))
        make_caches()
        with (
            penstock(os.path.join(directory, "node"), TWO_PHASE) as kafka,
            contextlib.closing(Bench(kafka, directory, arguments, console)) as bench,
        ):
            for part in arguments.only or PARTS:
                before = circumstances()
                kept[part] = bench.measure(part)
                kept.setdefault("circumstances", {})[part] = {"before": before, "after": circumstances()}
                console.print(f"{part}: {before}, load average afterwards {circumstances()['load_average']}")
                if arguments.json:
                    with open(arguments.json, "w", encoding="utf-8") as file:
                        json.dump(kept, file, indent=2)
    report(console, kept)
    if arguments.plot:
        plot(kept, arguments.plot)


def _read(path: str | None) -> Samples:
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        found: Samples = json.load(file)
        return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipelines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="any number (default: all)")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="of each way (default: 2)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of a latency (default: 20)")
    parser.add_argument("--rows", type=int, default=2_000_000, metavar="N", help="in the topic (default: 2,000,000)")
    parser.add_argument("--batches", type=int, default=8, metavar="N", help="of a run (default: 8)")
    parser.add_argument(
        "--json", metavar="FILE", help="keep all samples there; parts that are there already are shown, too"
    )
    parser.add_argument("--plot", metavar="PNG", help="draw the latencies of load and highest")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
