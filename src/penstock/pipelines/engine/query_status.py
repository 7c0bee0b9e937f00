"""The status of a query in a running pipeline: from its runner and from Spark's listener.

Spark reports batches after they end, in its own threads, but in order: the end of a query comes after its last batch.
So a thread that has stopped a query waits for the report of its end (`heard_end`) before it takes the figures as final.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.pipelines.operate.reports import QueryReport, QueryState
from penstock.pipelines.spec.secrets import redacted
from penstock.spark.progress.query_progress import QueryProgress, SourceIdentity, after_batch

logger = logging.getLogger("penstock.pipelines")

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(slots=True)
class BatchSeconds:
    """How long batches took, as a histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[sum(seconds > bound for bound in SECONDS)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Cumulative, by upper bound, as in Prometheus."""
        bounds = [*map(str, SECONDS), "+Inf"]
        return [(bound, sum(self.counts[: index + 1])) for index, bound in enumerate(bounds)]


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """The timestamps of records, in milliseconds."""

    count: int
    mean_ms: float
    oldest_ms: float


@dataclass(slots=True)
class Latency:
    """From the timestamps of records to the end of the batches that wrote what became of them."""

    records: int = 0
    seconds: float = 0.0
    """The sum over all records."""
    last_mean_ms: int | None = None
    """Of the last batch that had any, as the next."""
    last_max_ms: int | None = None

    def add(self, times: RecordTimes, ended_ms: float) -> None:
        """Clocks of producers may be ahead."""
        mean_ms, max_ms = max(0.0, ended_ms - times.mean_ms), max(0.0, ended_ms - times.oldest_ms)
        self.records += times.count
        self.seconds += times.count * mean_ms / 1000
        self.last_mean_ms, self.last_max_ms = round(mean_ms), round(max_ms)


@dataclass(slots=True)
class Tally:
    """What a batch has written."""

    rows: dict[str, int] = field(default_factory=dict)
    """By sink."""
    dead_letters: int = 0
    violations: dict[tuple[str, str], int] = field(default_factory=dict)
    """Rows that break an expectation and are kept, by table and expectation."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The dead letters by kind of reason."""
    times: RecordTimes | None = None
    """Of the records that it wrote."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The time for each sink, or for sinks that are written together."""


class QueryStatus:
    """The thread that watches the query and the listener's threads write to it; any thread may read it."""

    def __init__(self, name: str, clock_ms: Callable[[], int]) -> None:
        self.name = name
        self.state: QueryState = "waiting"
        self.failures = 0
        self.restarts = 0
        self.error: str | None = None
        self.error_ms: int | None = None
        self.retry_ms: int | None = None
        self.batches = 0
        self.batch_ended_ms: int | None = None
        self.seconds = BatchSeconds()
        self.latency = Latency()
        self.heard_end = threading.Event()
        self._clock_ms = clock_ms
        self._rows_out: Counter[str] = Counter()
        self._dead_letters = 0
        self._reasons: Counter[str] = Counter()
        self._sink_seconds: dict[str, float] = {}
        self._times: RecordTimes | None = None
        self._written_as = ""
        self._sources: tuple[SourceIdentity, ...] = ()
        self._progress: QueryProgress | None = None
        self._is_idle = False
        self._tally: Callable[[Mapping[str, Any]], Tally] | None = None

    # Events from the runner.

    def starts(self) -> None:
        self.heard_end.clear()
        self.state, self.retry_ms = "running", None

    def failed(self, error: str, failures: int, pause: float | None) -> None:
        self.error, self.error_ms, self.failures = error, self._clock_ms(), failures
        self.state = "failed"
        if pause is not None:
            self.state, self.retry_ms = "backing off", self._clock_ms() + round(1000 * pause)
            self.restarts += 1

    def ends(self) -> None:
        self.state, self.retry_ms = "ended", None

    def wrote(self, tally: Tally, batch: int) -> None:
        self._rows_out.update(tally.rows)
        self._dead_letters += tally.dead_letters
        self._reasons.update(tally.reasons)
        self._times = tally.times
        for sink, seconds in tally.seconds.items():
            self._sink_seconds[sink] = self._sink_seconds.get(sink, 0.0) + seconds
        for (table, expectation), rows in tally.violations.items():
            if rows:
                logger.warning('batch %d: %d rows of "%s" break "%s"', batch, rows, table, expectation)

    def observes(self, tally: Callable[[Mapping[str, Any]], Tally] | None, written_as: str = "") -> None:
        """How to read the observed metrics of its batches; None: what writes the batches calls `wrote`. `written_as`:
        the name of all its sinks, which Spark writes together."""
        self._tally, self._written_as = tally, written_as

    def table_done(self, seconds: float) -> None:
        """A run over a table, which is not a Spark batch."""
        self.batches += 1
        self.batch_ended_ms = self._clock_ms()
        self.seconds.add(seconds)

    # Events from the listener.

    def started(self, progress: QueryProgress, sources: tuple[SourceIdentity, ...]) -> None:
        before = self._progress
        if before is not None:  # figures continue over restarts
            progress = dataclasses.replace(
                before, run_id=progress.run_id, started_ms=progress.started_ms, state="running"
            )
        self._progress, self._sources = progress, sources

    def progressed(self, progress: Mapping[str, Any]) -> None:
        before = self._progress
        if before is None or progress["runId"] != before.run_id:
            return
        self._progress = after = after_batch(before, progress, self._sources)
        if self._tally is not None:
            tally = self._tally(progress.get("observedMetrics") or {})
            tally.seconds[self._written_as] = after.durations_ms.get("addBatch", 0) / 1000
            self.wrote(tally, progress["batchId"])
        self._add_latency(progress, after.batch_ms or 0)
        self._is_idle = False
        if self.state == "running":
            self.failures = 0  # a successful batch resets the count
        self.batches += 1
        self.batch_ended_ms = self._clock_ms()
        self.seconds.add((after.batch_ms or 0) / 1000)

    def _add_latency(self, progress: Mapping[str, Any], batch_ms: int) -> None:
        """If what is written comes from no single record, Spark still knows the times in the watermark's column."""
        times, self._times = self._times or _event_times(progress), None
        began_ms = _milliseconds(progress.get("timestamp"))
        if times is not None and began_ms is not None:
            self.latency.add(times, began_ms + batch_ms)

    def idle(self, query_id: str, run_id: str) -> None:
        self._is_idle = True

    def terminated(self, query_id: str, run_id: str, error: str | None) -> str | None:
        self.heard_end.set()
        return None if error is None else redacted(error)

    # For readers.

    def report(self) -> QueryReport:
        report = QueryReport(
            name=self.name,
            state=self.state,
            failures=self.failures,
            restarts=self.restarts,
            error=self.error,
            error_ms=self.error_ms,
            retry_ms=self.retry_ms,
            batches=self.batches,
            batch_ended_ms=self.batch_ended_ms,
            rows_out=dict(self._rows_out),
            dead_letters=self._dead_letters,
            dead_letters_by_reason=dict(self._reasons),
            sink_seconds={sink: round(seconds, 3) for sink, seconds in self._sink_seconds.items()},
            latency_ms=self.latency.last_mean_ms,
            latency_max_ms=self.latency.last_max_ms,
        )
        progress = self._progress
        if progress is None:
            return report
        return dataclasses.replace(
            report,
            batch_id=progress.batch_id,
            batch_ms=progress.batch_ms,
            input_rows_per_second=progress.input_rows_per_second,
            processed_rows_per_second=progress.processed_rows_per_second,
            rows_in=progress.rows_total,
            late_rows=progress.late_rows_dropped_total,
            watermark_ms=progress.watermark_ms,
            lag=self._lag(progress),
            state_rows=progress.state_rows,
            state_bytes=progress.state_memory_bytes,
            groups=tuple(sorted({each.group for each in self._sources if each.group})),
        )

    def _lag(self, progress: QueryProgress) -> int | None:
        """For a batch that was planned before a restart, Spark does not report where the topics ended. But a query that
        has nothing to do has no lag."""
        if self._is_idle and any(each.group for each in self._sources):
            return 0
        return progress.lag


def _event_times(progress: Mapping[str, Any]) -> RecordTimes | None:
    """Spark reports them for batches with rows, if there is a watermark."""
    times = progress.get("eventTime") or {}
    mean_ms, oldest_ms = _milliseconds(times.get("avg")), _milliseconds(times.get("min"))
    rows = progress.get("numInputRows", 0)
    return RecordTimes(rows, mean_ms, oldest_ms) if rows and mean_ms is not None and oldest_ms is not None else None


def _milliseconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp() * 1000
