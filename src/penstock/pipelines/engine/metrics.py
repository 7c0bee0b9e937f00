"""Prometheus metrics of a running pipeline, from its reports.

    with PipelineMetrics("127.0.0.1:9405") as metrics:
        metrics.show(runner)
        runner.run()

Every family is declared once, in `FAMILIES`; a test compares the documentation page with it. Figures are read at each
scrape. Counters start at 0 when the pipeline starts, and continue over restarts of its queries.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from penstock import __version__
from penstock.client.errors import BadSetting
from penstock.pipelines.engine.query_status import QueryStatus
from penstock.pipelines.operate.reports import PipelineReport, QueryReport, QueryState

if TYPE_CHECKING:
    from penstock.pipelines.engine.runner import Runner

Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | SummaryMetricFamily
Kind = Literal["counter", "gauge", "histogram", "summary"]
_KINDS: dict[Kind, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "summary": SummaryMetricFamily,
}


class Family(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    def empty(self) -> Any:
        return _KINDS[self.kind](self.name, self.help, labels=self.labels)


_P, _Q = ("pipeline",), ("pipeline", "query")


def _family(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Family:
    assert kind != "counter" or name.endswith("_total")
    return Family(f"penstock_pipeline_{name}", kind, labels, text)


INFO = _family("info", "gauge", ("pipeline", "run", "environment", "backfill_of", "version"), "1; which run this is.")
UP_SINCE = _family("start_time_seconds", "gauge", _P, "When the run started, as Unix time.")
STATE = _family(
    "query_state", "gauge", (*_Q, "state"), "1 for the state that a query is in, 0 for the others; see `status`."
)
ROWS_IN = _family("rows_in_total", "counter", _Q, "Rows read from sources.")
ROWS_OUT = _family("rows_out_total", "counter", (*_Q, "sink"), "Rows written to a sink.")
DEAD_LETTERS = _family("dead_letters_total", "counter", _Q, "Records sent to the dead-letter topic.")
DEAD_BY_REASON = _family(
    "dead_letters_by_reason_total", "counter", (*_Q, "reason"), "The same by kind of reason; absent until there is one."
)
LATE_ROWS = _family("late_rows_total", "counter", _Q, "Rows dropped because the watermark had passed their window.")
BATCHES = _family("batches_total", "counter", _Q, "Batches that were finished.")
SECONDS = _family("batch_seconds", "histogram", _Q, "How long batches took, from their plan to their commit.")
SINK_SECONDS = _family(
    "sink_seconds_total",
    "counter",
    (*_Q, "sink"),
    "Time spent on a sink: writing, and computing what it gets. Sinks that are written together share a label.",
)
LATENCY = _family(
    "latency_seconds",
    "summary",
    _Q,
    "From the timestamp of a record to the end of the batch that wrote what it became; of a step with state, from the "
    "time in the watermark's column to the end of the batch that took it in. Sum and count, over all records.",
)
LATENCY_MAX = _family("latency_max_seconds", "gauge", _Q, "The same for the oldest record of the last batch.")
RESTARTS = _family("restarts_total", "counter", _Q, "Times that a query failed and was started again.")
FAILURES = _family("failures", "gauge", _Q, "Failures in a row; 0 once a batch has succeeded.")
LAG = _family("lag_records", "gauge", _Q, "Records that waited in the query's topics when its last batch ended.")
RATE = _family("rows_per_second", "gauge", _Q, "Rows a second of the last batch, while it was worked on.")
WATERMARK = _family("watermark_seconds", "gauge", _Q, "The watermark, as Unix time; absent before the first row.")
STATE_ROWS = _family("state_rows", "gauge", _Q, "Rows that operators with state keep.")
STATE_BYTES = _family("state_bytes", "gauge", _Q, "Memory that they take.")
LAST_BATCH = _family("last_batch_time_seconds", "gauge", _Q, "When the last batch was finished, as Unix time.")

FAMILIES = (
    INFO,
    UP_SINCE,
    STATE,
    ROWS_IN,
    ROWS_OUT,
    DEAD_LETTERS,
    DEAD_BY_REASON,
    LATE_ROWS,
    BATCHES,
    SECONDS,
    SINK_SECONDS,
    LATENCY,
    LATENCY_MAX,
    RESTARTS,
    FAILURES,
    LAG,
    RATE,
    WATERMARK,
    STATE_ROWS,
    STATE_BYTES,
    LAST_BATCH,
)


class PipelineMetrics(Collector):
    """Serves HTTP in threads of its own; a scrape never waits for Spark."""

    def __init__(self, listener: str) -> None:
        self._runners: list[Runner] = []
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        host, port = parse_listener(listener)
        try:
            self._server, self._thread = start_http_server(port, host or "0.0.0.0", registry)
        except OSError as error:
            raise BadSetting(f"cannot listen on {listener} (--metrics-listener): {error.strerror or error}") from error
        self.address = f"{host or '127.0.0.1'}:{self._server.server_port}"

    def show(self, runner: Runner) -> None:
        """One more pipeline."""
        runner.metrics = self.address
        self._runners.append(runner)

    def __enter__(self) -> PipelineMetrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        thread: threading.Thread = self._thread
        thread.join()

    def collect(self) -> Iterator[Any]:
        if self._runners:  # otherwise Spark is still starting
            yield from families_of([(runner.report(), runner.status) for runner in self._runners])


def families_of(pipelines: Iterable[tuple[PipelineReport, dict[str, QueryStatus]]]) -> Iterator[Any]:
    made = {family: family.empty() for family in FAMILIES}
    for report, statuses in pipelines:
        _add(made, report, statuses)
    yield from made.values()


def _add(made: dict[Family, Any], report: PipelineReport, statuses: dict[str, QueryStatus]) -> None:
    def add(family: Family, value: float | None, *labels: str) -> None:
        if value is not None:
            made[family].add_metric((report.name, *labels), value)

    add(INFO, 1, report.run_id, report.environment or "", report.backfill_of or "", __version__)
    add(UP_SINCE, report.started_ms / 1000)
    for query in report.queries:
        for family, value in _plain(query):
            add(family, value, query.name)
        for state in get_args(QueryState):
            add(STATE, int(query.state == state), query.name, state)
        for sink, rows in query.rows_out.items():
            add(ROWS_OUT, rows, query.name, sink)
        for reason, letters in query.dead_letters_by_reason.items():
            add(DEAD_BY_REASON, letters, query.name, reason)
        for sink, spent in query.sink_seconds.items():
            add(SINK_SECONDS, spent, query.name, sink)
        latency = statuses[query.name].latency
        if latency.records:
            made[LATENCY].add_metric((report.name, query.name), latency.records, latency.seconds)
        seconds = statuses[query.name].seconds
        made[SECONDS].add_metric((report.name, query.name), seconds.buckets(), seconds.sum)


def _plain(query: QueryReport) -> Iterator[tuple[Family, float | None]]:
    yield ROWS_IN, query.rows_in
    yield DEAD_LETTERS, query.dead_letters
    yield LATE_ROWS, query.late_rows
    yield BATCHES, query.batches
    yield LATENCY_MAX, None if query.latency_max_ms is None else query.latency_max_ms / 1000
    yield RESTARTS, query.restarts
    yield FAILURES, query.failures
    yield LAG, query.lag
    yield RATE, query.processed_rows_per_second
    yield WATERMARK, None if query.watermark_ms is None else query.watermark_ms / 1000
    yield STATE_ROWS, query.state_rows
    yield STATE_BYTES, query.state_bytes
    yield LAST_BATCH, None if query.batch_ended_ms is None else query.batch_ended_ms / 1000


def parse_listener(text: str) -> tuple[str, int]:
    """`host:port`, or `:port` for all addresses of the machine; port 0 is any that is free."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadSetting(f"--metrics-listener {text!r} is not host:port, such as 127.0.0.1:9405, or :9405")
    return host.strip("[]"), int(port)
