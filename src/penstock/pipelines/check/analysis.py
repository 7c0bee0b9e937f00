"""Analyses the tables of a pipeline: how they depend on each other, and how each can run over a stream.

Every source and every step is a table. The origin of its rows decides how it can run:

- A *static* table (a lookup, or made of lookups only) is computed whenever it is needed.
- A table over one stream, row by row, is computed batch by batch, in the query of its source.
- A table with state (aggregates), or over several streams (joins, unions), starts a query of its own.
- A table over a snapshot or an increment is computed as a whole.

A table keeps the source row if each of its rows can name the record it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from penstock.pipelines.check import sql_checks
from penstock.pipelines.check.column_types import Types, types_of_source, with_types
from penstock.pipelines.check.sql_checks import Rules
from penstock.pipelines.spec import schemas, sql
from penstock.pipelines.spec.model import METADATA_COLUMNS, FormatSource, Pipeline, Source, Step, TopicSource
from penstock.pipelines.spec.problems import Path, nearest
from penstock.pipelines.spec.sql import Columns, SqlInvalid

Drive = Literal["static", "stream", "snapshot", "incremental"]

# Settings with which Spark knows other functions, or has other rules about types.
_EXTENDING = ("spark.sql.extensions", "spark.sql.catalog", "spark.jars", "spark.plugins")
_OTHER_TYPES = ("spark.sql.ansi", "spark.sql.legacy", "spark.sql.extensions")


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem whose position in a file is not known yet."""

    message: str
    path: Path
    index: int | None = None
    severity: Literal["error", "warning"] = "error"
    cause: str = ""
    """Findings with the same message and cause become one problem that names all places."""
    at_key: bool = False
    """It is about the field itself, not about its value."""


@dataclass(slots=True)
class Table:
    name: str
    path: Path
    inputs: tuple[str, ...]
    drive: Drive
    query: str = ""
    """The query it is computed in; empty for static tables."""
    begins_query: bool = False
    sources: frozenset[str] = frozenset()
    """The sources that drive it."""
    loses_row: str = ""
    """Why it does not keep the source row; empty if it does."""
    multiplies: bool = False
    columns: Columns = None
    types: Types = field(default_factory=dict)
    """Of those columns whose types are known."""
    repeated: tuple[str, ...] = ()
    """Names that several of its columns have."""
    parsed: sql.Query | None = None
    stream_input: str = ""
    """The input whose rows it keeps."""


@dataclass(slots=True)
class Analysis:
    tables: dict[str, Table] = field(default_factory=dict)
    """Each table comes after its inputs."""
    findings: list[Finding] = field(default_factory=list)

    def upstream(self, name: str, until: str = "") -> list[str]:
        """A table and all tables it is made of, in order, without those that `until` is made of."""
        wanted = {name}
        for each in reversed(self.tables):
            if each in wanted and each != until:
                wanted.update(self.tables[each].inputs)
        return [each for each in self.tables if each in wanted]

    def find(self, name: str) -> Table | None:
        """By its name in SQL, which is case-insensitive."""
        return self.tables.get(name) or next(
            (table for table in self.tables.values() if table.name.lower() == name.lower()), None
        )


def analyse(pipeline: Pipeline, directory: str = ".", broken: Iterable[str] = ()) -> Analysis:
    """`broken`: names of sources and steps that are in the file and could not be read; they get no findings."""
    analysis = Analysis()
    findings = analysis.findings
    rules = session_rules(pipeline)
    for name, source in pipeline.sources.items():
        analysis.tables[name] = _source(name, source, directory)
    parsed: dict[str, sql.Query] = {}
    inputs: dict[str, tuple[str, ...]] = {}
    names = {each.lower(): each for each in (*pipeline.sources, *pipeline.steps)}
    passed_over = {each.lower() for each in broken}
    for name, step in pipeline.steps.items():
        found = _inputs(name, step, names, passed_over, findings)
        if isinstance(found, sql.Query):
            parsed[name] = found
            inputs[name] = tuple(names[table] for table in found.tables if table in names)
        else:
            inputs[name] = found
    unseen = passed_over | {each.lower() for each, step in pipeline.steps.items() if step.sql and each not in parsed}
    for name in _ordered(inputs, findings):
        step = pipeline.steps[name]
        tables = {each: analysis.tables[each] for each in inputs[name] if each in analysis.tables}
        query = parsed.get(name)
        whole = len(tables) == len(inputs[name]) and not (query is not None and set(query.tables) & unseen)
        analysis.tables[name] = _step(name, step, tables, query, whole, rules, findings)
    return analysis


def session_rules(pipeline: Pipeline) -> Rules:
    """What the settings of the Spark session, and functions of Python, leave certain about SQL."""
    registers = any(step.python for step in pipeline.steps.values())
    extended = any(name.startswith(_EXTENDING) for name in pipeline.spark)
    return Rules(
        ansi=not any(name.startswith(_OTHER_TYPES) for name in pipeline.spark), more_functions=registers or extended
    )


def _source(name: str, source: Source, directory: str) -> Table:
    drive: Drive = "stream"
    if isinstance(source, FormatSource) and source.mode != "stream":
        drive = "static" if source.mode == "lookup" else source.mode
    columns: Columns = None
    with suppress(schemas.SchemaInvalid):  # reported where schemas are checked
        columns = schemas.columns_of(source, directory)
    if columns is not None:
        columns = tuple(each.lower() for each in columns)
        if isinstance(source, TopicSource):
            columns += METADATA_COLUMNS
    types = with_types(columns, types_of_source(source, directory)) if columns is not None else {}
    table = Table(name, ("sources", name), (), drive, columns=columns, types=types, stream_input=name)
    if drive == "static":
        table.loses_row = "it is a lookup"
    else:
        table.query, table.begins_query, table.sources = name, True, frozenset([name])
    return table


