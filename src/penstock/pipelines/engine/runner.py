"""Runs a pipeline: starts, watches, restarts and stops its queries.

    runner = Runner(loaded, session)
    runner.run()            # until stopped
    runner.run_once()       # the existing records, then end

A query that fails is restarted from its checkpoint, after a pause that doubles with each failure. If it fails more
often in a row than the pipeline allows, the pipeline ends. Messages never contain secrets.

`check.routes` decides how each query is written: as one plan by the streaming sink (`prepared`), or with `foreachBatch`
(`batch`).

A pipeline that is stopped ends between two batches: running batches finish, and no further ones begin (`ending`).
`cut` also cancels running batches; the next run repeats them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.pipelines.check.analysis import Analysis, analyse
from penstock.pipelines.check.checkpoint_shape import shape_of
from penstock.pipelines.check.query_plan import QueryPlan, plan
from penstock.pipelines.check.routes import Route, route
from penstock.pipelines.engine.batch import BatchPlan, BatchWriter
from penstock.pipelines.engine.checkpoints import guard, next_batch
from penstock.pipelines.engine.counting import written_together
from penstock.pipelines.engine.ending import Ending, refuse_batches
from penstock.pipelines.engine.failures import Failure, QueryFailed, explain, message_of
from penstock.pipelines.engine.one_scan import NotOnePlan
from penstock.pipelines.engine.prepared import Prepared, prepare
from penstock.pipelines.engine.query_input import PLAIN_CHECKPOINTS, Sources, own_session, query_input
from penstock.pipelines.engine.query_status import QueryStatus
from penstock.pipelines.engine.record_writer import PreparedWriter, RecordWriter
from penstock.pipelines.engine.reporter import Reporter
from penstock.pipelines.engine.table_runs import RunLog, rows_of
from penstock.pipelines.operate.reports import Control, PipelineReport, State, state_of
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import FormatSource, Pipeline, Restart, TopicSink, TopicSource
from penstock.pipelines.spec.paths import resolve
from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger("penstock.pipelines")

_POLL_S = 0.1
_FOLLOW_S = 0.5
_LAST_WORD_S = 5.0
SPARK_ENDED = "Spark has ended: its JVM was killed, or ran out of memory; run the pipeline again, and it goes on"


class Backoff:
    """Decides when to try again: pure, the time is an argument."""

    def __init__(self, policy: Restart, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self.failures = 0

    def failed(self, ran_seconds: float, *, patient: bool = False) -> float | None:
        """Seconds to wait, with random variation so that many pipelines do not come back at once. None: give up, which
        `patient` excludes."""
        if ran_seconds >= self._policy.healthy_after.seconds:
            self.failures = 0
        self.failures += 1
        if self.failures > self._policy.attempts and not patient:
            return None
        whole = self._policy.backoff.seconds * 2 ** min(self.failures - 1, 30)
        return float(min(whole, self._policy.backoff_max.seconds) * (0.75 + self._chance() / 4))


class RunPlan(NamedTuple):
    """What a runner needs to know of a file; none of it needs Spark."""

    analysis: Analysis
    queries: dict[str, QueryPlan]
    routes: dict[str, Route]


def run_plan(loaded: Loaded, only: tuple[str, ...] = ()) -> RunPlan:
    """`only` these queries; all, if none is named."""
    analysis = analyse(loaded.pipeline, loaded.directory)
    planned = plan(loaded.pipeline, analysis)
    queries = {name: query for name, query in planned.items() if not only or name in only}
    return RunPlan(analysis, queries, {name: route(loaded.pipeline, analysis, each) for name, each in queries.items()})


class Runner:
    def __init__(
        self,
        loaded: Loaded,
        session: SparkSession,
        bootstrap: str | None = None,
        *,
        sources: Sources | None = None,
        only: tuple[str, ...] = (),
        backfill_of: str | None = None,
        planned: RunPlan | None = None,
    ) -> None:
        """`only` these queries; all, if none is named. `planned` may have been made while Spark started."""
        # PySpark logs the complete errors of batches, including secrets. This class reports them instead.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        self.loaded = loaded
        self.session = session
        self.bootstrap = bootstrap or loaded.pipeline.cluster
        self.analysis, self.queries, self.routes = planned or run_plan(loaded, only)
        self.sources = sources or Sources(loaded.pipeline, loaded.directory, self.bootstrap)
        self.status = {name: QueryStatus(name, _now_ms) for name in self.queries}
        self.stopping = threading.Event()
        self.cutting = threading.Event()
        self.metrics: str | None = None
        """The address of this run's metrics, if there is one."""
        self._backfill_of = backfill_of
        self._application = session.sparkContext.applicationId
        self._root = resolve(loaded.pipeline.checkpoints, loaded.directory)
        self._run_id = str(uuid.uuid4())
        self._started_ms = _now_ms()
        self._end: tuple[State, str | None] | None = None

    def stop(self) -> None:
        """From any thread or signal handler: running batches finish, and `run` returns."""
        self.stopping.set()

    def cut(self) -> None:
        """The same without waiting for running batches."""
        self.cutting.set()
        self.stopping.set()

    @property
    def checkpoints(self) -> str:
        return f"{self._root.rstrip('/')}/{self.loaded.pipeline.name}"

    def checkpoint(self, query: str) -> str:
        return f"{self.checkpoints}/{query}"

    def report(self) -> PipelineReport:
        """The present state."""
        queries = tuple(status.report() for status in self.status.values())
        state, error = self._end or (state_of(queries, stopping=self.stopping.is_set()), None)
        return PipelineReport(
            name=self.loaded.pipeline.name,
            run_id=self._run_id,
            state=state,
            error=error,
            file=self.loaded.file,
            environment=self.loaded.environment,
            backfill_of=self._backfill_of,
            application=self._application,
            driver=f"{socket.gethostname()}:{os.getpid()}",
            metrics=self.metrics,
            started_ms=self._started_ms,
            heartbeat_ms=_now_ms(),
            queries=queries,
        )

    def run(self, tick: Callable[[], None] = lambda: None) -> None:
        """All queries together, until stopped. `tick` is called now and then, for displays."""
        with self._reported(tick):
            self._watch([_Watch(self, query, once=False) for query in self.queries.values()], tick)

    def run_once(self, tick: Callable[[], None] = lambda: None) -> None:
        """Reads the records that exist when each query begins; one query after the other, those that feed others
        first."""
        with self._reported(tick):
            for query in self.queries.values():
                if not self.stopping.is_set():
                    self._watch([_Watch(self, query, once=True)], tick)

    def _guard_checkpoints(self) -> None:
        """No query continues from a checkpoint that does not fit it."""
        pipeline, directory = self.loaded.pipeline, self.loaded.directory
        for name, query in self.queries.items():
            shape = shape_of(pipeline, self.analysis, query, directory, self.bootstrap)
            try:
                guard(Files(self.session, self.checkpoints), self.checkpoint(name), name, shape, self.loaded)
            except PipelineFailed:
                raise
            except Exception as error:
                way_out = 'correct "checkpoints" in the file, or the rights of that place'
                problem = f"cannot use the checkpoint {self.checkpoint(name)}: {message_of(error)}"
                raise PipelineFailed(f"{problem}; {way_out}") from error

    @contextlib.contextmanager
    def _reported(self, tick: Callable[[], None]) -> Iterator[None]:
        """Reports the pipeline's state and its end to the cluster; does nothing if there is no cluster."""
        reporter = Reporter(self.bootstrap, self.report, self._obey)
        if uses_cluster(self.loaded.pipeline, self.queries.values()):
            reporter.start()
        try:
            self._guard_checkpoints()
            yield
            self._end = ("stopped" if self.stopping.is_set() else "ended", None)
        except PipelineFailed as failure:
            self._end = ("failed", str(failure))
            raise
        except BaseException as interruption:
            self._end = ("failed", type(interruption).__name__)
            raise
        finally:
            tick()
            reporter.close()

    def _obey(self, control: Control) -> None:
        if control.run_id != self._run_id:
            return
        logger.info("%s requested by %s", control.command, control.by or "an unnamed client")
        (self.cut if control.command == "stop-now" else self.stop)()

    def _watch(self, watches: list[_Watch], tick: Callable[[], None]) -> None:
        for watch in watches:
            watch.start()
        try:
            while any(watch.is_alive() for watch in watches):
                if any(watch.failure is not None for watch in watches):
                    self.stop()
                tick()
                time.sleep(_POLL_S)
        finally:
            if any(watch.is_alive() for watch in watches):
                self.stop()
            for watch in watches:
                watch.join()
        for watch in watches:
            if watch.failure is not None:
                raise watch.failure


