"""What a running pipeline tells of itself, and what it is told: records of the compacted topic `__pipelines`, in JSON.

A pipeline writes its report under the key `pipeline/NAME`, each replacing the one before; whoever wants something of it
writes a `Control` under `control/NAME`. A control names the run that it is for, so that an order that came too late is
none for the next run. (Keys without a slash are those of queries: `penstock.spark.progress.query_progress`.)

Everything here is pure. Fields may be added; if one changes its meaning, `version` changes, and a reader passes over
what is newer than itself. Times are milliseconds since 1970, rates are rows a second. `lost` is never written: it is
what a reader concludes when the heartbeats of a pipeline that has not ended have stopped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1
REPORT_EVERY_MS = 1000
HEARTBEAT_MS = 10_000
LOST_AFTER_MS = 3 * HEARTBEAT_MS
REPORT_KEY, CONTROL_KEY = "pipeline/", "control/"

QueryState = Literal["waiting", "running", "backing off", "ended", "failed"]
State = Literal["running", "backing off", "stopping", "ended", "stopped", "failed", "lost"]
ENDED: frozenset[State] = frozenset({"ended", "stopped", "failed"})


class UnreadableReport(ValueError):
    """A record of `__pipelines` that is none of ours, or newer than we are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport:
    """One query. Figures are since the pipeline started, over all restarts of the query, unless they say otherwise."""

    name: str
    state: QueryState = "waiting"
    failures: int = 0
    """In a row; 0 once a batch has succeeded."""
    restarts: int = 0
    error: str | None = None
    """Of the last failure, in one line and without secrets; it stays when the query has recovered."""
    error_ms: int | None = None
    retry_ms: int | None = None
    """When a query that backs off starts again."""
    batches: int = 0
    batch_id: int | None = None
    """Of the last batch that was finished, as the next four."""
    batch_ms: int | None = None
    batch_ended_ms: int | None = None
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    rows_in: int = 0
    rows_out: Mapping[str, int] = field(default_factory=dict)
    """By sink."""
    dead_letters: int = 0
    late_rows: int = 0
    """Dropped, because the watermark had passed their window."""
    watermark_ms: int | None = None
    lag: int | None = None
    """Records that waited in its topics when the last batch ended; null if it reads none."""
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
    """What it ended with."""
    file: str = ""
    environment: str | None = None
    backfill_of: str | None = None
    """The pipeline that this is a backfill of."""
    application: str = ""
    """Spark's id of the application."""
    driver: str = ""
    """`host:pid` of the program."""
    metrics: str | None = None
    """The address that answers Prometheus."""
    started_ms: int
    heartbeat_ms: int
    """When this was written. A pipeline that has not ended writes at least every 10 s."""
    queries: tuple[QueryReport, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.state not in ENDED and self.state != "lost"

    @property
    def last_error(self) -> str | None:
        """What it ended with, or else what one of its queries failed with last."""
        failed = [query for query in self.queries if query.error]
        latest = max(failed, key=lambda query: query.error_ms or 0, default=None)
        return self.error or (f'query "{latest.name}": {latest.error}' if latest is not None else None)

    @property
    def lag(self) -> int | None:
        return total(query.lag for query in self.queries)

    @property
    def watermark_ms(self) -> int | None:
        """Of the query that is behind the others."""
        return min((each.watermark_ms for each in self.queries if each.watermark_ms is not None), default=None)

    def as_of(self, now_ms: int) -> PipelineReport:
        """As somebody sees it who reads it now: `lost` if it should have been heard of since."""
        if self.state in ENDED or now_ms - self.heartbeat_ms <= LOST_AFTER_MS:
            return self
        return dataclasses.replace(self, state="lost")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> PipelineReport:
        known = _read(cls, text)
        try:
            queries = [{**each, "groups": tuple(each.get("groups", ()))} for each in known.get("queries", ())]
            known["queries"] = tuple(QueryReport(**_known(QueryReport, each)) for each in queries)
            return cls(**known)
        except (AttributeError, TypeError) as error:
            raise UnreadableReport(f"not the report of a pipeline: {error}: {text:.200}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """An order: `stop` lets the batches under way end, `stop-now` cuts them off (they are done again by the next
    run)."""

    version: int = VERSION
    command: Literal["stop", "stop-now"]
    run_id: str
    asked_ms: int
    by: str = ""
    """`user@host`, for the log."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Control:
        try:
            return cls(**_read(cls, text))
        except TypeError as error:
            raise UnreadableReport(f"not an order: {error}: {text:.200}") from error


def is_due(told: PipelineReport | None, now: PipelineReport) -> bool:
    """Whether it is time to write a report, with `told` the last one: changes of a state at once, of figures at most
    every second, and a heartbeat every 10 s."""
    if told is None or _states(told) != _states(now):
        return True
    waited_ms = now.heartbeat_ms - told.heartbeat_ms
    changed = dataclasses.replace(told, heartbeat_ms=0) != dataclasses.replace(now, heartbeat_ms=0)
    return waited_ms >= (REPORT_EVERY_MS if changed else HEARTBEAT_MS)


def _states(report: PipelineReport) -> list[str]:
    return [report.state, *(query.state for query in report.queries)]


def state_of(queries: Iterable[QueryReport], *, stopping: bool) -> State:
    """Of a pipeline that runs."""
    if stopping:
        return "stopping"
    return "backing off" if any(query.state == "backing off" for query in queries) else "running"


def total(figures: Iterable[int | None]) -> int | None:
    """Of those that there are; None if there are none."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _read(kind: type[Any], text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
        if given["version"] > VERSION:
            raise UnreadableReport(f"version {given['version']} is newer than {VERSION}")
        return _known(kind, given)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnreadableReport):
            raise
        raise UnreadableReport(f"not a record of a pipeline: {error}: {text:.200}") from error


def _known(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}
