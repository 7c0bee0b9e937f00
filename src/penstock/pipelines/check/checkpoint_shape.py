"""Describes what a checkpoint depends on, as text: the sources of a query, and what its state is made of.

`run` stores the description beside the checkpoint; `checkpoint_edits` compares it with the query's present form. It
needs no Spark.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from penstock.pipelines.check.analysis import Analysis, Table
from penstock.pipelines.check.query_plan import QueryPlan, expectations
from penstock.pipelines.spec import schemas, sql
from penstock.pipelines.spec.model import FormatSource, Pipeline, Sink, Source, TopicSink

VERSION = 1
NOTE = "shape.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShape:
    kind: str
    """`topics`, or mode and format."""
    place: tuple[str, ...]
    """Topics, a pattern, or a path."""
    bootstrap: str = ""
    decoding: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    """Their types, if they are declared."""
    watermark_column: str = ""
    watermark_delay: str = ""
    cursor: str = ""
    expect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    text: str
    """SQL without insignificant spaces and comments, or the name of a function."""
    state: tuple[str, ...] = ()
    """What its state is made of, in order; empty if it has none."""
    columns: dict[str, str] | None = None
    """For a single SELECT: the expression of each column. None if it is unknown."""
    frame: str = ""
    """For a single SELECT: everything except its columns and conditions."""
    expect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryShape:
    drive: str
    sources: dict[str, SourceShape]
    """The sources that drive it, in the order in which it reads them: Spark identifies them by that order."""
    lookups: dict[str, SourceShape] = field(default_factory=dict)
    streamed: dict[str, StepShape] = field(default_factory=dict)
    """Steps computed in the stream, in order; the last one has state, or joins streams."""
    batched: dict[str, StepShape] = field(default_factory=dict)
    """Steps computed batch by batch."""
    output_mode: str = "append"
    sinks: dict[str, str] = field(default_factory=dict)
    """The destination of each."""
    version: int = VERSION

    @property
    def state(self) -> list[str]:
        return [part for step in self.streamed.values() for part in step.state]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> QueryShape:
        return cls(
            drive=made["drive"],
            sources={name: _source(each) for name, each in made["sources"].items()},
            lookups={name: _source(each) for name, each in made["lookups"].items()},
            streamed={name: _step(each) for name, each in made["streamed"].items()},
            batched={name: _step(each) for name, each in made["batched"].items()},
            output_mode=made["output_mode"],
            sinks=dict(made["sinks"]),
            version=made["version"],
        )


def shape_of(
    pipeline: Pipeline, analysis: Analysis, query: QueryPlan, directory: str, bootstrap: str = ""
) -> QueryShape:
    streamed = [name for name in (*query.upstream, query.input) if name in pipeline.steps]
    read = list(dict.fromkeys(_reading_order(analysis, query.input)))
    lookups = [name for name in (*query.upstream, *query.tables) if name in pipeline.sources and name not in read]
    return QueryShape(
        drive=query.drive,
        sources={name: _source_shape(pipeline.sources[name], directory, bootstrap) for name in read},
        lookups={name: _source_shape(pipeline.sources[name], directory, bootstrap) for name in lookups},
        streamed={name: _step_shape(pipeline, analysis, analysis.tables[name]) for name in streamed},
        batched={
            name: _step_shape(pipeline, analysis, analysis.tables[name])
            for name in query.tables
            if name in pipeline.steps
        },
        output_mode=query.output_mode,
        sinks={name: _written_to(pipeline.sinks[name]) for name in query.sinks},
    )


def _reading_order(analysis: Analysis, name: str) -> Iterator[str]:
    """The sources that drive a table, from left to right in its definition."""
    table = analysis.tables[name]
    if table.path[0] == "sources":
        if table.drive != "static":
            yield name
        return
    places = table.parsed.tables if table.parsed is not None else {}
    for each in sorted(table.inputs, key=lambda each: places.get(each.lower(), 0)):
        yield from _reading_order(analysis, each)


def _source_shape(source: Source, directory: str, bootstrap: str) -> SourceShape:
    watermark = source.watermark
    common: dict[str, Any] = {
        "watermark_column": watermark.column if watermark is not None else "",
        "watermark_delay": str(watermark.delay) if watermark is not None else "",
        "expect": tuple(f"{each.that}, else {each.otherwise}" for each in source.expect),
    }
    if isinstance(source, FormatSource):
        columns = sql.column_types(source.schema) if source.schema else {}
        kind = f"{source.mode} of {source.format}"
        return SourceShape(kind=kind, place=(source.path,), columns=columns, cursor=source.cursor, **common)
    return SourceShape(
        kind="topics",
        place=source.topic or (source.topic_pattern,),
        bootstrap=source.bootstrap or bootstrap,
        decoding=source.value.format,
        columns=schemas.types_of_values(source.value, directory),
        **common,
    )


def _step_shape(pipeline: Pipeline, analysis: Analysis, table: Table) -> StepShape:
    step = pipeline.steps[table.name]
    expect = tuple(f"{each.that}, else {each.otherwise}" for each in expectations(pipeline, table.name))
    if table.parsed is None:
        text = step.python if isinstance(step.python, str) else getattr(step.python, "__qualname__", "a function")
        return StepShape(text=text, state=(text,) if step.stateful else (), expect=expect)
    tree = table.parsed.tree
    streams = [each for each in table.inputs if analysis.tables[each].drive == "stream"]
    state: tuple[str, ...] = ()
    if table.drive == "stream":
        # The rows of a join are its state, with all of their columns that are used: any edit may change that.
        joined = len(streams) > 1 and tree.find(exp.Join) is not None
        state = (_sql(tree),) if joined or step.stateful else tuple(_aggregates(tree))
    return StepShape(text=_sql(tree), state=state, columns=_columns(tree), frame=_frame(tree), expect=expect)


def _aggregates(tree: exp.Query) -> Iterator[str]:
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        made = list(dict.fromkeys(_sql(each) for each in select.find_all(exp.AggFunc)))
        if group is not None:
            yield _sql(group)
        if select.args.get("distinct"):
            yield f"DISTINCT {', '.join(map(_sql, select.expressions))}"
        if made:
            yield ", ".join(made)
    for each in tree.find_all(exp.SetOperation):
        if not isinstance(each, exp.Union) or each.args.get("distinct"):
            yield _sql(each)


def _columns(tree: exp.Query) -> dict[str, str] | None:
    if not isinstance(tree, exp.Select) or tree.args.get("with_"):
        return None
    return {each.alias_or_name or _sql(each): _sql(each.unalias()) for each in tree.expressions}


def _frame(tree: exp.Query) -> str:
    """The rest of a SELECT, without the conditions on its rows."""
    if not isinstance(tree, exp.Select):
        return ""
    rest = tree.copy()
    rest.set("expressions", [])
    rest.set("where", None)
    rest.set("having", None)
    return _sql(rest)


def _sql(tree: exp.Expr) -> str:
    return tree.sql(sql.DIALECT, comments=False)


def _written_to(sink: Sink) -> str:
    if isinstance(sink, TopicSink):
        return f"topic {sink.topic or sink.topic_expression}"
    return " ".join(filter(None, (sink.format, sink.path, getattr(sink, "table", ""))))


def _source(made: Mapping[str, Any]) -> SourceShape:
    return SourceShape(**{**made, "place": tuple(made["place"]), "expect": tuple(made["expect"])})


def _step(made: Mapping[str, Any]) -> StepShape:
    return StepShape(**{**made, "state": tuple(made["state"]), "expect": tuple(made["expect"])})