def _inputs(
    name: str, step: Step, names: dict[str, str], broken: set[str], findings: list[Finding]
) -> sql.Query | tuple[str, ...]:
    path: Path = ("steps", name)
    if not step.sql:
        known = [each for each in step.source if each.lower() in names]
        for index, each in enumerate(step.source):
            if each.lower() not in {*names, *broken}:
                message = f'no source or step "{each}"; {nearest(each, names.values())}'
                findings.append(Finding(message, (*path, "from", index)))
        return tuple(names[each.lower()] for each in known)
    try:
        query = sql.parse_query(step.sql)
    except SqlInvalid as error:
        findings.append(Finding(str(error), (*path, "sql"), error.index))
        return ()
    for table, index in query.tables.items():
        if table not in names and table not in broken:
            message = f'no source or step "{table}"; {nearest(table, names.values())}'
            findings.append(Finding(message, (*path, "sql"), index))
    return query


def _ordered(inputs: dict[str, tuple[str, ...]], findings: list[Finding]) -> Iterator[str]:
    """Steps, each after those it reads; steps in a cycle are reported and omitted."""
    waiting = dict(inputs)
    while waiting:
        ready = [name for name, needed in waiting.items() if not any(each in waiting for each in needed)]
        if not ready:
            circle = _circle(waiting)
            message = f"steps go round in a circle: {' -> '.join([*circle, circle[0]])}"
            findings.append(Finding(message, ("steps", circle[0])))
            return
        for name in ready:
            del waiting[name]
            yield name


def _circle(waiting: dict[str, tuple[str, ...]]) -> list[str]:
    walked = [next(iter(waiting))]
    while True:
        following = next(each for each in waiting[walked[-1]] if each in waiting)
        if following in walked:
            return walked[walked.index(following) :]
        walked.append(following)


def _step(
    name: str,
    step: Step,
    inputs: dict[str, Table],
    query: sql.Query | None,
    whole: bool,
    rules: Rules,
    findings: list[Finding],
) -> Table:
    path: Path = ("steps", name)
    table = Table(name, path, tuple(inputs), "static", parsed=query)
    driving = [each for each in inputs.values() if each.drive != "static"]
    table.sources = frozenset().union(*(each.sources for each in driving))
    drives = {each.drive for each in driving}
    stateful = step.stateful or (query is not None and query.stateful)
    if len(drives) > 1:
        mixed = ", ".join(f"{each.name} ({each.drive})" for each in driving)
        findings.append(Finding(f'{mixed} cannot meet in one step; give the table "mode: lookup"', path))
    if drives:
        table.drive = driving[0].drive
        homes = {each.query for each in driving}
        table.begins_query = len(homes) > 1 or (stateful and table.drive == "stream")
        table.query = name if table.begins_query else homes.pop()
    if table.drive == "stream" and query is not None and query.sees_batch:
        message = f"over a stream, {query.sees_batch} would see the rows of one batch only; use a window in GROUP BY"
        findings.append(Finding(message, (*path, "sql"), 0))
    if table.drive == "incremental" and (stateful or len(table.sources) > 1):
        findings.append(Finding("an aggregate or join of an increment would see its new rows only", path))
    if step.output and not (table.begins_query and stateful):
        findings.append(Finding('"output" is for steps with state over a stream', (*path, "output")))
    table.loses_row = _loses_row(step, query, driving)
    table.multiplies = (query is None or query.multiplies) or any(each.multiplies for each in driving)
    table.stream_input = driving[0].name if len(driving) == 1 else ""
    if query is not None:
        found = {each.name.lower(): each for each in inputs.values()} if whole else {}
        _check_sql(table, query, found, rules, findings)
    return table


def _check_sql(table: Table, query: sql.Query, inputs: dict[str, Table], rules: Rules, findings: list[Finding]) -> None:
    """Also finds the columns of the step. Tables that are not among the inputs have columns that are not known."""
    path: Path = (*table.path, "sql")
    columns = {name: each.columns for name, each in inputs.items()}
    missing = list(sql.unknown_columns(query, columns))
    typed = {
        name: with_types(each.columns, each.types) if each.columns is not None and not each.repeated else None
        for name, each in inputs.items()
    }
    findings += [Finding(each.message, path, each.index, cause=f"column {each.name}") for each in missing]
    findings += [Finding(each.message, path, each.index) for each in sql_checks.complaints(query, typed, rules)]
    if missing and _selects(query, {each.name for each in missing}):
        return  # its columns would be wrong, and so would what is said of those that use them
    output = sql_checks.output_of(query, typed)
    if output is None:
        table.columns = sql.output_columns(query, columns)
        return
    table.columns, table.types = tuple(name for name, _ in output), dict(output)
    table.repeated = tuple(name for name, count in Counter(table.columns).items() if count > 1)


def _selects(query: sql.Query, names: set[str]) -> bool:
    """Whether one of the results has such a name, without AS."""
    return any(
        isinstance(each, exp.Column) and each.name.lower() in names
        for select in query.plain.find_all(exp.Select)
        for each in select.expressions
    )


def _loses_row(step: Step, query: sql.Query | None, driving: list[Table]) -> str:
    if len(driving) != 1:
        return "it reads several streams" if driving else "it reads no stream"
    if driving[0].loses_row:
        return f'"{driving[0].name}" does not: {driving[0].loses_row}'
    if query is not None:
        return "it has state" if step.stateful else query.loses_row
    return "" if step.keeps_source_row else 'it is a function without "keeps_source_row: true"'
