"""What `penstock pipeline run` does before its queries run: early checks, the start of Spark, backfills, metrics.

Everything that can be wrong with files, secrets, addresses and topics is found before Spark starts. Queries are planned
while it starts. Each phase prints a line with its time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.output import fail, note
from penstock.cli.pipeline_cluster import cluster_of
from penstock.cli.pipeline_test import shared_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.engine.metrics import PipelineMetrics
    from penstock.pipelines.engine.runner import Runner
    from penstock.pipelines.operate.backfill import Backfill, Ranges
    from penstock.pipelines.spec.loading import Loaded
    from penstock.pipelines.spec.model import Options


_CHECK_S = 5.0


class StartingSpark:
    """A session that starts while the caller does something else."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._start = session
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="starts Spark", daemon=True)
        self._thread.start()

    def session(self) -> SparkSession:
        """Waits for it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._session = self._start()
            note(f"Spark {self._session.version} started in {time.monotonic() - began:.1f} s")
        except BaseException as error:  # noqa: BLE001  # raised where the session is needed
            self._error = error


def ready(
    pipelines: Sequence[Loaded], wanted: Backfill | None, bootstrap: str | None, *, once: bool
) -> list[tuple[Loaded, str]]:
    """The pipelines with their clusters, of which as much is checked as can be without Spark."""
    refuse_namesakes(pipelines)
    shared_settings(pipelines)
    clusters = []
    for loaded in pipelines:
        cluster = cluster_of(bootstrap, loaded)
        clusters.append((loaded, cluster.address))
        if has_topics(loaded):
            note(f"{loaded.pipeline.name}: cluster {cluster}")
            if check_topics(loaded, cluster.address, once=once):
                refuse_second(loaded, wanted, cluster.address)
    return clusters


def ended(runners: Sequence[Runner], *, once: bool) -> bool:
    """Runs them to their end, and tells which have failed; whether none has."""
    from penstock.cli.pipeline_display import watched
    from penstock.pipelines.engine.failures import QueryFailed
    from penstock.pipelines.engine.together import Together

    def failed(runner: Runner, error: Exception) -> None:
        if len(runners) > 1:
            note(f"{runner.loaded.pipeline.name} has failed; the other pipelines go on")

    together = Together(runners, failed)
    watched(together, once=once)
    for name, error in together.failures.items():
        if isinstance(error, QueryFailed):
            for line in error.lines:
                note(line)
        elif len(runners) == 1:
            raise error
        else:
            note(f"{name}: {error}")
    return not together.failures


def refuse_namesakes(pipelines: Iterable[Loaded]) -> None:
    """Two pipelines of one name would share checkpoints."""
    named = Counter(loaded.pipeline.name for loaded in pipelines)
    for name, count in named.items():
        if count > 1:
            files = ", ".join(loaded.file for loaded in pipelines if loaded.pipeline.name == name)
            fail(f'{files}: {count} pipelines are called "{name}"')


def check_topics(loaded: Loaded, bootstrap: str, *, once: bool) -> bool:
    """Check that the clusters of a pipeline answer, and that they have the topics that are read and written. Without
    --once a failure that may heal is only printed: the queries try again. Returns whether its own cluster answers."""
    own = _has_topics(loaded, bootstrap, topics_of(loaded), {}, once=once)
    for address, security, topics in other_clusters(loaded):
        _has_topics(loaded, address, topics, security, once=once)
    letters = loaded.pipeline.dead_letter_topic
    if own is not None and letters not in own and has_dead_letters(loaded):
        effect = "ends the run" if once else "makes its query fail until there is one"
        problem = f"there is no topic for dead letters, so the first one {effect}"
        note(f"{loaded.pipeline.name}: {problem}: penstock topics create {letters}")
    return own is not None


def _has_topics(
    loaded: Loaded, bootstrap: str, topics: set[str], security: Mapping[str, str], *, once: bool
) -> set[str] | None:
    """The topics that a cluster has; None if it does not answer."""
    from penstock.client.errors import ClientError, NotAuthorized
    from penstock.client.wire.admin import Admin

    name = loaded.pipeline.name
    try:
        with Admin(bootstrap, timeout=_CHECK_S, options=security or None) as admin:
            known = {topic.name for topic in admin.topics.list(internal=True)}
    except NotAuthorized as error:
        fail(f"{name}: {error}; correct the credentials, or give the user the right that is missing")
    except ClientError as error:
        if once:
            fail(f"{name}: {error}; start the brokers, or correct bootstrap in {loaded.file}")
        note(f"{name}: {error}; the queries will try again")
        return None
    missing = sorted(topics - known)
    if missing:
        problem = f"{name}: {bootstrap} has no topic {', '.join(missing)}{_meant(missing, known)}"
        to_do = f"create it: penstock topics create {' '.join(missing)}"
        if once:
            fail(f"{problem}; correct the name in {loaded.file}, or {to_do}")
        note(f"{problem}; the queries will look for it again; to {to_do}")
    return known


def _meant(missing: Sequence[str], known: Iterable[str]) -> str:
    from penstock.pipelines.spec.problems import nearest

    if len(missing) > 1:
        return ""
    hint = nearest(missing[0], (each for each in known if not each.startswith("__")))
    return f" ({hint})" if hint.startswith("did you mean") else ""


def topics_of(loaded: Loaded) -> set[str]:
    """Those that a pipeline reads and writes by name in its own cluster."""
    from penstock.pipelines.spec.model import TopicSink, TopicSource

    pipeline = loaded.pipeline
    sources = [each for each in pipeline.sources.values() if isinstance(each, TopicSource) and not each.bootstrap]
    sinks = [each for each in pipeline.sinks.values() if isinstance(each, TopicSink) and not each.bootstrap]
    return {topic for each in sources for topic in each.topic} | {each.topic for each in sinks if each.topic}


def other_clusters(loaded: Loaded) -> Iterator[tuple[str, Mapping[str, str], set[str]]]:
    """The addresses, security settings and topics of sources and sinks in other clusters than the pipeline's."""
    from penstock.pipelines.spec.model import TopicSink, TopicSource

    pipeline = loaded.pipeline
    for each in (*pipeline.sources.values(), *pipeline.sinks.values()):
        if isinstance(each, TopicSource) and each.bootstrap:
            yield each.bootstrap, _security(each.options), set(each.topic)
        elif isinstance(each, TopicSink) and each.bootstrap:
            yield each.bootstrap, _security(each.options), {each.topic} - {""}


