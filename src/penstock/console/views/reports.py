"""Reports: a topic with JSON values as a table, and as lines over time.

A report names the field to draw, and may name a field to tell lines apart and a field with the time (an ISO text, or
milliseconds or seconds since 1970); without it, a record's own timestamp counts. Records are put into as many intervals
as fit the drawing; what an interval shows is the mean, the sum, the largest, or how many there were.

The same records can be drawn as bars, one for each value of a field, and as a map, if they have a latitude and a
longitude (`views.geography`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.console.views.charts import Series
from penstock.console.views.geography import Place, is_place
from penstock.console.views.json_path import MISSING, BadPath, Path, parse_path, value_at

HOW = {"mean": "mean", "sum": "sum", "max": "largest", "min": "smallest", "last": "last", "count": "count"}
KINDS = {"lines": "lines over time", "bars": "bars", "map": "a map"}
INTERVALS = 120
BARS_MAX = 12
RECORDS_MAX = 50_000
COLUMNS_MAX = 12
_SECONDS_MAX = 10**11


@dataclass(frozen=True, slots=True)
class Report:
    topic: str = ""
    value: str = ""
    by: str = ""
    at: str = ""
    how: str = "mean"
    kind: str = "lines"
    latitude: str = ""
    longitude: str = ""
    records: int = 5_000
    """How many of the newest records it is made of."""
    problems: tuple[str, ...] = ()

    def parameters(self) -> dict[str, str]:
        given = {"topic": self.topic, "value": self.value, "by": self.by, "at": self.at, "how": self.how}
        if self.kind != "lines":
            given |= {"kind": self.kind, "latitude": self.latitude, "longitude": self.longitude}
        return {name: text for name, text in given.items() if text}


@dataclass(frozen=True, slots=True)
class Reading:
    """One record: its document, and its own timestamp."""

    document: Any
    timestamp_ms: float


def parse_report(given: Mapping[str, str]) -> Report:
    problems = []
    for name in ("value", "by", "at", "latitude", "longitude"):
        if given.get(name):
            try:
                parse_path(given[name])
            except BadPath as error:
                problems.append(str(error))
    how, kind, records = given.get("how", "mean"), given.get("kind", "lines"), given.get("records", "")
    return Report(
        given.get("topic", ""),
        given.get("value", ""),
        given.get("by", ""),
        given.get("at", ""),
        how if how in HOW else "mean",
        kind if kind in KINDS else "lines",
        given.get("latitude", ""),
        given.get("longitude", ""),
        min(RECORDS_MAX, int(records)) if records.isdecimal() and 0 < len(records) < 9 else 5_000,
        problems=tuple(problems),
    )


def fields_of(readings: Iterable[Reading]) -> list[str]:
    """The fields that hold single values, as paths, in the order in which they first appear."""
    found: dict[str, None] = {}
    for reading in readings:
        _collect(reading.document, "", found, 0)
        if len(found) > 200:
            break
    return list(found)


def numeric_fields(readings: Sequence[Reading], fields: Iterable[str]) -> list[str]:
    wanted = []
    for field in fields:
        path = parse_path(field)
        values = [value_at(reading.document, path) for reading in readings[:50]]
        known = [value for value in values if value is not MISSING and value is not None]
        if known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
            wanted.append(field)
    return wanted


def lines(readings: Sequence[Reading], report: Report) -> tuple[list[Series], float, float]:
    """The lines, and the time from the first to the last."""
    value_path = parse_path(report.value) if report.value else None
    by_path = parse_path(report.by) if report.by else None
    at_path = parse_path(report.at) if report.at else None
    points: list[tuple[str, float, float]] = []
    for reading in readings:
        at_ms = _time(reading, at_path)
        value = 1.0 if value_path is None else value_at(reading.document, value_path)
        if at_ms is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        name = report.value or "records"
        if by_path is not None:
            found = value_at(reading.document, by_path)
            name = "" if found is MISSING else str(found)[:60]
        points.append((name, at_ms, float(value)))
    if not points:
        return [], 0.0, 1.0
    begin, end = min(point[1] for point in points), max(point[1] for point in points)
    how = "count" if value_path is None else report.how
    length = max((end - begin) / INTERVALS, 1000.0 if how == "count" else 1.0)
    last = int((end - begin) // length)
    intervals: dict[str, dict[int, list[float]]] = {}
    for name, at_ms, value in points:
        index = int((at_ms - begin) // length)
        if how != "count" or index < last or last < 3:  # the last interval is not over: it would count too few
            intervals.setdefault(name, {}).setdefault(index, []).append(value)
    series = [
        Series(name, [(begin + index * length, _one(values, how)) for index, values in sorted(by_time.items())])
        for name, by_time in sorted(intervals.items())
    ]
    return series, begin, max(end, begin + 1000)


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: float
    share: float
    """Of the longest, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Bars:
    bars: tuple[Bar, ...]
    left_out: int


def bars(readings: Sequence[Reading], report: Report) -> Bars:
    """One bar for each value of a field; the longest first. `readings` are the newest first."""
    value_path = parse_path(report.value) if report.value else None
    by_path = parse_path(report.by) if report.by else None
    values: dict[str, list[float]] = {}
    for reading in reversed(readings):
        value = 1.0 if value_path is None else value_at(reading.document, value_path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        found = MISSING if by_path is None else value_at(reading.document, by_path)
        values.setdefault("all" if found is MISSING else str(found)[:60], []).append(float(value))
    how = "count" if value_path is None else report.how
    totals = sorted(((_one(each, how), name) for name, each in values.items()), key=lambda each: (-each[0], each[1]))
    shown = totals[:BARS_MAX]
    longest = max((abs(value) for value, _ in shown), default=0.0) or 1.0
    return Bars(tuple(Bar(name, value, abs(value) / longest) for value, name in shown), len(totals) - len(shown))


def places(readings: Sequence[Reading], report: Report) -> list[Place]:
    """Those of the records that say where they are."""
    latitude, longitude = parse_path(report.latitude), parse_path(report.longitude)
    by_path = parse_path(report.by) if report.by else None
    value_path = parse_path(report.value) if report.value else None
    at_path = parse_path(report.at) if report.at else None
    found = []
    for reading in readings:
        north, east = value_at(reading.document, latitude), value_at(reading.document, longitude)
        if not is_place(north, east):
            continue
        name = MISSING if by_path is None else value_at(reading.document, by_path)
        value = MISSING if value_path is None else value_at(reading.document, value_path)
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        found.append(
            Place(
                "" if name is MISSING else str(name)[:60],
                float(north),
                float(east),
                _time(reading, at_path) or reading.timestamp_ms,
                number,
            )
        )
    return found


def located(report: Report, numeric: Sequence[str]) -> Report:
    """A map whose fields are not named takes those whose names say what they are."""
    if report.kind != "map" or (report.latitude and report.longitude):
        return report

    def guess(names: Sequence[str]) -> str:
        return next((each for each in numeric if str(parse_path(each)[-1]).lower() in names), "")

    return replace(
        report,
        latitude=report.latitude or guess(("latitude", "lat")),
        longitude=report.longitude or guess(("longitude", "lon", "lng", "long")),
    )


def rows(readings: Sequence[Reading], fields: Sequence[str]) -> list[list[Any]]:
    """The cells of a table; MISSING where a record has no such field."""
    paths = [parse_path(field) for field in fields[:COLUMNS_MAX]]
    return [[value_at(reading.document, path) for path in paths] for reading in readings]


def _one(values: list[float], how: str) -> float:
    if how == "count":
        return len(values)
    if how == "sum":
        return sum(values)
    if how == "max":
        return max(values)
    if how == "min":
        return min(values)
    return values[-1] if how == "last" else sum(values) / len(values)


def _time(reading: Reading, path: Path | None) -> float | None:
    if path is None:
        return reading.timestamp_ms if reading.timestamp_ms >= 0 else None
    found = value_at(reading.document, path)
    if isinstance(found, str):
        try:
            at = datetime.fromisoformat(found)
        except ValueError:
            return None
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000
    if isinstance(found, int | float) and not isinstance(found, bool) and found >= 0:
        return float(found) * 1000 if found < _SECONDS_MAX else float(found)
    return None


def _collect(document: Any, prefix: str, found: dict[str, None], level: int) -> None:
    if not isinstance(document, dict) or level > 4:
        return
    for name, value in document.items():
        step = name if name.isidentifier() else f'["{name}"]'
        path = f"{prefix}{'.' if prefix and not step.startswith('[') else ''}{step}"
        if isinstance(value, dict):
            _collect(value, path, found, level + 1)
        elif not isinstance(value, list):
            found.setdefault(path)