class _Watch(threading.Thread):
    """One query and its restarts."""

    def __init__(self, runner: Runner, query: QueryPlan, once: bool) -> None:
        super().__init__(name=f"query {query.name}", daemon=True)
        self._runner = runner
        self._query = query
        self._once = once
        self._status = runner.status[query.name]
        self._backoff = Backoff(runner.loaded.pipeline.restart, random.random)
        self._session: SparkSession | None = None
        self._writer: BatchWriter | None = None
        self.failure: PipelineFailed | None = None

    def run(self) -> None:
        stopping = self._runner.stopping
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._status.starts()
                self._attempt()
                break
            except Exception as error:  # noqa: BLE001  # whatever ends a query is reported, and the query is started again
                failure = explain(error)
            self._backoff.failures = self._status.failures  # 0, if a batch has succeeded
            # Wait for a server that is down, however long it takes, unless a caller waits for the end of this run.
            patient = not self._once and self._writer is not None and bool(self._writer.unavailable)
            pause = self._backoff.failed(time.monotonic() - began, patient=patient)
            if has_ended(self._runner.session):
                self._status.failed(SPARK_ENDED, self._backoff.failures, None)
                self.failure = PipelineFailed(SPARK_ENDED)
                return
            if failure.ends_run(once=self._once):
                pause = None
            self._status.failed(failure.why, self._backoff.failures, pause)
            if pause is None:
                self.failure = self._failed(failure)
                return
            logger.warning('query "%s" failed, starts again in %.1f s: %s', self._query.name, pause, failure.why)
            stopping.wait(pause)
        self._status.ends()

    def _failed(self, failure: Failure) -> QueryFailed:
        runner, name = self._runner, self._query.name
        batch = next_batch(Files(runner.session, runner.checkpoints), runner.checkpoint(name))
        return QueryFailed(runner.loaded.pipeline.name, name, batch, failure, self._backoff.failures)

    def _attempt(self) -> None:
        runner, query = self._runner, self._query
        session = self._session = self._session or self._own_session()
        pipeline, analysis, directory = runner.loaded.pipeline, runner.analysis, runner.loaded.directory
        writer = self._writer = BatchWriter(
            pipeline, analysis, query, directory, runner.bootstrap, runner.sources, self._status.wrote
        )
        if query.drive != "stream":
            self._tables(session, writer)
            writer.close()
            return
        frame = query_input(session, pipeline, analysis, query, directory, runner.sources)
        starting = (
            self._written(frame, runner.routes[query.name], writer)
            .outputMode(query.output_mode)
            .queryName(f"{pipeline.name}.{query.name}")
            .option("checkpointLocation", runner.checkpoint(query.name))
        )
        if self._once:
            starting = starting.trigger(availableNow=True)
        elif query.trigger is not None:
            starting = starting.trigger(processingTime=query.trigger.spark)
        self._follow(starting.start(), writer)
        writer.close()

    def _written(self, rows: DataFrame, planned: Route, writer: BatchWriter) -> DataStreamWriter:
        """The stream of the input's rows, or of what is prepared of them, with what writes it."""
        prepared = self._prepared(rows, planned)
        self._status.observes(prepared.tally if prepared is not None else None, written_together(self._query.sinks))
        if prepared is None:
            return rows.writeStream.foreachBatch(writer)
        records = RecordWriter(self._runner.loaded.pipeline, self._query, self._runner.bootstrap)
        if planned.way == "prepared":
            return prepared.rows.writeStream.foreachBatch(PreparedWriter(prepared, planned.writes, records))
        (write,) = planned.writes
        return prepared.records.writeStream.format("penstock").options(**records.stream_options(write))

    def _prepared(self, rows: DataFrame, planned: Route) -> Prepared | None:
        """None if every batch has to be planned."""
        runner, query = self._runner, self._query
        if planned.way == "batch by batch":
            return None
        pipeline = runner.loaded.pipeline
        batch_plan = BatchPlan(pipeline, runner.analysis, query, runner.loaded.directory, runner.sources)
        try:
            return prepare(batch_plan, pipeline, query, rows)
        except NotOnePlan as error:
            logger.warning('query "%s" is planned batch by batch: %s', query.name, error)
            return None

    def _own_session(self) -> SparkSession:
        """With listeners: for the figures, for the offsets of groups, and for `penstock spark status`."""
        from penstock.spark.progress.listener import QueryListener, watch

        session = own_session(self._runner.session)
        if Files(session, self._runner.checkpoint(self._query.name)).are_raw_local:
            for name, value in PLAIN_CHECKPOINTS.items():
                session.conf.set(name, value)
        # A pool of its own: with FAIR scheduling no query waits until all tasks of another one have run.
        session.sparkContext.setLocalProperty(
            "spark.scheduler.pool", f"pipeline.{self._runner.loaded.pipeline.name}.{self._query.name}"
        )
        publisher = watch(self._runner.session).publisher
        session.streams.addListener(
            QueryListener(session, self._runner.bootstrap, publisher=publisher, follower=self._status)
        )
        return session

    def _follow(self, running: StreamingQuery, writer: BatchWriter) -> None:
        from pyspark.errors import StreamingQueryException

        ending = Ending(running)
        ended = threading.Event()
        threading.Thread(target=self._refuse_when_stopping, args=(running, ended), daemon=True).start()
        try:
            while not ending.has_ended(_FOLLOW_S):
                if self._runner.cutting.is_set():
                    running.stop()
                elif self._runner.stopping.is_set():
                    ending.step()
                else:
                    writer.idle()
            running.awaitTermination()  # raises what it ended with
        except StreamingQueryException:
            if not self._runner.cutting.is_set():
                raise
        finally:
            ended.set()
            self._status.heard_end.wait(_LAST_WORD_S)

    def _refuse_when_stopping(self, running: StreamingQuery, ended: threading.Event) -> None:
        """At once: until the thread that follows the query looks again, further batches would have begun."""
        while not ended.is_set():
            if self._runner.stopping.wait(_FOLLOW_S):
                with contextlib.suppress(Exception):  # `Ending` does it again, and raises what is wrong
                    refuse_batches(running)
                return

    def _tables(self, session: SparkSession, writer: BatchWriter) -> None:
        """A snapshot or an increment; without --once repeatedly."""
        runner, query = self._runner, self._query
        checkpoint = runner.checkpoint(query.name)
        log = RunLog(Files(session, checkpoint), checkpoint)
        source = runner.loaded.pipeline.sources.get(query.input)
        cursor = source.cursor if isinstance(source, FormatSource) else ""
        while True:
            pipeline, analysis, directory = runner.loaded.pipeline, runner.analysis, runner.loaded.directory
            table = query_input(session, pipeline, analysis, query, directory, runner.sources)
            run = log.next(table, cursor)
            if run is not None:
                began = time.monotonic()
                writer(rows_of(table, cursor, run), run.number, run.checkpoint)
                log.done(run)
                self._status.table_done(time.monotonic() - began)
            every = query.trigger.seconds if query.trigger is not None else _TABLE_S
            if self._once or runner.stopping.wait(every):
                return


_TABLE_S = 60.0


def uses_cluster(pipeline: Pipeline, queries: Iterable[QueryPlan]) -> bool:
    """Whether it has topics; without topics it needs no brokers and reports to none."""
    return any(
        query.dead_letters
        or any(isinstance(pipeline.sinks[name], TopicSink) for name in query.sinks)
        or any(isinstance(pipeline.sources.get(name), TopicSource) for name in (query.input, *query.upstream))
        for query in queries
    )


def has_ended(session: SparkSession) -> bool:
    """Whether the Spark that was started here is gone: nothing in this process works without it."""
    java = getattr(session.sparkContext._gateway, "proc", None)
    return java is not None and java.poll() is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