def _security(options: Options) -> dict[str, str]:
    """The security settings of a source or a sink, by Kafka's names."""
    from penstock.pipelines.spec.options import SECURITY_PREFIXES
    from penstock.pipelines.spec.secrets import plain

    settings = {name: value for name, value in options.items() if name.startswith(SECURITY_PREFIXES)}
    return {name.removeprefix("kafka."): value for name, value in plain(settings).items()}


def has_dead_letters(loaded: Loaded) -> bool:
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import plan

    pipeline = loaded.pipeline
    return any(query.dead_letters for query in plan(pipeline, analyse(pipeline, loaded.directory)).values())


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


def planned_runners(pipelines: Iterable[tuple[Loaded, str]], session: Callable[[], SparkSession]) -> list[Runner]:
    """Runners of pipelines and their clusters. They are planned while Spark starts."""
    spark = StartingSpark(session)
    from penstock.pipelines.engine.runner import Runner, run_plan

    began = time.monotonic()
    planned = [(loaded, bootstrap, run_plan(loaded)) for loaded, bootstrap in pipelines]
    queries = sum(len(plan.queries) for _, _, plan in planned)
    note(f"{queries} {'query' if queries == 1 else 'queries'} planned in {time.monotonic() - began:.1f} s")
    return [Runner(loaded, spark.session(), bootstrap, planned=plan) for loaded, bootstrap, plan in planned]


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
