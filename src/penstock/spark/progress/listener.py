"""Reports the progress of streaming queries to the cluster: offsets to consumer groups, figures to `__pipelines`.

    spark = penstock.spark.session("orders")     # watches already
    penstock.spark.watch(spark)                  # a session made otherwise

Spark calls a listener on the driver when a query starts, finishes a batch, is idle, and ends. The listener stores the
event and returns; a thread reports it to the cluster. A query therefore never waits for a slow or unreachable cluster.
An error here is a line in the log and a count in the next record (`unpublished`), never a failure of the query.

**A query's lag is reported twice.** The source commits offsets when Spark asks for more records. The listener commits
the offsets that Spark does not ask about again (the last batch, long triggers), and only forward: see
`penstock.spark.source.group_offsets`.

Spark's progress reports contain a source's offsets but do not identify the source, so the listener reads the query's
plan when the query starts. For this it calls the JVM directly. It takes progress as JSON, because PySpark's progress
object costs a call to the JVM for every field. It works where the driver's JVM is (Spark Classic), not over Spark
Connect.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.client.errors import ClientError
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.spark.datasource import NAME
from penstock.spark.progress.query_progress import QueryProgress, SourceIdentity
from penstock.spark.progress.schedule import Group, ProgressUpdate, UpdateSchedule
from penstock.spark.source.group_offsets import GroupProgress
from penstock.spark.source.options import stream_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.progress.topic import PipelinesTopic

logger = logging.getLogger("penstock.spark")

REQUEST_S = 2.0
EXIT_S = 3.0


def watch(spark: SparkSession, bootstrap: str | None = None) -> QueryListener:
    """Report all streaming queries of this session to the cluster from now on; one call is enough.

    A query is reported to `bootstrap`, else to the cluster of its first `penstock` source.
    """
    with _watching:
        if spark not in _listeners:
            if not hasattr(spark, "_jsparkSession"):
                raise ClientError("queries of a Spark Connect session cannot be watched: their driver is elsewhere")
            listener = _listeners[spark] = QueryListener(spark, bootstrap)
            spark.streams.addListener(listener)
        return _listeners[spark]


_watching = threading.Lock()
_listeners: weakref.WeakKeyDictionary[SparkSession, QueryListener] = weakref.WeakKeyDictionary()


class Follower(Protocol):
    """Also receives the events of a session's queries, in the listener's threads: a pipeline, for its own queries."""

    def started(self, progress: QueryProgress, sources: tuple[SourceIdentity, ...]) -> None: ...

    def progressed(self, progress: Mapping[str, Any]) -> None: ...

    def idle(self, query_id: str, run_id: str) -> None: ...

    def terminated(self, query_id: str, run_id: str, error: str | None) -> str | None:
        """The error to report to the cluster: None if the query was stopped on purpose."""


class QueryListener(StreamingQueryListener):
    """The listener that Spark calls. Spark defines the method names; py4j's threads call them with JVM objects."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str | None = None,
        *,
        publisher: ProgressPublisher | None = None,
        follower: Follower | None = None,
    ) -> None:
        self._session = spark._jsparkSession
        self._bootstrap = bootstrap
        self._follower = follower
        self._application = spark.sparkContext.applicationId
        self._driver = f"{socket.gethostname()}:{os.getpid()}"
        self.publisher = publisher or ProgressPublisher()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        with _never_failing("the start of a query"):
            query_id, name = event.id().toString(), event.name()
            sources = tuple(self._sources(query_id, name))
            bootstrap = self._bootstrap or next((each.bootstrap for each in sources if each.bootstrap), None)
            now_ms = _now_ms()
            progress = QueryProgress(
                query_id=query_id,
                run_id=event.runId().toString(),
                name=name,
                state="running",
                application=self._application,
                driver=self._driver,
                started_ms=now_ms,
                heartbeat_ms=now_ms,
            )
            with self.publisher.schedule() as schedule:
                schedule.started(progress, bootstrap, sources)
            if self._follower is not None:
                self._follower.started(progress, sources)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        with _never_failing("the progress of a query"):
            progress = json.loads(event.progress().json())
            with self.publisher.schedule() as schedule:
                schedule.progressed(progress)
            if self._follower is not None:
                self._follower.progressed(progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        with _never_failing("an idle query"):
            query_id, run_id = event.id().toString(), event.runId().toString()
            with self.publisher.schedule() as schedule:
                schedule.idle(query_id, run_id)
            if self._follower is not None:
                self._follower.idle(query_id, run_id)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with _never_failing("the end of a query"):
            query_id, run_id, exception = event.id().toString(), event.runId().toString(), event.exception()
            error = exception.get() if exception.isDefined() else None
            if self._follower is not None:
                error = self._follower.terminated(query_id, run_id, error)
            with self.publisher.schedule() as schedule:
                schedule.terminated(query_id, run_id, error)

    def _sources(self, query_id: str, name: str | None) -> Iterator[SourceIdentity]:
        """From the analysed plan: its streaming leaves are the sources that progress lists, in the same order."""
        plan = self._session.streams().get(query_id).streamingQuery().analyzedPlan()
        seen: list[Any] = []
        leaves = plan.collectLeaves().iterator()
        while leaves.hasNext():
            leaf = leaves.next()
            if not leaf.isStreaming() or any(leaf.equals(other) for other in seen):
                continue
            seen.append(leaf)
            if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName() != NAME:
                yield SourceIdentity(leaf.toString())
                continue
            options = stream_options(dict(leaf.extraOptions().asCaseSensitiveMap()))
            group = options.kafka.group_id
            yield SourceIdentity(
                f"{NAME}: {options.subscription}",
                bootstrap=options.kafka.bootstrap,
                group=group or f"{options.group_prefix}-{name or query_id}",
                shared=group is not None,
            )

    @property
    def _jlistener(self) -> Any:
        """Does what Spark's own property does, but passes the JVM's events unchanged: see the module's docstring."""
        if not hasattr(self, "_wrapped"):
            from pyspark import SparkContext

            jvm = SparkContext._jvm
            assert jvm is not None
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_Callbacks(self))
        return self._wrapped


