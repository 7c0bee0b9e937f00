"""`penstock spark`: run PySpark programs, check whether Spark works, and show the progress of streaming queries."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = command_group("Run PySpark programs that read and write topics. You do not need to install Java.")

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark master: local\\[4], spark://HOST:7077, ...; default: all cores of this machine.",
        show_default=False,
    ),
]
ShipEnv = Annotated[bool, typer.Option("--ship-env", help="Ship this Python environment to executors that lack it.")]
ShipWithout = Annotated[
    list[str] | None,
    typer.Option(metavar="PACKAGE", help="With --ship-env: leave out this package; repeatable.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="NAME=VALUE", help="Setting of Spark; repeatable.", show_default=False),
]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="Python program to run.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT...", help="Arguments of the program.", show_default=False)
    ] = None,
    master: Master = None,
    ship_env: ShipEnv = False,
    ship_without: ShipWithout = None,
    conf: Settings = None,
) -> None:
    """Run a PySpark program with Java, Python, settings for small batches and quiet logs configured.

    The program creates its session with penstock.spark.session() or with Spark's own API. Its settings override the
    options of this command. Put options of the program after its name.

    Examples:

        penstock spark run orders.py
        penstock spark run --conf spark.driver.memory=4g orders.py --since yesterday
        penstock spark run --master spark://10.0.0.7:7077 --ship-env orders.py
    """
    from penstock.spark.runtime.session import COMMAND_LINE, CommandLine, plan

    if not os.path.isfile(script):
        fail(f"{script}: no such file")
    config = _settings(conf)
    asked = {**config, "spark.master": master} if master else config
    name = os.path.splitext(os.path.basename(script))[0]
    planned = plan(name, asked, ship_env=ship_env, ship_without=ship_without or ())
    submitted = [word for key, value in planned.config.items() for word in ("--conf", f"{key}={value}")]
    said = CommandLine(master, ship_env, ship_without or (), planned.archive, config)
    environment = {
        **os.environ,
        **planned.environment,
        COMMAND_LINE: said.to_text(),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*submitted, "pyspark-shell"]),
    }
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, script, *(arguments or ())], environment)


@app.command()
def check(
    master: Master = None,
    ship_env: ShipEnv = False,
    ship_without: ShipWithout = None,
    conf: Settings = None,
    json: Json = False,
) -> None:
    """Check whether Spark works on this machine, step by step, and print the time of each step.

    Prints the Java and the versions in use, compiles the kernels that the first query would otherwise wait for, starts
    a session and runs a Python task on every core.

    Examples:

        penstock spark check
        penstock spark check --master spark://10.0.0.7:7077 --ship-env
    """
    report = _Report(json)
    report.found("python", f"{sys.version.split()[0]}, {sys.executable}")
    java = _find_java(report)
    report.found("java", f"{java.version}, {java.executable} ({java.origin})")

    from penstock.spark.runtime.kernels import compile_kernels
    from penstock.spark.runtime.session import session

    with report.timed("kernels", "compiled"):
        compile_kernels()
    config = _settings(conf)
    with report.timed("session", "started"):
        spark = session("penstock-check", master, config, ship_env=ship_env, ship_without=ship_without or ())
    try:
        report.found("spark", f"{spark.version}, {spark.sparkContext.master}")
        report.found("classes", _archive_state(spark))
        with report.timed("first job", "done"):
            found = _run_tasks(spark)
        with report.timed("second job", "done"):
            _run_tasks(spark)
    finally:
        spark.stop()
    for line in found:
        report.found("executors", line)
    report.end()


@app.command()
def status(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show the progress of the streaming queries that read from a cluster, running or ended.

    LAG is the number of records that were waiting in the topics when the last batch ended; `penstock groups describe
    GROUP` shows the current lag. A query is lost if its reports are overdue: its driver was killed, or cannot reach the
    cluster.

    Example:

        penstock spark status
    """
    from penstock.spark import queries

    found = queries(bootstrap_server)
    if json:
        print_json(found)
    elif found:
        print_table(
            ["QUERY", "STATE", "BATCH", "ROWS/S", "LAG", "STATE ROWS", "LATE", "GROUP"],
            [
                [
                    query.name or query.query_id,
                    query.state,
                    query.batch_id,
                    round(query.processed_rows_per_second) if query.batch_id is not None else None,
                    query.lag,
                    query.state_rows if query.operators else None,
                    query.late_rows_dropped_total if query.operators else None,
                    sorted({source.group for source in query.sources if source.group}) or None,
                ]
                for query in found
            ],
        )
        for query in found:
            if query.error is not None:
                note(f"{query.name or query.query_id}: {query.error.strip().splitlines()[0]}")
    else:
        note("no queries")


class _Report:
    """Prints lines as they come, or one object at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._content: dict[str, Any] = {}

    def found(self, what: str, text: str) -> None:
        self._content[what.replace(" ", "_")] = text
        if not self._as_json:
            print(f"{what:12} {text}", flush=True)

    def timed(self, what: str, text: str) -> _Step:
        return _Step(self, what, text)

    def end(self) -> None:
        if self._as_json:
            print_json(self._content)


class _Step:
    def __init__(self, report: _Report, what: str, text: str) -> None:
        self._report, self._what, self._text = report, what, text

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._report.found(self._what, f"{self._text} in {time.monotonic() - self._began:.1f} s")


def _find_java(report: _Report) -> Any:
    from penstock.spark.runtime.java import find_java

    java = find_java()
    for reason in java.passed_over:
        report.found("passed over", reason)
    return java


def _archive_state(spark: SparkSession) -> str:
    """Whether Java's classes come from an archive."""
    from penstock.spark.runtime.class_archive import ARCHIVE_IN_USE
    from penstock.spark.runtime.defaults import JAVA_OPTIONS

    if used := ARCHIVE_IN_USE.search(spark.conf.get(JAVA_OPTIONS, None) or ""):
        return f"from the archive {used[1]}"
    return "not from an archive: it is turned off, is being made in the background, or cannot be made"


def _run_tasks(spark: SparkSession) -> list[str]:
    """The versions of Python and Penstock on the executors, one line for each combination."""
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import udf

    @udf(returnType="string", useArrow=False)
    def versions(_: int) -> str:
        import sys

        import penstock
        import penstock.arrow  # noqa: F401 - it must be there, too

        return f"Python {sys.version.split()[0]}, Penstock {penstock.__version__}"

    tasks = spark.sparkContext.defaultParallelism
    try:
        rows = spark.range(tasks, numPartitions=tasks).select(versions("id")).distinct().collect()
    except PySparkException as error:
        if "No module named" in str(error):
            fail("executors lack Penstock or what it needs: install penstock[spark] on them, or use --ship-env")
        raise
    return sorted(row[0] for row in rows)


def _settings(pairs: list[str] | None) -> Mapping[str, str]:
    settings = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith("spark."):
            fail(f"--conf {pair!r} is not spark.NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings
