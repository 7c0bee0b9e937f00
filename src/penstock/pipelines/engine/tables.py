"""Computes the tables of a pipeline as Spark DataFrames.

**Dead letters travel with the rows.** Every row of a table that keeps the source row has a hidden column, `__source`:
the original record it comes from. `spec.sql.carrying` inserts it before the FROM of the user's SQL; steps that cannot
carry it cannot have dead letters. A row that breaks an expectation is reported with this record. Users' SQL sees
sources and steps as views of a session that belongs to the query, so queries do not see each other's views.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.pipelines.check.analysis import Analysis, Table
from penstock.pipelines.check.query_plan import expectations
from penstock.pipelines.engine.decoding import ERROR, decoded, kinds_of_errors
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.spec import sql
from penstock.pipelines.spec.model import Expectation, FormatSource, Pipeline, Step, TopicSource
from penstock.pipelines.spec.paths import resolve
from penstock.pipelines.spec.problems import PipelineFailed, StepFailed
from penstock.pipelines.spec.secrets import plain
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASON, FIELD, KIND = "reason", "field", "kind"
_HIDDEN = (SOURCE_ROW, ERROR)


@dataclass(slots=True)
class DeadRows:
    """Rows that were removed on the way: the record each comes from, the reason, the fields that it is about, and its
    kind."""

    table: str
    frame: DataFrame
    multiplied: bool
    """Several rows of one record may be here."""
    kinds: tuple[str, ...]
    """All kinds of reasons that it can have."""


@dataclass(slots=True)
class Tables:
    """Computes tables in order, each once, from the rows of a query's input."""

    session: SparkSession
    pipeline: Pipeline
    analysis: Analysis
    directory: str
    makes_dead_letters: bool
    """Whether to produce dead letters (of a query's tables) or only to omit the rows (on the way to its input)."""
    frames: dict[str, DataFrame] = field(default_factory=dict)
    dead: list[DeadRows] = field(default_factory=list)
    violations: list[tuple[str, Expectation]] = field(default_factory=list)
    """Expectations whose broken rows are kept and counted, with their tables."""

    def add_source(self, name: str, raw: DataFrame) -> None:
        """`raw`: records as the source of topics gives them, or rows of another source."""
        source = self.pipeline.sources[name]
        frame = raw
        if isinstance(source, TopicSource):
            frame = decoded(raw, source, self.directory)
            frame = self._decode_errors(name, source, frame)
            frame = frame if self.makes_dead_letters else frame.drop(SOURCE_ROW)
        elif self.makes_dead_letters and self.analysis.tables[name].drive == "stream":
            frame = _with_row_as_record(raw)
        self._finish(name, frame)

    def add_input(self, name: str, frame: DataFrame) -> None:
        """The rows of a step that a query begins with."""
        self._finish(name, frame)

    def add(self, names: Iterable[str]) -> None:
        """Steps, in order."""
        for name in names:
            self._finish(name, self._step(self.analysis.tables[name]))

    def step(self, name: str) -> DataFrame:
        """The rows of a step whose inputs are computed, before its own expectations."""
        return self._step(self.analysis.tables[name])

    def broken(self, name: str, expectation: Expectation) -> DataFrame:
        """The rows of a table that break an expectation."""
        return self.frames[name].filter(~_holds(expectation))

    def with_records(self, name: str) -> DataFrame:
        """The table as sinks see it, and the record that each row comes from, if it has one."""
        return self.frames[name].drop(ERROR)

    def shown(self, name: str) -> DataFrame:
        """The table as sinks see it: without hidden columns."""
        return self.frames[name].drop(*_HIDDEN)

    # -- Inside.

    def _finish(self, name: str, frame: DataFrame) -> None:
        for expectation in expectations(self.pipeline, name):
            frame = self._expect(name, frame, expectation)
        self.frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _step(self, table: Table) -> DataFrame:
        step = self.pipeline.steps[table.name]
        function = None
        if not step.sql:
            function = step.python if callable(step.python) else function_named(step.python, self.directory)
        try:
            return self._planned(table, step, function)
        except PipelineFailed:
            raise
        except Exception as error:
            raise StepFailed(f'step "{table.name}": {_error_text(error, function)}') from error

    def _planned(self, table: Table, step: Step, function: Callable[..., Any] | None) -> DataFrame:
        if function is not None:
            made: DataFrame = function(*(self.frames[each] for each in table.inputs))
            if not hasattr(made, "createOrReplaceTempView"):
                kind = type(made).__name__
                raise PipelineFailed(f'step "{table.name}": {step.python} returned a {kind}, not a DataFrame')
            if step.keeps_source_row and self._carries(table) and SOURCE_ROW not in made.columns:
                raise PipelineFailed(f'step "{table.name}": {step.python} dropped the column {SOURCE_ROW}; keep it')
            return made
        assert table.parsed is not None
        text = sql.carrying(table.parsed, table.stream_input) if self._carries(table) else step.sql
        return self.session.sql(text)

    def _carries(self, table: Table) -> bool:
        return not table.loses_row and SOURCE_ROW in self.frames[table.stream_input].columns

    def _decode_errors(self, name: str, source: TopicSource, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        if ERROR not in frame.columns:
            return frame
        if source.on_error == "fail":
            where = f.format_string("%s-%d at offset %d", f.col("_topic"), f.col("_partition"), f.col("_offset"))
            message = f.concat(f.lit(f'source "{name}": '), where, f.lit(": "), f.col(ERROR)["reason"])
            return frame.filter(f.when(f.col(ERROR).isNull(), True).otherwise(f.raise_error(message).cast("boolean")))
        if source.on_error == "dead-letter" and self.makes_dead_letters:
            error = f.col(ERROR)
            details = [error["reason"].alias(REASON), error["field"].alias(FIELD), error["kind"].alias(KIND)]
            bad = frame.filter(error.isNotNull()).select(SOURCE_ROW, *details)
            self.dead.append(DeadRows(name, bad, multiplied=False, kinds=kinds_of_errors(source)))
        return frame.filter(f.col(ERROR).isNull()).drop(ERROR)

    def _expect(self, name: str, frame: DataFrame, expectation: Expectation) -> DataFrame:
        from pyspark.sql import functions as f

        holds = _holds(expectation)
        message = f'"{name}" expects {expectation.title}'
        if expectation.otherwise == "keep":
            self.violations.append((name, expectation))
            return frame
        if expectation.otherwise == "fail":
            return frame.filter(f.when(holds, True).otherwise(f.raise_error(f.lit(message)).cast("boolean")))
        if expectation.otherwise == "dead-letter" and self.makes_dead_letters:
            fields = ", ".join(sql.columns_in(expectation.that))
            details = [f.lit(message).alias(REASON), f.lit(fields or None).cast("string").alias(FIELD)]
            bad = frame.filter(~holds).select(SOURCE_ROW, *details, f.lit(message).alias(KIND))
            self.dead.append(DeadRows(name, bad, self.analysis.tables[name].multiplies, kinds=(message,)))
        return frame.filter(holds)


def _holds(expectation: Expectation) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.expr(f"CAST(({expectation.that}) AS BOOLEAN)"), f.lit(False))