class _Callbacks:
    """Implements the Java interface; py4j looks up its methods by name."""

    def __init__(self, listener: QueryListener) -> None:
        self.onQueryStarted = listener.onQueryStarted
        self.onQueryProgress = listener.onQueryProgress
        self.onQueryIdle = listener.onQueryIdle
        self.onQueryTerminated = listener.onQueryTerminated

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class ProgressPublisher:
    """The thread that publishes the updates of the schedule to clusters."""

    def __init__(self) -> None:
        self._schedule = UpdateSchedule()
        self._news = threading.Condition()
        self._topics: dict[str, PipelinesTopic] = {}
        self._groups: dict[str, GroupProgress] = {}
        self._troubled: set[str] = set()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="penstock-query-progress", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @contextlib.contextmanager
    def schedule(self) -> Iterator[UpdateSchedule]:
        with self._news:
            yield self._schedule
            self._news.notify()

    def close(self, timeout: float = EXIT_S) -> None:
        """Publish the last updates, within a few seconds: the program and its queries are ending."""
        with self.schedule() as schedule:
            schedule.all_terminated()
            self._ending = True
        self._thread.join(timeout)
        atexit.unregister(self.close)

    def _run(self) -> None:
        ending = False
        while not ending:
            with self._news:
                while not (updates := self._schedule.due(_now_ms(), hurry=self._ending)) and not self._ending:
                    due_ms = self._schedule.next_due_ms()
                    self._news.wait(None if due_ms is None else max(0, due_ms - _now_ms()) / 1000)
                ending = self._ending
            for update in updates:
                succeeded = self._publish(update)
                with self._news:
                    self._schedule.published(update, _now_ms(), succeeded=succeeded)
        for topic in self._topics.values():
            topic.close()
        for groups in self._groups.values():
            groups.close()

    def _publish(self, update: ProgressUpdate) -> bool:
        succeeded = [self._commit(group, offsets) for group, offsets in update.commits.items()]
        if update.bootstrap is not None:
            succeeded.append(self._write(update.bootstrap, update.progress))
        return all(succeeded)

    def _commit(self, group: Group, offsets: dict[TopicPartition, int]) -> bool:
        groups = self._groups.setdefault(group.bootstrap, GroupProgress(group.bootstrap, timeout=REQUEST_S))
        return self._attempt(
            f"the offsets of group {group.name!r}",
            lambda: groups.commit(group.name, offsets, only_forward=group.shared),
        )

    def _write(self, bootstrap: str, progress: QueryProgress) -> bool:
        from penstock.spark.progress.topic import PipelinesTopic

        topic = self._topics.setdefault(bootstrap, PipelinesTopic(bootstrap, timeout=REQUEST_S))
        return self._attempt(
            f"the progress of query {progress.name or progress.query_id}", lambda: topic.write(progress)
        )

    def _attempt(self, what: str, action: Callable[[], None]) -> bool:
        """False if the action failed. A failure is logged once, until the action succeeds again."""
        try:
            action()
        except (ClientError, KafkaError, OSError) as error:
            if what not in self._troubled:
                logger.warning("cannot report %s yet: %s", what, error)
            self._troubled.add(what)
            return False
        self._troubled.discard(what)
        return True


@contextlib.contextmanager
def _never_failing(what: str) -> Iterator[None]:
    """Spark would log any exception of a listener as an error of its own."""
    try:
        yield
    except Exception:
        logger.exception("%s could not be noted", what)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
