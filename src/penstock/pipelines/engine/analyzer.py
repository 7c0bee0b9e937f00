"""`validate --analyze`: checks that only Spark can do.

Spark plans every table over streams that have the right columns and no rows, so no broker is needed. Then every query
is started, and ends at once. What is to be one plan is planned as one. Lookups and other tables without a `schema` are
opened, because their columns are not known otherwise.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.pipelines.check.analysis import Analysis, Finding, analyse
from penstock.pipelines.check.query_plan import QueryPlan, plan
from penstock.pipelines.check.routes import route
from penstock.pipelines.engine.batch import BatchPlan
from penstock.pipelines.engine.encoding import records
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.engine.fixtures import RECORDS
from penstock.pipelines.engine.one_scan import NotOnePlan
from penstock.pipelines.engine.prepared import prepare
from penstock.pipelines.engine.query_input import Sources, query_input
from penstock.pipelines.engine.sink_rows import selected
from penstock.pipelines.engine.tables import Tables
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import FormatSource, Pipeline, TopicSink, TopicSource
from penstock.pipelines.spec.problems import Path, PipelineFailed, Problem, in_order

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

_STATE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+)?;?\s*$")


@dataclass(slots=True)
class Analysed:
    problems: list[Problem] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    """The columns of every table, as in CREATE TABLE."""
    not_one_plan: dict[str, str] = field(default_factory=dict)
    """The queries for which Spark's plan has another shape than their file lets expect, and why: they are planned batch
    by batch."""


def analyze(loaded: Loaded, session: SparkSession) -> Analysed:
    """Of a pipeline that is valid."""
    analysis = analyse(loaded.pipeline, loaded.directory)
    with tempfile.TemporaryDirectory(prefix="penstock-analyze-") as place:
        sources = _WithoutRows(loaded.pipeline, loaded.directory, place)
        planned = _Planned(loaded.pipeline, analysis, loaded.directory, session.newSession(), sources)
        findings = [*planned.findings()]
        queries = plan(loaded.pipeline, analysis).values()
        for query in queries:
            if planned.frames.keys() >= {query.input, *query.upstream}:
                findings += _started(query, loaded, analysis, session.newSession(), sources, place)
        reasons = {} if findings else _not_one_plan(queries, loaded, analysis, session, sources)
    types = {name: _columns(frame) for name, frame in planned.frames.items()}
    problems = (
        Problem(each.message, each.path, loaded.places.find(each.path, each.index), loaded.file) for each in findings
    )
    return Analysed(in_order(problems), types, reasons)


class _WithoutRows(Sources):
    def __init__(self, pipeline: Pipeline, directory: str, place: str) -> None:
        super().__init__(pipeline, directory, "")
        self._empty = os.path.join(place, "empty")
        os.makedirs(self._empty)

    def stream(self, session: SparkSession, name: str, *, headers: bool = True) -> DataFrame:
        source = self._pipeline.sources[name]
        if isinstance(source, TopicSource):
            return session.readStream.schema(RECORDS).parquet(self._empty)
        if source.schema:
            return session.readStream.schema(source.schema).json(self._empty)
        return super().stream(session, name)

    def table(self, session: SparkSession, name: str) -> DataFrame:
        source = self._pipeline.sources[name]
        if isinstance(source, FormatSource) and source.schema:
            return session.createDataFrame([], source.schema)
        return super().table(session, name)


class _Planned:
    """Plans all tables of a pipeline, one after the other, in one session; skips tables made of one that failed."""

    def __init__(
        self, pipeline: Pipeline, analysis: Analysis, directory: str, session: SparkSession, sources: Sources
    ) -> None:
        self._pipeline = pipeline
        self._analysis = analysis
        self._directory = directory
        self._session = session
        self._sources = sources
        self._tables = Tables(session, pipeline, analysis, directory, makes_dead_letters=False)

    @property
    def frames(self) -> dict[str, DataFrame]:
        return self._tables.frames

    def findings(self) -> Iterator[Finding]:
        from pyspark.errors import PySparkException

        for name, table in self._analysis.tables.items():
            if not self.frames.keys() >= set(table.inputs):
                continue
            try:
                self._plan(name)
            except PySparkException as error:
                yield _finding(error, table.path)
            except PipelineFailed as error:
                cause = error.__cause__
                sql = name in self._pipeline.steps and bool(self._pipeline.steps[name].sql)
                if sql and isinstance(cause, PySparkException):
                    yield _finding(cause, (*table.path, "sql"))
                else:
                    yield Finding(str(error), table.path)
        for name, sink in self._pipeline.sinks.items():
            found = self._analysis.find(sink.source)
            if found is None or found.name not in self.frames:
                continue
            rows = self._tables.shown(found.name)
            try:
                if isinstance(sink, TopicSink):
                    records(rows, sink, self._directory)
                else:
                    selected(rows, sink)
            except PySparkException as error:
                yield _finding(error, ("sinks", name))

    def _plan(self, name: str) -> None:
        source = self._pipeline.sources.get(name)
        if source is None:
            self._tables.add([name])
        elif self._analysis.tables[name].drive != "stream":
            self._tables.add_source(name, self._sources.table(self._session, name))
        else:
            self._tables.add_source(name, self._sources.stream(self._session, name))
            if source.watermark is not None:
                frame = self.frames[name].withWatermark(source.watermark.column, source.watermark.delay.spark)
                self.frames[name] = frame
                frame.createOrReplaceTempView(name)


def _started(
    query: QueryPlan, loaded: Loaded, analysis: Analysis, session: SparkSession, sources: Sources, place: str
) -> Iterable[Finding]:
    """Spark reports what streams cannot do only when a query starts."""
    from pyspark.errors import PySparkException

    if query.drive != "stream" or query.input not in loaded.pipeline.steps:
        return
    try:
        frame = query_input(session, loaded.pipeline, analysis, query, loaded.directory, sources)
        checkpoint = os.path.join(place, "checkpoints", query.name)
        starting = frame.writeStream.format("noop").outputMode(query.output_mode)
        starting.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    except PySparkException as error:
        yield _finding(error, ("steps", query.input))
    except PipelineFailed as error:
        yield Finding(str(error), ("steps", query.input))


def _not_one_plan(
    queries: Iterable[QueryPlan], loaded: Loaded, analysis: Analysis, session: SparkSession, sources: Sources
) -> dict[str, str]:
    pipeline, directory = loaded.pipeline, loaded.directory
    reasons = {}
    for query in queries:
        if route(pipeline, analysis, query).way not in ("streamed", "prepared"):
            continue
        head = query_input(session.newSession(), pipeline, analysis, query, directory, sources)
        try:
            prepare(BatchPlan(pipeline, analysis, query, directory, sources), pipeline, query, head)
        except NotOnePlan as error:
            reasons[query.name] = str(error)
    return reasons


def _finding(error: PySparkException, path: Path) -> Finding:
    """The first line of Spark's message, and its position in the SQL."""
    message = _STATE.sub("", message_of(error)).rstrip(";. ")
    index: int | None = None
    if path[-1] == "sql":
        contexts = error.getQueryContext()
        index = contexts[0].startIndex() if contexts else 0
    return Finding(message, path, index)


def _columns(frame: DataFrame) -> str:
    return ", ".join(f"{each.name} {each.dataType.simpleString().upper()}" for each in frame.schema.fields)
