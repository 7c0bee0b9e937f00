"""Checks the rows of a pipeline's tests: their fields against schemas, and their values against types.

A row may be wrong on purpose: a test that expects dead letters gives records that become some. So wrong values are
reported only where the test would certainly fail because of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from penstock.pipelines.check.analysis import Analysis, Finding, Table
from penstock.pipelines.check.column_types import Type
from penstock.pipelines.spec import schemas
from penstock.pipelines.spec.model import (
    METADATA_COLUMNS,
    FormatSource,
    Pipeline,
    PipelineTest,
    Source,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.spec.problems import Path, nearest

_RECORD = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
_WRITTEN = ("topic", "key", "value", "headers")
_LETTER = ("reason", "field", "pipeline", "topic", "partition", "offset", "timestamp", "key", "value")
_WHOLE = ("int", "bigint")


def findings(pipeline: Pipeline, analysis: Analysis, directory: str, broken: set[str]) -> Iterator[Finding]:
    for index, test in enumerate(pipeline.tests):
        path: Path = ("tests", index)
        yield from _given(pipeline, analysis, directory, broken, test, path)
        for name, rows in test.expect.items():
            if name in broken:
                continue
            if name not in pipeline.sinks:
                yield Finding(f'no sink "{name}"; {nearest(name, pipeline.sinks)}', (*path, "expect", name))
                continue
            for number, row in enumerate(rows):
                yield from _expected(pipeline, analysis, name, row, (*path, "expect", name, number))
        for number, row in enumerate(test.dead_letters):
            yield from _fields(row, _LETTER, "a dead letter", (*path, "dead_letters", number))


def _given(
    pipeline: Pipeline, analysis: Analysis, directory: str, broken: set[str], test: PipelineTest, path: Path
) -> Iterator[Finding]:
    several = isinstance(test.given, list)
    for number, batch in enumerate(test.given if isinstance(test.given, list) else [test.given]):
        place: Path = (*path, "given", number) if several else (*path, "given")
        for name, rows in batch.items():
            if name in broken:
                continue
            source = pipeline.sources.get(name)
            if source is None:
                yield Finding(f'no source "{name}"; {nearest(name, pipeline.sources)}', (*place, name))
                continue
            table = analysis.tables[name]
            for index, row in enumerate(rows):
                if isinstance(source, TopicSource):
                    yield from _record(source, table, directory, row, bool(test.dead_letters), (*place, name, index))
                elif isinstance(row, dict):
                    yield from _row(source, table, row, (*place, name, index))


# -- Rows that are given.


def _record(
    source: TopicSource, table: Table, directory: str, row: Any, letters: bool, path: Path
) -> Iterator[Finding]:
    wrong = list(_fields(row, _RECORD, "a record", path))
    yield from wrong
    if wrong:
        return
    yield from _time(row.get("timestamp"), (*path, "timestamp"))
    for name in ("partition", "offset"):
        if row.get(name) is not None and not _is_whole(row[name]):
            yield Finding(f'"{name}" is a whole number, not {_shown(row[name])}', (*path, name))
    value = row.get("value")
    if not isinstance(value, dict) or source.value.format in ("string", "bytes") or table.columns is None:
        return
    columns = [name for name in _names(source, table, directory) if name not in METADATA_COLUMNS]
    if source.evolution == "ignore":
        yield from _unknown(value, columns, (*path, "value"))
    if source.value.format == "json" and not letters and source.on_error != "drop":
        yield from _values(source, table, directory, value, (*path, "value"))


def _row(source: FormatSource, table: Table, row: dict[str, Any], path: Path) -> Iterator[Finding]:
    if source.schema and table.columns is not None:
        yield from _unknown(row, _names(source, table, "."), path)


def _names(source: Source, table: Table, directory: str) -> list[str]:
    """As the schema spells them."""
    try:
        return list(schemas.columns_of(source, directory) or ())
    except schemas.SchemaInvalid:
        return list(table.columns or ())


def _unknown(value: dict[str, Any], columns: list[str], path: Path) -> Iterator[Finding]:
    """A field that is nearly a column is a mistake. Others may be there to show that they are ignored."""
    for name in value:
        if name not in columns:
            hint = nearest(name, [each for each in columns if each not in value])
            if hint.startswith("did you mean"):
                yield Finding(f'the schema has no field "{name}"; {hint}', (*path, name))
            else:
                message = f'the schema has no field "{name}", so it is ignored'
                yield Finding(message, (*path, name), severity="warning")


def _values(source: TopicSource, table: Table, directory: str, value: dict[str, Any], path: Path) -> Iterator[Finding]:
    becomes = "stops the query" if source.on_error == "fail" else "becomes a dead letter, and the test expects none"
    try:
        nullable = schemas.json_columns(source.value, directory)
    except schemas.SchemaInvalid:
        return
    for name, may_be_null in nullable.items():
        if not may_be_null and value.get(name) is None:
            meant = any(nearest(other, [name]).startswith("did") for other in value if other not in nullable)
            if not meant:  # reported as a field that is misspelt
                yield Finding(f'"{name}" is NOT NULL and missing: the record {becomes}', path)
        wrong = _misfit(value.get(name), table.types.get(name.lower()))
        if wrong:
            yield Finding(f'"{name}" is {wrong}, not {_shown(value[name])}: the record {becomes}', (*path, name))


def _misfit(value: Any, kind: Type | None) -> str:
    """The type that a value of JSON does not fit; empty if it fits, or if that is not certain."""
    if value is None or kind is None:
        return ""
    if kind.kind in _WHOLE:
        fits = _is_whole(value)
    elif kind.kind in ("float", "double"):
        fits = _is_number(value) or value in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF", "+Infinity")
    elif kind.kind == "boolean":
        fits = isinstance(value, bool)
    elif kind.kind in ("timestamp", "date"):
        fits = not isinstance(value, (bool, dict, list))
    elif kind.kind == "array":
        fits = isinstance(value, list)
    elif kind.kind in ("struct", "map"):
        fits = isinstance(value, dict)
    else:
        fits = True
    return "" if fits else str(kind)


# -- Rows that are expected.


def _expected(pipeline: Pipeline, analysis: Analysis, name: str, row: Any, path: Path) -> Iterator[Finding]:
    sink = pipeline.sinks[name]
    columns: tuple[str, ...] = ()
    table = analysis.find(sink.source)
    if isinstance(sink, TopicSink):
        wrong = list(_fields(row, _WRITTEN, "a record that is written", path))
        yield from wrong
        if wrong or sink.value.format != "json" or not isinstance(row.get("value"), dict):
            return
        row, path = row["value"], (*path, "value")
    else:
        columns = sink.columns
    if table is None or table.columns is None or not isinstance(row, dict) or _grows(pipeline, table):
        return
    there = [each for each in columns or table.columns if each not in METADATA_COLUMNS]
    lowered = {each.lower() for each in there}
    for field, value in row.items():
        if field.lower() not in lowered:
            yield Finding(f'no column "{field}" is written; {nearest(field, there)}', (*path, field))
        elif isinstance(sink, TopicSink):
            kind = table.types.get(field.lower())
            if kind is not None and value is not None and _differs(value, kind):
                message = f'"{field}" is written as {kind}, and {_shown(value)} is none, so the test cannot pass'
                yield Finding(message, (*path, field))


def _differs(value: Any, kind: Type) -> bool:
    """Whether JSON of this type is never equal to the value."""
    if kind.kind == "string":
        return _is_number(value) or isinstance(value, bool)
    if kind.kind in (*_WHOLE, "float", "double"):
        return isinstance(value, (str, bool)) and value not in ("NaN", "Infinity", "-Infinity")
    return kind.kind == "boolean" and not isinstance(value, bool)


def _grows(pipeline: Pipeline, table: Table) -> bool:
    """Whether columns may be added while it runs."""
    sources = (pipeline.sources[name] for name in table.sources)
    return any(isinstance(each, TopicSource) and each.evolution == "add-columns" for each in sources)


# -- Both.


def _fields(row: Any, known: Iterable[str], what: str, path: Path) -> Iterator[Finding]:
    names = list(known)
    if not isinstance(row, dict):
        yield Finding(f"{what} is given as {{{', '.join(f'{name}: ...' for name in names[:3])}}}", path)
        return
    for name in row:
        if name not in names:
            yield Finding(f'{what} has no field "{name}"; {nearest(name, names)}', (*path, name))


def _time(value: Any, path: Path) -> Iterator[Finding]:
    if value is None or _is_number(value):
        return
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        yield Finding(f"timestamp {_shown(value)} is not like 2026-01-01T12:00:00Z, nor milliseconds", path)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
