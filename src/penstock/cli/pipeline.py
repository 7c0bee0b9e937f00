"""`penstock pipeline`: validates, draws, tests and runs pipelines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import pipeline_dead_letters, pipeline_init, pipeline_operate, pipeline_replay
from penstock.cli.output import Json, command_group, fail, note, parse_pairs, quiet_librdkafka
from penstock.cli.pipeline_cluster import Environment, PipelineBootstrap, Settings, cluster_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded
    from penstock.pipelines.spec.model import Pipeline
    from penstock.pipelines.spec.secrets import Secret

app = command_group("Validate, test, run and operate data pipelines.")
app.command("init")(pipeline_init.init)
app.command("list")(pipeline_operate.list_pipelines)
app.command("status")(pipeline_operate.status)
app.command("stop")(pipeline_operate.stop)
app.command("dead-letters")(pipeline_dead_letters.dead_letters)
app.command("replay-dead-letters")(pipeline_replay.replay_dead_letters)

File = Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="Pipeline file, in YAML.")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="Spark master: spark://host:7077, yarn, local[4], ...", show_default="local[*]"
    ),
]

_TEST_MASTER = "local[2]"


@app.command()
def validate(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", show_default=False, help="Pipeline files, or directories with such files."),
    ],
    env: Environment = None,
    settings: Settings = None,
    json: Json = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Let Spark plan the pipeline, too, and print the types of all columns.")
    ] = False,
    against_checkpoint: Annotated[
        bool,
        typer.Option("--against-checkpoint", help="Show how edits since the last run affect the checkpoints."),
    ] = False,
) -> None:
    """Report all errors in pipeline files, without Spark, Java or brokers.

    Every error comes with file, line and column. Without --env, checks the file and each of its environments. Of a
    directory, checks all pipelines in it and below. Exits with 1 if a pipeline has errors.

    Examples:

        penstock pipeline validate orders.yaml
        penstock pipeline validate orders.yaml --env prod --set minimum=10
        penstock pipeline validate orders.yaml payments.yaml
        penstock pipeline validate pipelines/
        penstock pipeline validate orders.yaml --analyze
        penstock pipeline validate orders.yaml --against-checkpoint
    """
    from penstock.cli.pipeline_validate import analyzed, compared, named_files, validated

    found = named_files(files)
    if not analyze and not against_checkpoint:
        raise typer.Exit(0 if validated(found, env, parse_pairs("--set", settings or ()), json) else 1)
    fine = True
    for file in found.pipelines:
        loaded = checked(file, env, settings)
        if against_checkpoint:
            fine = compared(loaded, partial(_session, [loaded], None), json) and fine
        if analyze:
            session = _quick_session(loaded.pipeline.name, loaded.pipeline.spark, None)
            fine = analyzed(loaded, session, json) and fine
    raise typer.Exit(0 if fine else 1)


@app.command()
def graph(
    file: File,
    env: Environment = None,
    settings: Settings = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart, for web pages.")] = False,
) -> None:
    """Show the queries of a pipeline: what each reads, computes and writes.

    Example:

        penstock pipeline graph orders.yaml --mermaid > orders.mmd
    """
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import plan
    from penstock.pipelines.operate import graph as pictures

    loaded = checked(file, env, settings)
    analysis = analyse(loaded.pipeline, loaded.directory)
    draw = pictures.mermaid if mermaid else pictures.tree
    print(draw(loaded.pipeline, analysis, plan(loaded.pipeline, analysis)))


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors.

    Example:

        penstock pipeline schema > pipeline.schema.json
    """
    from penstock.pipelines.spec.json_schema import FILE

    with open(FILE, encoding="utf-8") as opened:
        print(opened.read(), end="")


