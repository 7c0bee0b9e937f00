"""Decides how the batches of a query are written: by Spark's plan alone, or with `foreachBatch`.

Most queries need no Python on the driver between two batches. If all tables of a query are computed row by row, and all
records go out in one write, the whole query is one plan, made once: each record becomes what it turns into (records for
all sinks, and its dead letter), and the streaming sink writes these. Everything else is written batch by batch, and
`reasons` says why. `penstock pipeline graph` prints it.

Of queries with `foreachBatch`, some only write in a way of their own: their rows are still planned once (*prepared*).
For others the plan itself depends on the batch: tables that are read anew, columns that are found in the records,
functions that see the batch as a whole.

This is decided from the file, without Spark. Spark's own plan may still be of another shape (a Python function with
`keeps_source_row` may do anything): then the runner says so, and plans batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from penstock.pipelines.check.analysis import Analysis
from penstock.pipelines.check.query_plan import QueryPlan, expectations
from penstock.pipelines.spec.model import FormatSink, Options, Pipeline, TopicSink, TopicSource

Way = Literal["streamed", "prepared", "batch by batch", "table"]
"""`table`: a run over a snapshot or an increment, which is not a streaming query."""


@dataclass(frozen=True, slots=True)
class TopicWrite:
    """Records that are written together, and so are one decision."""

    options: Options
    delivery: Literal["exactly-once", "at-least-once"]
    sinks: tuple[str, ...]

    @property
    def takes_dead_letters(self) -> bool:
        return self.delivery == "exactly-once" and not self.options

    @property
    def names(self) -> tuple[str, ...]:
        """What names its decision besides pipeline and query: the sinks, if they have options of their own. Changing
        this would write a batch again that was decided before."""
        return self.sinks if self.options else ()


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a query needs `foreachBatch`."""

    text: str
    is_of_plan: bool
    """The plan itself depends on the batch, and not only how the batch is written."""


@dataclass(frozen=True, slots=True)
class Route:
    way: Way
    reasons: tuple[Reason, ...]
    writes: tuple[TopicWrite, ...]

    def __str__(self) -> str:
        return {"table": "run by run", "streamed": "one plan"}.get(self.way, "foreachBatch")


def route(pipeline: Pipeline, analysis: Analysis, query: QueryPlan) -> Route:
    writes = topic_writes(pipeline, query)
    if query.drive != "stream":
        return Route("table", (), writes)
    reasons = (*_planning_reasons(pipeline, analysis, query), *_writing_reasons(pipeline, query, writes))
    if not reasons:
        return Route("streamed", (), writes)
    way: Way = "batch by batch" if any(reason.is_of_plan for reason in reasons) else "prepared"
    return Route(way, reasons, writes)


def topic_writes(pipeline: Pipeline, query: QueryPlan) -> tuple[TopicWrite, ...]:
    """The topic sinks of a query and its dead letters, grouped by the options and the delivery they share."""
    groups: dict[tuple[object, ...], tuple[Options, Literal["exactly-once", "at-least-once"], list[str]]] = {}
    for name in query.sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, TopicSink):
            key = (sink.delivery, *sorted(sink.options.items(), key=lambda each: each[0]))
            groups.setdefault(key, (sink.options, sink.delivery, []))[2].append(name)
    if query.dead_letters:
        groups.setdefault(("exactly-once",), ({}, "exactly-once", []))
    return tuple(TopicWrite(options, delivery, tuple(names)) for options, delivery, names in groups.values())


def uses_headers(pipeline: Pipeline, analysis: Analysis, query: QueryPlan) -> bool:
    """Whether the headers of its records are needed: they are named, or may carry the GUIDs of schemas, or dead letters
    contain the whole record. A Python function may use any column."""
    is_source = query.input in pipeline.sources
    sources = [pipeline.sources[name] for name in (query.input, *query.upstream) if name in pipeline.sources]
    if any(isinstance(each, TopicSource) and each.value.registry for each in sources):
        return True
    if is_source and (query.dead_letters or any(isinstance(pipeline.sinks[name], FormatSink) for name in query.sinks)):
        return True  # a server may refuse rows, which become dead letters
    names = (query.input, *query.upstream, *query.tables)
    steps = [pipeline.steps[name] for name in names if name in pipeline.steps]
    if any(not step.sql for step in steps):
        return True
    used = (steps, [pipeline.sinks[name] for name in query.sinks], [expectations(pipeline, name) for name in names])
    return "_headers" in repr(used).lower()


def _planning_reasons(pipeline: Pipeline, analysis: Analysis, query: QueryPlan) -> Iterator[Reason]:
    source = pipeline.sources.get(query.input)
    if isinstance(source, TopicSource) and source.evolution == "add-columns":
        yield Reason(f'"{query.input}" gets columns that appear in its records', is_of_plan=True)
    for name in query.tables:
        text = _not_per_row(pipeline, analysis, name)
        if text:
            yield Reason(text, is_of_plan=True)
    for name in (query.input, *query.tables):
        letters = any(each.otherwise == "dead-letter" for each in expectations(pipeline, name))
        if letters and analysis.tables[name].multiplies and name in pipeline.steps:
            yield Reason(f'"{name}" makes several rows of one record, and dead letters', is_of_plan=True)
    for name in query.sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, FormatSink):
            yield Reason(f'sink "{name}" is not a topic', is_of_plan=True)


def _not_per_row(pipeline: Pipeline, analysis: Analysis, name: str) -> str:
    """Why a table of the query does not make its rows from one row each; empty if it does."""
    table = analysis.tables[name]
    if table.drive == "static":
        return f'"{name}" is read anew for every batch' if name in pipeline.sources else ""
    step = pipeline.steps[name]
    if not step.sql:
        return "" if step.keeps_source_row else f'step "{name}" is a function without "keeps_source_row: true"'
    assert table.parsed is not None
    if table.parsed.loses_row:
        return f'step "{name}" is not done row by row: {table.parsed.loses_row}'
    if table.parsed.tree.find(exp.Join) is not None and all(
        analysis.tables[each].drive != "static" for each in table.inputs
    ):
        return f'step "{name}" joins'
    return ""


def _writing_reasons(pipeline: Pipeline, query: QueryPlan, writes: tuple[TopicWrite, ...]) -> Iterator[Reason]:
    if query.output_mode != "append":
        yield Reason(f'with output "{query.output_mode}" its rows are not final', is_of_plan=False)
    for write in writes[1:]:
        for name in write.sinks or writes[0].sinks:
            yield Reason(f'sink "{name}" has options or a delivery of its own', is_of_plan=False)
