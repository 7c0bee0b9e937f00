"""A pipeline at work: its queries started, watched, restarted, stopped.

    with Runner(loaded, session) as runner:
        runner.run()            # until stopped
        runner.run_once()       # what there is, then end

A query that fails is started again from its checkpoint, after a pause that doubles from one failure to the next; when
it failed more often in a row than the pipeline allows, the pipeline ends. Messages never contain secrets.
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.pipelines.analysis import analyse
from penstock.pipelines.batches import BatchWriter
from penstock.pipelines.files import Files
from penstock.pipelines.heads import Sources, head, own_session
from penstock.pipelines.loading import Loaded
from penstock.pipelines.model import FormatSource, Restart
from penstock.pipelines.planning import QueryPlan, plan
from penstock.pipelines.problems import PipelineFailed
from penstock.pipelines.runs import RunLog, rows_of
from penstock.pipelines.secrets import redacted
from penstock.pipelines.tables import beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("penstock.pipelines")

State = Literal["waiting", "running", "backing off", "ended", "failed"]

_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0
_ERROR_CHARACTERS_MAX = 500
_FAILED_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: | SQLSTATE: \w+$")


@dataclass(slots=True)
class QueryStatus:
    """What a display shows of a query."""

    name: str
    state: State = "waiting"
    failures: int = 0
    """In a row."""
    error: str = ""
    """Of the last failure, without secrets."""
    progress: dict[str, Any] = field(default_factory=dict)
    """As Spark reports the last batch."""
    rows: int = 0
    batches: int = 0


class Backoff:
    """When to try again: pure, time comes in."""

    def __init__(self, policy: Restart, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self.failures = 0

    def failed(self, ran_seconds: float) -> float | None:
        """Seconds to wait, with some chance in it so that many do not come back at once; None: give up."""
        if ran_seconds >= self._policy.healthy_after.seconds:
            self.failures = 0
        self.failures += 1
        if self.failures > self._policy.attempts:
            return None
        whole = self._policy.backoff.seconds * 2 ** min(self.failures - 1, 30)
        return float(min(whole, self._policy.backoff_max.seconds) * (0.75 + self._chance() / 4))


class Runner:
    def __init__(self, loaded: Loaded, session: SparkSession, bootstrap: str | None = None) -> None:
        # It logs what batches raise, whole, secrets and all. What there is to say of them is said here.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        self._loaded = loaded
        self._pipeline = loaded.pipeline
        self._session = session
        self._bootstrap = bootstrap or loaded.pipeline.bootstrap
        self._analysis = analyse(self._pipeline, loaded.directory)
        self.queries = plan(self._pipeline, self._analysis)
        self._sources = Sources(self._pipeline, loaded.directory, self._bootstrap)
        self._stopping = threading.Event()
        self._root = beside(self._pipeline.checkpoints, loaded.directory)
        self.status = {name: QueryStatus(name) for name in self.queries}

    def stop(self) -> None:
        """From any thread or signal handler: the batches under way end, and `run` returns."""
        self._stopping.set()

    def checkpoint(self, query: str) -> str:
        return f"{self._root.rstrip('/')}/{self._pipeline.name}/{query}"

    def run(self, tick: Callable[[], None] = lambda: None) -> None:
        """All queries together, until stopped. `tick` is called now and then, for displays."""
        threads = [_Watch(self, query, once=False) for query in self.queries.values()]
        self._watch(threads, tick)

    def run_once(self, tick: Callable[[], None] = lambda: None) -> None:
        """What there is to read when each begins, one query after the other, those that feed others first."""
        for query in self.queries.values():
            if not self._stopping.is_set():
                self._watch([_Watch(self, query, once=True)], tick)

    def _watch(self, watches: list[_Watch], tick: Callable[[], None]) -> None:
        for watch in watches:
            watch.start()
        try:
            while any(watch.is_alive() for watch in watches):
                if any(watch.failure is not None for watch in watches):
                    self.stop()
                tick()
                time.sleep(_POLL_SECONDS)
        finally:
            if any(watch.is_alive() for watch in watches):
                self.stop()
            for watch in watches:
                watch.join()
            tick()
        for watch in watches:
            if watch.failure is not None:
                raise PipelineFailed(watch.failure)


class _Watch(threading.Thread):
    """One query and its restarts."""

    def __init__(self, runner: Runner, query: QueryPlan, once: bool) -> None:
        super().__init__(name=f"query {query.name}", daemon=True)
        self._runner = runner
        self._query = query
        self._once = once
        self._status = runner.status[query.name]
        self._backoff = Backoff(runner._pipeline.restart, random.random)
        self.failure: str | None = None

    def run(self) -> None:
        stopping = self._runner._stopping
        while not stopping.is_set():
            began = time.monotonic()
            try:
                self._status.state = "running"
                self._attempt()
                self._status.state = "ended"
                return
            except Exception as error:  # noqa: BLE001  # whatever ends a query is told, and tried again
                self._status.error = message_of(error)
            pause = self._backoff.failed(time.monotonic() - began)
            self._status.failures = self._backoff.failures
            if pause is None or stopping.is_set():
                self._status.state = "failed"
                times = f" {self._backoff.failures} times" if self._backoff.failures > 1 else ""
                self.failure = f'query "{self._query.name}" failed{times}: {self._status.error}'
                return
            self._status.state = "backing off"
            _log.warning('query "%s" failed, starts again in %.1f s: %s', self._query.name, pause, self._status.error)
            stopping.wait(pause)

    def _attempt(self) -> None:
        runner, query = self._runner, self._query
        session = own_session(runner._session)
        pipeline, analysis, directory = runner._pipeline, runner._analysis, runner._loaded.directory
        writer = BatchWriter(pipeline, analysis, query, directory, runner._bootstrap, runner._sources)
        if query.drive != "stream":
            self._tables(session, writer)
            return
        frame = head(session, pipeline, analysis, query, directory, runner._sources)
        starting = (
            frame.writeStream.foreachBatch(writer)
            .outputMode(query.output_mode)
            .queryName(f"{runner._pipeline.name}.{query.name}")
            .option("checkpointLocation", runner.checkpoint(query.name))
        )
        if self._once:
            starting = starting.trigger(availableNow=True)
        elif query.trigger is not None:
            starting = starting.trigger(processingTime=query.trigger.spark)
        self._follow(starting.start())

    def _follow(self, running: StreamingQuery) -> None:
        seen = -1
        while not running.awaitTermination(1):  # whole seconds; an end is told at once
            self._report(running)
            seen = self._heal(running, seen)
            if self._runner._stopping.is_set():
                _stop(running)
        self._report(running)

    def _heal(self, running: StreamingQuery, seen: int) -> int:
        """A batch that succeeded makes the failures before it history."""
        progress = running.lastProgress
        if progress is not None and progress["batchId"] > seen and self._status.failures:
            self._status.failures = self._backoff.failures = 0
        return progress["batchId"] if progress is not None else seen

    def _report(self, running: StreamingQuery) -> None:
        last = running.lastProgress
        if last is not None and last["batchId"] != self._status.progress.get("batchId"):
            self._status.batches += 1
            self._status.rows += last["numInputRows"]
        if last is not None:
            self._status.progress = {name: last[name] for name in ("batchId", "numInputRows", "eventTime", "sources")}
            self._status.progress["processedRowsPerSecond"] = last["processedRowsPerSecond"]

    def _tables(self, session: SparkSession, writer: BatchWriter) -> None:
        """A snapshot or an increment; without --once again and again."""
        runner, query = self._runner, self._query
        checkpoint = runner.checkpoint(query.name)
        log = RunLog(Files(session, checkpoint), checkpoint)
        source = runner._pipeline.sources.get(query.head)
        cursor = source.cursor if isinstance(source, FormatSource) else ""
        while True:
            pipeline, analysis, directory = runner._pipeline, runner._analysis, runner._loaded.directory
            table = head(session, pipeline, analysis, query, directory, runner._sources)
            run = log.next(table, cursor)
            if run is not None:
                writer(rows_of(table, cursor, run), run.number)
                log.done(run)
                self._status.batches += 1
            every = query.trigger.seconds if query.trigger is not None else _TABLE_SECONDS
            if self._once or runner._stopping.wait(every):
                return


_TABLE_SECONDS = 60.0


def _stop(running: StreamingQuery) -> None:
    """Between two batches, if one ends soon: a batch that is cut off is done again at the next start."""
    deadline = time.monotonic() + _STOP_SECONDS
    while running.isActive and running.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    running.stop()


def lag_of(source: Any) -> int | None:
    """Of one source, as Spark reports it; None if it is not of topics."""
    try:
        end, latest = (json.loads(source[name]) for name in ("endOffset", "latestOffset"))
        lags = (
            int(last) - int(end.get(topic, {}).get(partition, 0))
            for topic, partitions in latest.items()
            for partition, last in partitions.items()
        )
        return sum(max(0, lag) for lag in lags)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def message_of(error: BaseException) -> str:
    """One line, without secrets, and without the stacks and plans that Spark adds to it."""
    text = str(getattr(error, "desc", None) or error).partition("=== Streaming Query ===")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    cause = next((line for line in reversed(lines) if _is_cause(line)), None)
    told = _FAILED_QUERY.sub("", cause or " ".join(lines[:3])).strip()
    return redacted((told or type(error).__name__)[:_ERROR_CHARACTERS_MAX])


def _is_cause(line: str) -> bool:
    """The last line of a Python traceback, or Spark's own words for what a user's expectation raised."""
    name = line.partition(":")[0]
    return line.startswith("[USER_RAISED_EXCEPTION]") or (
        ": " in line and name.replace(".", "").replace("_", "").isalnum() and name.endswith(("Error", "Exception"))
    )
