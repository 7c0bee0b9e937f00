"""The progress of a streaming query: the values of the compacted topic `__pipelines`, in JSON.

There is one record per query, keyed by the query's id; each record replaces the one before. A value is an object with
the fields of `QueryProgress`, by their names. Fields may be added. If a field changes its meaning, `version` changes,
and a reader skips records newer than itself. Times are milliseconds since 1970, rates are rows per second.

A query is `running` if its last trigger had something to do, `idle` if it had not, and ends as `terminated` or
`failed`. `lost` is never written: a reader concludes it when a query that has not ended stops sending heartbeats,
because its driver was killed or cannot reach the cluster.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from penstock.spark.source.offsets import TOPIC_IDS

VERSION = 1
HEARTBEAT_MS = 10_000
LOST_AFTER_MS = 3 * HEARTBEAT_MS

State = Literal["running", "idle", "terminated", "failed", "lost"]
ENDED: frozenset[State] = frozenset({"terminated", "failed"})
Offsets = Mapping[str, Mapping[str, int]]
"""By topic and partition: the offset of the next record."""

_ERROR_CHARACTERS_MAX = 2000
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


class UnreadableProgress(ValueError):
    """A record of `__pipelines` that Penstock did not write, or that a newer version wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """One input of a query. Offsets, lag and group are those of topics; for other sources they are null."""

    description: str
    """`penstock: orders,payments`, or what Spark calls the source."""
    group: str | None = None
    """The consumer group that the query commits its offsets to."""
    offsets: Offsets | None = None
    """Where the last batch ended."""
    latest: Offsets | None = None
    """Where the topics ended then."""
    lag: int | None = None
    """Records in between."""
    rows: int = 0
    """Of the last batch."""
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateProgress:
    """One stateful operator: an aggregation, a join, a deduplication."""

    operator: str
    rows: int
    memory_bytes: int
    late_rows_dropped: int
    """Of the last batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    version: int = VERSION
    query_id: str
    """Stays the same when a query is started again from its checkpoint."""
    run_id: str
    """Differs from start to start."""
    name: str | None
    state: State
    error: str | None = None
    """Of a query that failed: the beginning of what it failed with."""
    application: str = ""
    """Spark's id of the application."""
    driver: str = ""
    """`host:pid` of the program."""
    started_ms: int
    heartbeat_ms: int
    """When this was written. A query that has not ended writes at least every 10 s."""
    batch_id: int | None = None
    """Of the last batch that was finished; null before there is one, as are the figures below."""
    batch_ms: int | None = None
    """How long it took."""
    durations_ms: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Where that time went, by Spark's names of its steps (`latestOffset`, `addBatch`, `walCommit`, ...)."""
    rows: int = 0
    """Of the last batch."""
    rows_total: int = 0
    """Since this run started, as the next."""
    late_rows_dropped_total: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    watermark_ms: int | None = None
    state_rows: int = 0
    state_memory_bytes: int = 0
    operators: tuple[StateProgress, ...] = ()
    sources: tuple[SourceProgress, ...] = ()
    sink: str = ""
    unpublished: int = 0
    """Attempts to write such a record, or to commit offsets, that failed since this run started."""

    @property
    def lag(self) -> int | None:
        """The lag of all its topics together; None if it reads none."""
        lags = [source.lag for source in self.sources if source.lag is not None]
        return sum(lags) if lags else None

    def as_of(self, now_ms: int) -> QueryProgress:
        """The state for a reader at `now_ms`: `lost` if a heartbeat is overdue."""
        if self.state in ENDED or now_ms - self.heartbeat_ms <= LOST_AFTER_MS:
            return self
        return dataclasses.replace(self, state="lost")

    def to_json(self) -> str:
        return as_json(self)

    @classmethod
    def from_json(cls, text: str) -> QueryProgress:
        try:
            given = json.loads(text)
            if given["version"] > VERSION:
                raise UnreadableProgress(f"version {given['version']} is newer than {VERSION}")
            known = known_fields(cls, given)
            known["sources"] = tuple(SourceProgress(**known_fields(SourceProgress, each)) for each in given["sources"])
            known["operators"] = tuple(
                StateProgress(**known_fields(StateProgress, each)) for each in given["operators"]
            )
            return cls(**known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnreadableProgress(f"not the progress of a query: {error}: {text:.200}") from error


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What is known of a source when its query starts; progress reports do not repeat it."""

    description: str
    bootstrap: str | None = None
    """Of a source of topics."""
    group: str | None = None
    shared: bool = False
    """The source commits to the group as well."""


def after_batch(
    before: QueryProgress, progress: Mapping[str, Any], sources: tuple[SourceIdentity, ...]
) -> QueryProgress:
    """The progress after the batch that Spark reports (`StreamingQueryProgress.json`, parsed)."""
    operators = tuple(map(_operator, progress.get("stateOperators", ())))
    reported = progress.get("sources", [])
    identities: tuple[SourceIdentity | None, ...] = (
        sources if len(sources) == len(reported) else (None,) * len(reported)
    )
    durations = progress.get("durationMs", {})
    return dataclasses.replace(
        before,
        state="running",
        batch_id=progress["batchId"],
        batch_ms=durations.get("triggerExecution", progress.get("batchDuration")),
        durations_ms={name: took for name, took in durations.items() if name != "triggerExecution"},
        rows=progress.get("numInputRows", 0),
        rows_total=before.rows_total + progress.get("numInputRows", 0),
        late_rows_dropped_total=before.late_rows_dropped_total + sum(each.late_rows_dropped for each in operators),
        input_rows_per_second=_rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(progress.get("processedRowsPerSecond")),
        watermark_ms=_watermark(progress.get("eventTime", {})),
        state_rows=sum(each.rows for each in operators),
        state_memory_bytes=sum(each.memory_bytes for each in operators),
        operators=operators,
        sources=tuple(_source(each, identity) for each, identity in zip(reported, identities, strict=True)),
        sink=before.sink or progress.get("sink", {}).get("description", ""),
    )


def ended(before: QueryProgress, error: str | None) -> QueryProgress:
    if error is None:
        return dataclasses.replace(before, state="terminated")
    return dataclasses.replace(before, state="failed", error=error[:_ERROR_CHARACTERS_MAX])


def lag_between(offsets: Offsets, latest: Offsets) -> int:
    """The number of records not yet read. A partition without an offset in `offsets` does not count: it counts only
    when its first batch has ended."""
    return sum(
        max(0, end - offsets[topic][partition])
        for topic, ends in latest.items()
        for partition, end in ends.items()
        if partition in offsets.get(topic, {})
    )


def _source(reported: Mapping[str, Any], identity: SourceIdentity | None) -> SourceProgress:
    topics = identity is not None and identity.bootstrap is not None
    offsets = _offsets(reported.get("endOffset")) if topics else None
    latest = _offsets(reported.get("latestOffset")) if topics else None
    return SourceProgress(
        description=reported.get("description", "") if identity is None else identity.description,
        group=identity.group if identity is not None else None,
        offsets=offsets,
        latest=latest,
        lag=lag_between(offsets, latest) if offsets and latest else None,
        rows=reported.get("numInputRows", 0),
        input_rows_per_second=_rate(reported.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(reported.get("processedRowsPerSecond")),
    )


def _offsets(reported: Mapping[str, Any] | None) -> Offsets | None:
    """Without the ids of the topics."""
    return {topic: each for topic, each in reported.items() if topic != TOPIC_IDS} if reported is not None else None


def _operator(reported: Mapping[str, Any]) -> StateProgress:
    return StateProgress(
        operator=reported.get("operatorName", ""),
        rows=reported.get("numRowsTotal", 0),
        memory_bytes=reported.get("memoryUsedBytes", 0),
        late_rows_dropped=reported.get("numRowsDroppedByWatermark", 0),
    )


def _watermark(event_time: Mapping[str, str]) -> int | None:
    """Spark reports 1970 until it has seen a row."""
    text = event_time.get("watermark", _NO_WATERMARK)
    return None if text == _NO_WATERMARK else round(datetime.fromisoformat(text).timestamp() * 1000)


def _rate(value: Any) -> float:
    """Spark writes "Infinity" or "NaN" for the rate of a batch that took no time, as JSON has no such numbers."""
    return float(value) if isinstance(value, (int, float)) and value == value and abs(value) != float("inf") else 0.0


def as_json(record: Any) -> str:
    """Of a dataclass."""
    return json.dumps(dataclasses.asdict(record), separators=(",", ":"), ensure_ascii=False)


def known_fields(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that a newer version has added."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}