@app.command()
def test(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|TEST",
            show_default=False,
            help="Pipeline files, in YAML, and the names of the tests to run; default: all tests.",
        ),
    ],
    env: Environment = None,
    settings: Settings = None,
    master: Master = None,
) -> None:
    """Run the tests in pipeline files: rows in, rows and dead letters out, on Spark and without a broker.

    All files share one Spark session: Spark starts once, and plans a test while it computes another.

    Examples:

        penstock pipeline test examples/pipelines/routing.yaml
        penstock pipeline test examples/pipelines/routing.yaml examples/pipelines/fleet.yaml
    """
    from penstock.cli.pipeline_test import chosen, shared_settings, tested

    wanted = chosen(files, lambda file: checked(file, env, settings))
    config = shared_settings([each.loaded for each in wanted])
    name = wanted[0].loaded.pipeline.name if len(wanted) == 1 else "penstock-pipeline-test"
    if not tested(wanted, _quick_session(name, config, master)):
        raise typer.Exit(1)


@app.command()
def preview(
    file: File,
    step: Annotated[
        str, typer.Argument(metavar="STEP", show_default=False, help="A step, source or sink of the file.")
    ],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most this many rows.")] = 10,
    records: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the newest records of each topic to read.")
    ] = 1000,
    everything: Annotated[bool, typer.Option("--all", help="Read all records instead of the newest.")] = False,
    env: Environment = None,
    settings: Settings = None,
    master: Master = None,
    bootstrap_server: PipelineBootstrap = None,
    json: Json = False,
) -> None:
    """Show rows of a step, computed from the newest records of its topics. Writes nothing and keeps no checkpoint.

    Also shows which records would become dead letters on the way. A step with state sees only the records that are
    read, and no watermark.

    Examples:

        penstock pipeline preview orders.yaml large
        penstock pipeline preview orders.yaml large --limit 3 --records 100000 --json
    """
    from penstock.cli.pipeline_preview import previewed

    quiet_librdkafka()
    loaded = checked(file, env, settings)
    check_secrets(loaded.pipeline)
    previewed(
        loaded,
        step,
        cluster_of(bootstrap_server, loaded).address,
        partial(_quick_session, loaded.pipeline.name, loaded.pipeline.spark, master),
        limit=limit,
        records=None if everything else records,
        as_json=json,
    )


Once = Annotated[
    bool, typer.Option("--once", help="Process the existing records, then exit; default: run until stopped.")
]
Begin = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help='Run a backfill from "earliest", "latest", offset:N, a time, or offsets as JSON.',
        show_default=False,
    ),
]
End = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="WHERE", help="End of the backfill (exclusive); default: run until stopped.", show_default=False
    ),
]
BackfillName = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Name of the backfill, its checkpoints and its groups.", show_default=False
    ),
]
OutputSuffix = Annotated[
    str,
    typer.Option(
        metavar="TEXT", help="Append this to the names of the topics, paths and tables to write.", show_default=False
    ),
]
BackfillQueries = Annotated[
    list[str] | None, typer.Option("--query", "-q", metavar="NAME", help="Backfill only this query; repeatable.")
]
MetricsListener = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Serve Prometheus metrics at this address, under /metrics.", show_default=False
    ),
]
SparkLog = Annotated[
    str,
    typer.Option(
        "--spark-log", metavar="LEVEL", help="Level of Spark's own log: ERROR, WARN, ... The log may show secrets."
    ),
]


