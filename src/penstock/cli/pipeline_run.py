"""What `penstock pipeline run` does for backfills, and for metrics."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cli.output import fail, note
from penstock.spark.defaults import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.backfill import Backfill, Ranges
    from penstock.pipelines.loading import Loaded
    from penstock.pipelines.metrics import PipelineMetrics
    from penstock.pipelines.running import Runner


def backfill_of(
    begin: str | None, end: str | None, name: str | None, suffix: str, queries: tuple[str, ...]
) -> Backfill | None:
    """What the options ask for together; None if it is no backfill."""
    from penstock.pipelines.backfill import Backfill

    if begin is not None and name is not None:
        return Backfill(name=name, begin=begin, end=end or "", suffix=suffix, queries=queries)
    if begin is not None:
        fail("--from begins a backfill, which has checkpoints of its own: name it with --as")
    given = {"--to": end, "--as": name, "--output-suffix": suffix, "--query": queries}
    for option, value in given.items():
        if value:
            fail(f"{option} is for backfills; say --from, too")
    return None


def refuse_second(loaded: Loaded, wanted: Backfill | None, bootstrap: str) -> None:
    """Two runs of a pipeline at the same time. If its cluster cannot be asked, its queries will tell why."""
    from penstock.client.errors import ClientError
    from penstock.pipelines.analysis import analyse
    from penstock.pipelines.operating import RunsAlready, wait_until_alone
    from penstock.pipelines.planning import plan
    from penstock.pipelines.running import uses_cluster

    pipeline = loaded.pipeline
    if not uses_cluster(pipeline, plan(pipeline, analyse(pipeline, loaded.directory)).values()):
        return
    try:
        wait_until_alone(bootstrap, wanted.name if wanted is not None else pipeline.name, note)
    except RunsAlready:
        raise
    except ClientError as error:
        note(f"whether {pipeline.name} runs already is unknown: {error}")


def backfill_runner(loaded: Loaded, wanted: Backfill, bootstrap: str, session: Callable[[], SparkSession]) -> Runner:
    """Refuses what can be refused before Spark starts."""
    from penstock.pipelines.analysis import analyse
    from penstock.pipelines.backfill import chosen, shadowed
    from penstock.pipelines.backfill_ranges import BackfillSources, agreed, make_shadow_topics, resolved
    from penstock.pipelines.files import Files
    from penstock.pipelines.heads import Sources
    from penstock.pipelines.planning import plan
    from penstock.pipelines.running import Runner

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


_UNHEARD_OF_SECONDS = 20.0
_ASK_SECONDS = 1.0


class ExecutorWatch:
    """Says when a cluster gives a pipeline nothing to run on. Spark waits for ever then, and looks as if it worked."""

    def __init__(
        self, master: str, memory: str, count: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`count`: of the executors that have come. `memory`: what each must have."""
        self._master, self._memory, self._count, self._clock = master, memory, count, clock
        self._began = self._ask_at = clock()
        self._is_told = False
        self._has_come = is_local(master)

    def tick(self) -> None:
        """Now and then."""
        now = self._clock()
        if self._has_come or now < self._ask_at:
            return
        self._ask_at = now + _ASK_SECONDS
        self._has_come = self._count() > 0
        if self._has_come and self._is_told:
            note(f"{self._master} has given an executor")
        elif not self._has_come and not self._is_told and now - self._began >= _UNHEARD_OF_SECONDS:
            self._is_told = True
            note(
                f"{self._master} has given no executor for {_UNHEARD_OF_SECONDS:g} s: it has no workers, or others "
                f"have all their cores, or none has {self._memory} of memory to spare (spark.executor.memory); waiting"
            )


def executor_watch(session: SparkSession) -> ExecutorWatch:
    context = session.sparkContext
    inside: Any = context._jsc.sc()
    memory = context.getConf().get("spark.executor.memory") or "1g"
    known = inside.getExecutorMemoryStatus  # of the driver, too
    return ExecutorWatch(str(context.master), memory, lambda: int(known().size()) - 1)


class _NoMetrics:
    def show(self, runner: Runner) -> None:
        """Nobody asks."""


@contextlib.contextmanager
def serving_metrics(listener: str | None) -> Iterator[PipelineMetrics | _NoMetrics]:
    """Opened first: an address that is taken is better known before Spark starts."""
    if listener is None:
        yield _NoMetrics()
        return
    from penstock.pipelines.metrics import PipelineMetrics

    with PipelineMetrics(listener) as metrics:
        note(f"metrics at http://{metrics.address}/metrics")
        yield metrics
