"""Runs backfills and serves metrics for `penstock pipeline run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.output import fail, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.engine.metrics import PipelineMetrics
    from penstock.pipelines.engine.runner import Runner
    from penstock.pipelines.operate.backfill import Backfill, Ranges
    from penstock.pipelines.spec.loading import Loaded


def backfill_of(
    begin: str | None, end: str | None, name: str | None, suffix: str, queries: tuple[str, ...]
) -> Backfill | None:
    """The backfill that the options define together; None if they define none."""
    from penstock.pipelines.operate.backfill import Backfill

    if begin is not None and name is not None:
        return Backfill(name=name, begin=begin, end=end or "", suffix=suffix, queries=queries)
    if begin is not None:
        fail("--from begins a backfill, which has checkpoints of its own: name it with --as")
    given = {"--to": end, "--as": name, "--output-suffix": suffix, "--query": queries}
    for option, value in given.items():
        if value:
            fail(f"{option} is for backfills; say --from, too")
    return None


def has_topics(loaded: Loaded) -> bool:
    """Whether it needs a cluster."""
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import plan
    from penstock.pipelines.engine.runner import uses_cluster

    pipeline = loaded.pipeline
    return uses_cluster(pipeline, plan(pipeline, analyse(pipeline, loaded.directory)).values())


def refuse_second(loaded: Loaded, wanted: Backfill | None, bootstrap: str) -> None:
    """Refuse a second run at the same time. If the cluster is unreachable, the queries will report why."""
    from penstock.client.errors import ClientError
    from penstock.pipelines.operate.remote import RunsAlready, wait_until_alone

    pipeline = loaded.pipeline
    try:
        wait_until_alone(bootstrap, wanted.name if wanted is not None else pipeline.name, note)
    except RunsAlready:
        raise
    except ClientError as error:
        note(f"whether {pipeline.name} runs already is unknown: {error}")


def backfill_runner(loaded: Loaded, wanted: Backfill, bootstrap: str, session: Callable[[], SparkSession]) -> Runner:
    """Validates as much as possible before Spark starts."""
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import plan
    from penstock.pipelines.engine.backfill_ranges import BackfillSources, agreed, make_shadow_topics, resolved
    from penstock.pipelines.engine.query_input import Sources
    from penstock.pipelines.engine.runner import Runner
    from penstock.pipelines.operate.backfill import chosen, shadowed
    from penstock.pipelines.sinks.hadoop_files import Files

    pipeline = loaded.pipeline
    queries = chosen(pipeline, plan(pipeline, analyse(pipeline, loaded.directory)), wanted)
    shadow = shadowed(pipeline, queries, wanted)
    found = resolved(pipeline, queries, Sources(pipeline, loaded.directory, bootstrap), wanted)
    if wanted.suffix:
        for topic in make_shadow_topics(bootstrap, pipeline, queries, wanted.suffix):
            note(f"made topic {topic}")
    spark = session()
    runner = Runner(
        replace(loaded, pipeline=shadow),
        spark,
        bootstrap,
        only=tuple(query.name for query in queries),
        backfill_of=pipeline.name,
    )
    ranges = agreed(Files(spark, runner.checkpoints), runner.checkpoints, pipeline.name, wanted, found)
    runner.sources = BackfillSources(shadow, loaded.directory, bootstrap, ranges, ends=bool(wanted.end))
    _tell(wanted, ranges)
    return runner


def _tell(wanted: Backfill, ranges: dict[str, Ranges]) -> None:
    for source, spans in ranges.items():
        records = sum(last - first for first, last in spans.values())
        to = f"to {wanted.end}" if wanted.end else "and on"
        note(f"{source}: from {wanted.begin} {to}, {records} records in {len(spans)} partitions")


class _NoMetrics:
    def show(self, runner: Runner) -> None:
        """Nothing to show."""


@contextlib.contextmanager
def serving_metrics(listener: str | None) -> Iterator[PipelineMetrics | _NoMetrics]:
    """Opened first, so that an address in use is reported before Spark starts."""
    if listener is None:
        yield _NoMetrics()
        return
    from penstock.pipelines.engine.metrics import PipelineMetrics

    with PipelineMetrics(listener) as metrics:
        note(f"metrics at http://{metrics.address}/metrics")
        yield metrics