@app.command()
def run(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", show_default=False, help="Pipeline files, in YAML.")],
    env: Environment = None,
    settings: Settings = None,
    once: Once = False,
    begin: Begin = None,
    end: End = None,
    name: BackfillName = None,
    output_suffix: OutputSuffix = "",
    query: BackfillQueries = None,
    master: Master = None,
    bootstrap_server: PipelineBootstrap = None,
    metrics_listener: MetricsListener = None,
    spark_log: SparkLog = "OFF",
) -> None:
    """Run pipelines on Spark.

    A pipeline continues from its checkpoints, whatever ended the last run. Ctrl-C or SIGTERM stops it after the running
    batches; a second one cuts them off. A failed query restarts as `restart` in the file defines.

    Several pipelines share one Spark session, which takes less time and memory than one for each. If one of them fails,
    the others go on. Exits with 1 if one has failed.

    With --from and --as, the command runs a backfill: the same pipeline under another name, beside the original. It
    ends at --to. Run the same command again to resume a backfill; once it has ended, the command does nothing.

    Examples:

        penstock pipeline run orders.yaml --env prod --master spark://host:7077
        penstock pipeline run orders.yaml --once
        penstock pipeline run orders.yaml fleet.yaml
        penstock pipeline run orders.yaml --from 2026-05-01 --to 2026-05-02 --as orders-may --output-suffix .may
    """
    from penstock.cli.pipeline_run import backfill_of, backfill_runner, ended, planned_runners, ready, serving_metrics

    quiet_librdkafka()
    began = time.monotonic()
    pipelines = [checked(file, env, settings) for file in files]
    wanted = backfill_of(begin, end, name, output_suffix, tuple(query or ()))
    if wanted is not None and len(pipelines) > 1:
        fail("a backfill is of one pipeline")
    for loaded in pipelines:
        check_secrets(loaded.pipeline)
    once = once or (wanted is not None and bool(wanted.end))
    clusters = ready(pipelines, wanted, bootstrap_server, once=once)
    note(f"checked in {time.monotonic() - began:.1f} s; Spark starts")
    session = partial(_logged_session, pipelines, master, spark_log)
    with serving_metrics(metrics_listener) as metrics:
        if wanted is None:
            runners = planned_runners(clusters, session)
        else:
            ((loaded, bootstrap),) = clusters
            runners = [backfill_runner(loaded, wanted, bootstrap, session)]
        for runner in runners:
            metrics.show(runner)
        if not ended(runners, once=once):
            raise typer.Exit(1)


def _logged_session(pipelines: Sequence[Loaded], master: str | None, spark_log: str) -> SparkSession:
    session = _session(pipelines, master)
    session.sparkContext.setLogLevel(spark_log)
    return session


def check_secrets(pipeline: Pipeline) -> None:
    """Check that all secrets exist, before Spark starts."""
    for part in [*pipeline.sources.values(), *pipeline.sinks.values()]:
        _check_each(part.options)
    _check_each(pipeline.client)


def _check_each(options: Mapping[str, str | Secret]) -> None:
    for value in options.values():
        if not isinstance(value, str):
            value.check()


# PySpark tells Java the line of Python that each expression is made in, in ten calls. No message of ours has that line.
_UNTRACED = {"spark.python.sql.dataFrameDebugging.enabled": "false"}


def _session(pipelines: Sequence[Loaded], master: str | None) -> SparkSession:
    from penstock.cli.pipeline_test import shared_settings
    from penstock.spark import session

    config = {**_UNTRACED, **shared_settings(pipelines), "spark.sql.session.timeZone": "UTC"}
    name = pipelines[0].pipeline.name if len(pipelines) == 1 else "penstock-pipelines"
    return session(name, master=master, config=config)


def _quick_session(name: str, settings: Mapping[str, str], master: str | None) -> SparkSession:
    """For a few rows. Spark's own log stays silent: what fails is reported by the command."""
    from penstock.spark import session
    from penstock.spark.runtime.defaults import JAVA_OPTIONS

    config = {
        **_UNTRACED,
        **settings,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Optimized machine code pays only in runs that are longer than its compilation.
        JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} -XX:TieredStopAtLevel=1".strip(),
    }
    made = session(name, master=master or _TEST_MASTER, config=config)
    made.sparkContext.setLogLevel("OFF")
    return made


def checked(file: str, env: str | None, settings: list[str] | None) -> Loaded:
    """Load a valid pipeline; otherwise print its problems and end the command."""
    from penstock.pipelines.check.validate import load_checked
    from penstock.pipelines.spec.problems import PipelineInvalid

    try:
        loaded, warnings = load_checked(file, env, parse_pairs("--set", settings or ()))
    except PipelineInvalid as invalid:
        for problem in invalid.problems:
            note(str(problem))
        raise typer.Exit(1) from None
    for problem in warnings:
        note(str(problem))
    return loaded
