"""A running pipeline's reports and the commands for it: records of the compacted topic `__pipelines`, in JSON.

A pipeline writes its report under the key `pipeline/NAME`; each report replaces the one before. A `Control` under
`control/NAME` is a command for it. A control names the run that it is for, so that a late command does not affect the
next run. (Keys without a slash are those of queries: `penstock.spark.progress.query_progress`.)

Everything here is pure. Fields may be added. If a field changes its meaning, `version` changes, and a reader skips
records newer than itself. Times are milliseconds since 1970, rates are rows per second. `lost` is never written: a
reader concludes it when a pipeline that has not ended stops sending heartbeats.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.spark.progress.query_progress import HEARTBEAT_MS, LOST_AFTER_MS, as_json, known_fields

VERSION = 1
REPORT_EVERY_MS = 1000
REPORT_KEY, CONTROL_KEY = "pipeline/", "control/"

QueryState = Literal["waiting", "running", "backing off", "ended", "failed"]
State = Literal["running", "backing off", "stopping", "ended", "stopped", "failed", "lost"]
ENDED: frozenset[State] = frozenset({"ended", "stopped", "failed"})


class UnreadableReport(ValueError):
    """A record of `__pipelines` that Penstock did not write, or that a newer version wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport:
    """One query. Figures are totals since the pipeline started, over all restarts of the query, unless noted."""

    name: str
    state: QueryState = "waiting"
    failures: int = 0
    """Consecutive failures; 0 once a batch has succeeded."""
    restarts: int = 0
    error: str | None = None
    """The last failure, in one line and without secrets; it remains when the query has recovered."""
    error_ms: int | None = None
    retry_ms: int | None = None
    """When a query that is backing off restarts."""
    batches: int = 0
    batch_id: int | None = None
    """The last finished batch, as the next four fields."""
    batch_ms: int | None = None
    batch_ended_ms: int | None = None
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    rows_in: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)
    """By sink."""
    dead_letters: int = 0
    dead_letters_by_reason: Mapping[str, int] = field(default_factory=dict)
    """By the kind of reason, of which there are few: not by field."""
    sink_seconds: Mapping[str, float] = field(default_factory=dict)
    """Time spent on a sink: writing, and computing what it gets. Sinks that are written together share a name."""
    latency_ms: int | None = None
    """From the timestamps of records to the end of the batch, the mean of the last batch; null if it is not known."""
    latency_max_ms: int | None = None
    """The same for its oldest record."""
    late_rows: int = 0
    """Dropped, because the watermark had passed their window."""
    watermark_ms: int | None = None
    lag: int | None = None
    """Records that were waiting in its topics when the last batch ended; null if it reads none."""
    state_rows: int = 0
    state_bytes: int = 0
    groups: tuple[str, ...] = ()
    """Consumer groups that its offsets are committed to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    version: int = VERSION
    name: str
    run_id: str
    """Differs from start to start."""
    state: State
    error: str | None = None
    """The error it ended with."""
    file: str = ""
    environment: str | None = None
    backfill_of: str | None = None
    """The pipeline that this is a backfill of."""
    application: str = ""
    """Spark's id of the application."""
    driver: str = ""
    """`host:pid` of the program."""
    metrics: str | None = None
    """The address that serves Prometheus metrics."""
    started_ms: int
    heartbeat_ms: int
    """When this was written. A pipeline that has not ended writes at least every 10 s."""
    queries: tuple[QueryReport, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.state not in ENDED and self.state != "lost"

    @property
    def last_error(self) -> str | None:
        """The error it ended with, or else the last failure of one of its queries."""
        failed = [query for query in self.queries if query.error]
        latest = max(failed, key=lambda query: query.error_ms or 0, default=None)
        return self.error or (f'query "{latest.name}": {latest.error}' if latest is not None else None)

    @property
    def lag(self) -> int | None:
        return total(query.lag for query in self.queries)

    @property
    def watermark_ms(self) -> int | None:
        """The watermark of the query that is furthest behind."""
        return min((each.watermark_ms for each in self.queries if each.watermark_ms is not None), default=None)

    def as_of(self, now_ms: int) -> PipelineReport:
        """The state for a reader at `now_ms`: `lost` if a heartbeat is overdue."""
        if self.state in ENDED or now_ms - self.heartbeat_ms <= LOST_AFTER_MS:
            return self
        return dataclasses.replace(self, state="lost")

    def to_json(self) -> str:
        return as_json(self)

    @classmethod
    def from_json(cls, text: str) -> PipelineReport:
        known = _read(cls, text)
        try:
            queries = [{**each, "groups": tuple(each.get("groups", ()))} for each in known.get("queries", ())]
            known["queries"] = tuple(QueryReport(**known_fields(QueryReport, each)) for each in queries)
            return cls(**known)
        except (AttributeError, TypeError) as error:
            raise UnreadableReport(f"not the report of a pipeline: {error}: {text:.200}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A command: `stop` lets running batches finish, `stop-now` cancels them (the next run repeats them)."""

    version: int = VERSION
    command: Literal["stop", "stop-now"]
    run_id: str
    asked_ms: int
    by: str = ""
    """`user@host`, for the log."""

    def to_json(self) -> str:
        return as_json(self)

    @classmethod
    def from_json(cls, text: str) -> Control:
        try:
            return cls(**_read(cls, text))
        except TypeError as error:
            raise UnreadableReport(f"not an order: {error}: {text:.200}") from error


def is_due(last: PipelineReport | None, now: PipelineReport) -> bool:
    """Whether to write a report, given the last one: at once for a change of state, at most every second for
    changed figures, and every 10 s as a heartbeat."""
    if last is None or _states(last) != _states(now):
        return True
    waited_ms = now.heartbeat_ms - last.heartbeat_ms
    changed = dataclasses.replace(last, heartbeat_ms=0) != dataclasses.replace(now, heartbeat_ms=0)
    return waited_ms >= (REPORT_EVERY_MS if changed else HEARTBEAT_MS)


def _states(report: PipelineReport) -> list[str]:
    return [report.state, *(query.state for query in report.queries)]


def state_of(queries: Iterable[QueryReport], *, stopping: bool) -> State:
    """The state of a pipeline that runs."""
    if stopping:
        return "stopping"
    return "backing off" if any(query.state == "backing off" for query in queries) else "running"


def total(figures: Iterable[int | None]) -> int | None:
    """The sum of the figures that are known; None if none is."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _read(kind: type[Any], text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
        if given["version"] > VERSION:
            raise UnreadableReport(f"version {given['version']} is newer than {VERSION}")
        return known_fields(kind, given)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnreadableReport):
            raise
        raise UnreadableReport(f"not a record of a pipeline: {error}: {text:.200}") from error