def read_table(session: SparkSession, source: FormatSource, directory: str) -> DataFrame:
    reader = session.read.format(source.format).options(**plain(source.options))
    if source.schema:
        reader = reader.schema(source.schema)
    return reader.load(resolve(source.path, directory)) if source.path else reader.load()


def function_named(reference: str, directory: str) -> Callable[..., Any]:
    """`module:function`, installed or beside the pipeline's file."""
    module, _, name = reference.partition(":")
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        home = importlib.import_module(module)
        found = getattr(home, name)
    except (ImportError, AttributeError) as error:
        raise PipelineFailed(f"{reference}: {error}") from error
    if not callable(found):
        raise PipelineFailed(f"{reference} is not a function")
    if os.path.dirname(os.path.abspath(home.__file__ or "")) == os.path.abspath(directory):
        _send_to_workers(home)
    return found  # type: ignore[no-any-return]


def _error_text(error: Exception, function: Callable[..., Any] | None) -> str:
    """What Spark says of the SQL; or the exception of the function, with its innermost line in the function's file."""
    from pyspark.errors import PySparkException

    message = message_of(error)
    if not isinstance(error, PySparkException):
        message = f"{type(error).__name__}: {error}".replace("\n", " ").removesuffix(": ")
    code = getattr(function, "__code__", None)
    frames = extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if code is not None and each.filename == code.co_filename]
    return f"{message} ({os.path.basename(code.co_filename)}, line {lines[-1]})" if code and lines else message


def _send_to_workers(module: ModuleType) -> None:
    """Spark's workers cannot import a module that is only beside the pipeline's file. So its functions and classes,
    such as UDFs and processors with state, are sent to them whole, and not by name."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)


def _with_row_as_record(raw: DataFrame) -> DataFrame:
    """Rows of files and the like have no record; their dead letters are JSON."""
    from pyspark.sql import functions as f

    record = f.struct(
        f.lit(None).cast("binary").alias("key"),
        f.to_json(f.struct("*")).cast("binary").alias("value"),
        f.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        f.lit(None).cast("string").alias("topic"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        f.lit(None).cast("timestamp").alias("timestamp"),
    )
    return raw.withColumn(SOURCE_ROW, record)
