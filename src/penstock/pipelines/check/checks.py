"""Checks a pipeline whose fields are valid for other errors: without Spark or brokers, in well under a second."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec

from penstock.client.access import is_setting_of_clients, parse_reference
from penstock.client.errors import ClientError
from penstock.pipelines.check import codecs, given_rows, sql_checks, stream_checks, written_rows
from penstock.pipelines.check.analysis import Analysis, Finding, Table, analyse, session_rules
from penstock.pipelines.check.column_types import with_types
from penstock.pipelines.check.query_plan import has_dead_letters, plan
from penstock.pipelines.spec import options, schemas, spark_sql, sql
from penstock.pipelines.spec.addresses import bootstrap_problem
from penstock.pipelines.spec.model import (
    Decoding,
    Encoding,
    Expectation,
    FormatSink,
    FormatSource,
    Pipeline,
    Sink,
    Source,
    Step,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.spec.problems import Path, nearest
from penstock.pipelines.spec.secrets import Secret
from penstock.pipelines.spec.sink_formats import ANY_FORMAT, GROUP, HISTORY, SINK_FORMATS, missing_package
from penstock.pipelines.spec.sql import Columns, SqlInvalid

FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "delta")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_READ_BY_JARS = ("delta",)
_JAR_FORMATS = (
    "avro",
    "iceberg",
    "kafka",
    "mongodb",
    "bigquery",
    "hudi",
    "cosmos.oltp",
    "deltasharing",
    "redshift",
    "neo4j",
)
"""Formats of well-known jars, which Spark may have in its own directory."""


def check(pipeline: Pipeline, directory: str = ".", broken: Iterable[str] = ()) -> list[Finding]:
    """All errors. `broken` are names whose fields are invalid; they get no further findings."""
    analysis = analyse(pipeline, directory, broken)
    return [*analysis.findings, *_Check(pipeline, analysis, directory, set(broken)).findings()]


class _Check:
    def __init__(self, pipeline: Pipeline, analysis: Analysis, directory: str, broken: set[str]) -> None:
        self._pipeline = pipeline
        self._analysis = analysis
        self._directory = directory
        self._broken = broken
        self._rules = session_rules(pipeline)
        self._has_jars = any(name.startswith("spark.jars") for name in pipeline.spark)

    def findings(self) -> Iterator[Finding]:
        pipeline = self._pipeline
        yield from self._names()
        for name, source in pipeline.sources.items():
            yield from self._source(source, ("sources", name))
            yield from self._expectations(name, source.expect, ("sources", name))
        for name, step in pipeline.steps.items():
            yield from self._step(step, ("steps", name))
            yield from self._expectations(name, step.expect, ("steps", name))
        for name, sink in pipeline.sinks.items():
            yield from self._sink(sink, ("sinks", name))
        yield from self._sharing()
        yield from self._queries()
        yield from _bootstrap(pipeline.bootstrap, ("bootstrap",))
        yield from _client(pipeline)
        yield from stream_checks.check_watermarks(pipeline, self._analysis)
        yield from given_rows.findings(pipeline, self._analysis, self._directory, self._broken)
        yield from self._unused()

    # -- Names.

    def _names(self) -> Iterator[Finding]:
        pipeline = self._pipeline
        if not _NAME.fullmatch(pipeline.name):
            message = (
                f'"{pipeline.name}" cannot be a name: letters, digits, ".", "_" and "-" only, as it is part of paths'
            )
            yield Finding(message, ("name",))
        for section, needed in (("sources", pipeline.sources), ("sinks", pipeline.sinks)):
            if not needed and not self._broken:
                yield Finding(f"a pipeline needs at least one of {section}", (section,))
        seen: dict[str, str] = {}
        for section, names in (("sources", pipeline.sources), ("steps", pipeline.steps)):
            for name in names:
                path: Path = (section, name)
                if not _IDENTIFIER.fullmatch(name) or name.startswith("__"):
                    message = f'"{name}" cannot be a table in SQL: letters, digits and "_" only, and no digit first'
                    yield Finding(message, path)
                if name.lower() in seen:
                    yield Finding(f'"{name}" is there already, in {seen[name.lower()]}; case makes no difference', path)
                seen.setdefault(name.lower(), section)
        for name in pipeline.sinks:
            if not _NAME.fullmatch(name):
                yield Finding(f'"{name}" cannot be a name: letters, digits, ".", "_" and "-" only', ("sinks", name))

    # -- Sources.

    def _source(self, source: Source, path: Path) -> Iterator[Finding]:
        if isinstance(source, TopicSource):
            yield from self._topic_source(source, path)
        else:
            yield from self._format_source(source, path)
        columns = self._analysis.tables[str(path[1])].columns
        if source.watermark is not None and columns is not None and source.watermark.column.lower() not in columns:
            hint = nearest(source.watermark.column, columns)
            yield Finding(f'no column "{source.watermark.column}"; {hint}', (*path, "watermark", "column"))

    def _topic_source(self, source: TopicSource, path: Path) -> Iterator[Finding]:
        if bool(source.topic) == bool(source.topic_pattern):
            yield Finding('a topic source has either "topic" or "topic_pattern"', path)
        for topic in source.topic:
            yield from _topic(topic, (*path, "topic"))
        if source.topic_pattern:
            try:
                re.compile(source.topic_pattern)
            except re.error as error:
                yield Finding(f"not a regular expression: {error}", (*path, "topic_pattern"), error.pos)
        yield from self._schema(source.value, (*path, "value"))
        evolves = source.value.format == "json" or (source.value.format == "avro" and bool(source.value.registry))
        if source.evolution != "ignore" and not evolves:
            message = f'"evolution" is for json, and avro with a registry, not {source.value.format}'
            yield Finding(message, (*path, "evolution"))
        elif (
            source.evolution == "add-columns" and source.value.registry and not schemas.registered_columns(source.value)
        ) and source.value.format == "avro":
            message = "the registry says which columns there are; remove the schema, or add-columns"
            yield Finding(message, (*path, "evolution"))
        yield from _offsets(source.starting_offsets, (*path, "starting_offsets"))
        if source.bootstrap:
            yield from _bootstrap(source.bootstrap, (*path, "bootstrap"))
        yield from _options(source.options, options.TOPIC_SOURCE, "a topic source", path)
        if source.value.format == "json":
            declared = options.format_options("json", reads=True)
            yield from _options(source.value.options, declared, "JSON", (*path, "value"))
        if source.max_records is not None and source.max_records < 1:
            yield Finding("at least one record is needed in a batch", (*path, "max_records"))

    def _format_source(self, source: FormatSource, path: Path) -> Iterator[Finding]:
        if source.format == "penstock":
            yield Finding('for topics write "topic: ..." instead of "format: penstock"', (*path, "format"))
        else:
            yield from self._format(source.format, _READ_BY_JARS, (*path, "format"))
        declared = options.format_options(source.format, reads=True)
        yield from _options(source.options, declared, source.format, path)
        if (source.mode == "incremental") != bool(source.cursor):
            where = "cursor" if source.cursor else "mode"
            yield Finding('"cursor" and "mode: incremental" need each other', (*path, where))
        if source.watermark is not None and source.mode != "stream":
            yield Finding('a watermark is for "mode: stream"', (*path, "watermark"))
        if source.format in FILE_FORMATS:
            if not source.path:
                yield Finding(f'{source.format} needs a "path"', path)
            if source.mode == "stream" and not source.schema and source.format != "text":
                yield Finding(f'a stream of {source.format} files needs a "schema": id BIGINT, at TIMESTAMP, ...', path)
        if source.schema:
            try:
                sql.parse_columns(source.schema)
            except SqlInvalid as error:
                yield Finding(str(error), (*path, "schema"), error.index)
        columns = self._analysis.tables[str(path[1])].columns
        if source.cursor and columns is not None and source.cursor.lower() not in columns:
            yield Finding(f'no column "{source.cursor}"; {nearest(source.cursor, columns)}', (*path, "cursor"))

    def _schema(self, coding: Decoding | Encoding, path: Path) -> Iterator[Finding]:
        try:
            schemas.check(coding, self._directory)
            if coding.format in ("avro", "protobuf"):
                codecs.codec(coding, self._directory).spark_type()
        except schemas.SchemaInvalid as error:
            yield Finding(str(error), (*path, error.where) if error.where else path, error.index)

    # -- Steps.

    def _step(self, step: Step, path: Path) -> Iterator[Finding]:
        if bool(step.sql) == bool(step.python):
            yield Finding('a step has either "sql" or "python"', path)
            return
        if step.sql:
            if step.source:
                yield Finding('"from" is for python; SQL names its tables itself', (*path, "from"))
            if step.keeps_source_row:
                yield Finding('"keeps_source_row" is for python; of SQL it is seen', (*path, "keeps_source_row"))
            return
        if not step.source:
            yield Finding('a python step needs "from": the tables it is given', path)
        if isinstance(step.python, str):
            yield from self._function(step.python, (*path, "python"))

    def _function(self, reference: str, path: Path) -> Iterator[Finding]:
        """Reads the module without importing it: a check executes no user code."""
        if not _FUNCTION.fullmatch(reference):
            yield Finding(f'"{reference}" is not a function; write module:function', path)
            return
        module, _, function = reference.partition(":")
        file = os.path.join(self._directory, *module.split(".")) + ".py"
        if not os.path.exists(file):
            if find_spec(module.partition(".")[0]) is None:
                yield Finding(f'no module "{module}", neither beside this file nor installed', path)
            return
        try:
            with open(file, encoding="utf-8") as opened:
                tree = ast.parse(opened.read())
        except SyntaxError as error:
            yield Finding(f"{os.path.basename(file)}:{error.lineno}: {error.msg}", path)
            return
        names = {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
        assigned = {name.id for each in tree.body for name in ast.walk(each) if isinstance(name, ast.Name)}
        imported = {
            alias.asname or alias.name
            for each in tree.body
            if isinstance(each, (ast.Import, ast.ImportFrom))
            for alias in each.names
        }
        if function not in names | assigned | imported:
            yield Finding(f'{os.path.basename(file)} has no function "{function}"; {nearest(function, names)}', path)

    def _expectations(self, name: str, expected: tuple[Expectation, ...], path: Path) -> Iterator[Finding]:
        table = self._analysis.tables.get(name)
        for index, expectation in enumerate(expected):
            place: Path = (*path, "expect", index)
            yield from self._expression(expectation.that, table, (*place, "that"))
            if table is None or expectation.otherwise != "dead-letter" or not table.loses_row:
                continue
            if table.parsed is not None and len(table.parsed.tables) > len(table.inputs):
                continue  # an input is unknown, which is reported already
            way_out = 'put the expectation on an earlier step, or say "otherwise: drop"'
            message = f"rows of this table cannot become dead letters: {table.loses_row}; {way_out}"
            where: Path = (*place, "otherwise") if table.drive != "static" else place
            yield Finding(message, where)

    def _expression(self, text: str, table: Table | None, path: Path) -> Iterator[Finding]:
        try:
            expression = sql.check_expression(text)
        except SqlInvalid as error:
            yield Finding(str(error), path, error.index)
            return
        columns = table.columns if table is not None else None
        for complaint in sql.unknown_in_expression(expression, columns):
            yield Finding(complaint.message, path, complaint.index, cause=f"column {complaint.name}")
        typed = with_types(columns, table.types) if columns is not None and table is not None else None
        for complaint in sql_checks.expression_complaints(text, expression, typed, self._rules):
            yield Finding(complaint.message, path, complaint.index)

    # -- Sinks.

    def _sink(self, sink: Sink, path: Path) -> Iterator[Finding]:
        table = self._analysis.find(sink.source)
        if table is None:
            known = [*self._pipeline.sources, *self._pipeline.steps]
            if sink.source.lower() not in {each.lower() for each in [*known, *self._broken]}:
                yield Finding(f'no source or step "{sink.source}"; {nearest(sink.source, known)}', (*path, "from"))
        elif table.drive == "static" and not self._analysis.findings:
            yield Finding(f'"{sink.source}" has lookups only; give a source "mode: snapshot"', (*path, "from"))
        if isinstance(sink, TopicSink):
            yield from self._topic_sink(sink, table, path)
        else:
            yield from self._format_sink(sink, table, path)

    def _topic_sink(self, sink: TopicSink, table: Table | None, path: Path) -> Iterator[Finding]:
        if bool(sink.topic) == bool(sink.topic_expression):
            yield Finding('a topic sink has either "topic" or "topic_expression"', path)
        if sink.topic:
            yield from _topic(sink.topic, (*path, "topic"))
        texts: list[tuple[str, Path]] = [
            (sink.topic_expression, (*path, "topic_expression")),
            (sink.key, (*path, "key")),
            (sink.value.column, (*path, "value", "column")),
            *((text, (*path, "headers", name)) for name, text in sink.headers.items()),
        ]
        for text, place in texts:
            if text:
                yield from self._expression(text, table, place)
        needs_column = sink.value.format in ("string", "bytes")
        if needs_column != bool(sink.value.column):
            message = f'{sink.value.format} {"needs" if needs_column else "has no"} "column"; json takes all columns'
            yield Finding(message, (*path, "value"))
        yield from self._schema(sink.value, (*path, "value"))
        yield from _options(sink.options, options.TOPIC_SINK, "a topic sink", path)
        if table is not None:
            yield from _repeated(table, (), (*path, "from"))

    def _format_sink(self, sink: FormatSink, table: Table | None, path: Path) -> Iterator[Finding]:
        if sink.format in ("penstock", "kafka"):
            yield Finding(f'for topics write "topic: ..." instead of "format: {sink.format}"', (*path, "format"))
        else:
            yield from self._format(sink.format, tuple(SINK_FORMATS), (*path, "format"))
        yield from _fields_of_kind(sink, path)
        declared = SINK_FORMATS.get(sink.format, ANY_FORMAT).options or options.format_options(sink.format, reads=False)
        if not entry_points(group=GROUP, name=sink.format):
            yield from _options(sink.options, declared, sink.format, path)
        if table is not None:
            yield from _records_of_rows(sink, table, path)
            yield from _repeated(table, sink.columns, (*path, "from"))
        known: Columns = table.columns if table is not None else None
        if table is not None and sink.history:
            yield from _history_columns(sink, table, path)
        for field, names in (("partition_by", sink.partition_by), ("columns", sink.columns), ("key", sink.key)):
            for index, name in enumerate(names):
                if known is not None and name.lower() not in known:
                    message = f'no column "{name}"; {nearest(name, known)}'
                    yield Finding(message, (*path, field, index), cause=f"column {name.lower()}")

    def _format(self, name: str, ours: tuple[str, ...], path: Path) -> Iterator[Finding]:
        """A format that nothing here has. Formats of jars are known by their classes, or by the jars in `spark`."""
        lowered = {each.lower() for each in (*ours, *spark_sql.formats(), *_JAR_FORMATS)}
        if name.lower() in lowered or "." in name or self._has_jars or entry_points(group=GROUP, name=name):
            return
        if name.isidentifier() and find_spec(f"pyspark_{name}") is not None:
            return  # a format in Python, which Spark finds by this name
        hint = nearest(name, [*ours, *spark_sql.formats()])
        way_out = (
            hint if hint.startswith("did you mean") else "if it is in a jar, name the jar in spark: {spark.jars: ...}"
        )
        yield Finding(f'neither Penstock nor Spark has a format "{name}"; {way_out}', path)

    def _sharing(self) -> Iterator[Finding]:
        paths: dict[str, str] = {}
        for name, sink in self._pipeline.sinks.items():
            if isinstance(sink, FormatSink) and sink.path:
                if sink.path in paths:
                    message = f'sink "{paths[sink.path]}" writes to this path, too; each needs its own'
                    yield Finding(message, ("sinks", name, "path"))
                paths.setdefault(sink.path, name)

    # -- The whole pipeline.

    def _queries(self) -> Iterator[Finding]:
        if self._broken or self._analysis.findings:
            return
        queries = plan(self._pipeline, self._analysis)
        yield from stream_checks.check_queries(self._pipeline, self._analysis, queries)
        yield from written_rows.findings(self._pipeline, queries)
        for name, settings in self._pipeline.queries.items():
            if name not in queries:
                yield Finding(f'no query "{name}"; {nearest(name, queries)}', ("queries", name))
            for index, other in enumerate(settings.after):
                if other not in queries or other == name:
                    yield Finding(
                        f'no other query "{other}"; {nearest(other, queries)}', ("queries", name, "after", index)
                    )
        for name, source in self._pipeline.sources.items():
            if isinstance(source, TopicSource) and source.evolution == "add-columns" and name not in queries:
                message = f'only steps with state read "{name}", and they see the columns of its schema only'
                yield Finding(message, ("sources", name, "evolution"), severity="warning")
        done: list[str] = []
        for query in queries.values():
            waits = [other for other in query.after if other in queries and other not in done]
            if waits:
                message = f'query "{query.name}" waits for {", ".join(waits)}, which waits for it; --once will not end'
                yield Finding(message, ("queries", query.name), severity="warning")
            done.append(query.name)

    def _unused(self) -> Iterator[Finding]:
        used: set[str] = set()
        for sink in self._pipeline.sinks.values():
            table = self._analysis.find(sink.source)
            used.update(self._analysis.upstream(table.name) if table is not None else ())
        for table in self._analysis.tables.values():
            if has_dead_letters(self._pipeline, table) and table.name in self._pipeline.steps:
                continue
            if table.name not in used and not self._broken and not self._analysis.findings:
                yield Finding(f'nothing reads "{table.name}"', table.path, severity="warning")


def _fields_of_kind(sink: FormatSink, path: Path) -> Iterator[Finding]:
    """The fields that a known format requires and accepts; other formats are not checked."""
    kind = SINK_FORMATS.get(sink.format)
    if kind is None:
        return
    for field in kind.needs:
        if not getattr(sink, field):
            yield Finding(f'{sink.format} needs a "{field}"', path)
    of_some = (
        "path",
        "partition_by",
        "table",
        "key",
        "history",
        "history_time",
        "on_error",
        "roll_bytes",
        "roll_every",
    )
    for field in of_some:
        if getattr(sink, field) and field not in kind.takes:
            yield Finding(f'"{field}" has no meaning for {sink.format}', (*path, field))
    if "history" in kind.takes:
        yield from _history(sink, path)
    if missing := missing_package(sink.format):
        yield Finding(missing, (*path, "format"))
    if sink.roll_bytes is not None and sink.roll_bytes < 1:
        yield Finding("files cannot be smaller than a byte", (*path, "roll_bytes"))
    for index, name in enumerate(sink.key):
        if sink.columns and name not in sink.columns:
            yield Finding(f'"{name}" is not among the columns that are written', (*path, "key", index))


def _history(sink: FormatSink, path: Path) -> Iterator[Finding]:
    if sink.history and not sink.key:
        yield Finding('"history" needs a "key": which rows are versions of the same', (*path, "history"))
    if sink.history_time and not sink.history:
        yield Finding('"history_time" needs "history: true"', (*path, "history_time"))
    if sink.history and sink.on_error in ("drop", "dead-letter"):
        yield Finding('with "history" a refused row fails the batch; leave out "on_error"', (*path, "on_error"))
    if sink.history_time and sink.columns and sink.history_time not in sink.columns:
        yield Finding(f'"{sink.history_time}" is not among the columns that are written', (*path, "history_time"))


def _history_columns(sink: FormatSink, table: Table, path: Path) -> Iterator[Finding]:
    if table.columns is None:
        return
    if sink.history_time and sink.history_time.lower() not in table.columns:
        hint = nearest(sink.history_time, table.columns)
        yield Finding(f'no column "{sink.history_time}"; {hint}', (*path, "history_time"))
    for name in HISTORY:
        if name in table.columns and (not sink.columns or name in sink.columns):
            yield Finding(f'"history" makes a column "{name}", and rows have one; rename it', (*path, "history"))


def _records_of_rows(sink: FormatSink, table: Table, path: Path) -> Iterator[Finding]:
    """Some features need rows that can name the record they come from."""
    why = table.loses_row or ("" if table.drive == "stream" else "they are read from a table")
    if sink.on_error == "dead-letter" and why:
        yield Finding(f"rows of this table cannot become dead letters: {why}; choose another", (*path, "on_error"))
    kind = SINK_FORMATS.get(sink.format)
    if kind is not None and kind.origin_or_key and not sink.key:
        why = why or ("a record can make several" if table.multiplies else "")
        if why:
            yield Finding(
                f'the records of this table do not identify its rows: {why}; name columns that do in "key"', path
            )


def _options(
    given: Mapping[str, str | Secret], declared: options.Declared | None, what: str, path: Path
) -> Iterator[Finding]:
    if declared is None:
        return
    files = declared is not options.TOPIC_SOURCE and declared is not options.TOPIC_SINK
    checked = {
        name: value
        for name, value in given.items()
        if not name.lower().startswith(options.SECURITY_PREFIXES) and not (files and "." in name)
    }
    for name, message in declared.problems(checked, what):
        unknown = message.startswith("no option")
        yield Finding(message, (*path, "options", name) if name else path, at_key=unknown)
    servers = given.get("kafka.bootstrap.servers")
    if isinstance(servers, str) and not files:
        yield from _bootstrap(servers, (*path, "options", "kafka.bootstrap.servers"))


def _bootstrap(text: str, path: Path) -> Iterator[Finding]:
    problem = bootstrap_problem(text)
    if problem is not None:
        yield Finding(problem[0], path, problem[1])


def _client(pipeline: Pipeline) -> Iterator[Finding]:
    try:
        parse_reference(pipeline.cluster)
        for name in pipeline.client:
            if not is_setting_of_clients(name):
                yield Finding(f"clients have no security setting {name}", ("client", name), at_key=True)
    except ClientError as error:
        yield Finding(str(error), ("client",) if pipeline.client else ("bootstrap",))


def _repeated(table: Table, chosen: tuple[str, ...], path: Path) -> Iterator[Finding]:
    for name in table.repeated:
        if not chosen or name in map(str.lower, chosen):
            yield Finding(f'"{table.name}" has several columns "{name}"; rename all but one with AS', path)


def _topic(name: str, path: Path) -> Iterator[Finding]:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        yield Finding(f'"{name}" cannot be a topic: letters, digits, ".", "_" and "-" only, at most 249', path)


def _offsets(text: str, path: Path) -> Iterator[Finding]:
    if text in ("earliest", "latest"):
        return
    problem = f'"{text}" is not earliest, latest, or JSON such as {{"orders": {{"0": 23}}}}'
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError:
        yield Finding(problem, path)
        return
    by_topic: Callable[[object], bool] = lambda value: isinstance(value, dict) and bool(value)  # noqa: E731
    if not by_topic(parsed) or not all(map(by_topic, parsed.values())):
        yield Finding(problem, path)
