"""Plans the queries that a pipeline runs as.

There is one query for each source that drives something, and one for each step with state or over several streams. Its
*input* is what Spark streams: the source, or such a step with everything it is made of. Its *tables* are computed from
each batch of the input, and go to its sinks. All topic records of a batch, of all sinks and dead letters, are written
together.

Only the query of a source produces dead letters for records of it that do not decode, and for rows that break an
expectation on the way. If another query computes the same tables for a step with state, it only omits these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.pipelines.check.analysis import Analysis, Drive, Table
from penstock.pipelines.spec.durations import Duration
from penstock.pipelines.spec.model import Expectation, Pipeline, TopicSink, TopicSource


@dataclass(frozen=True, slots=True)
class QueryPlan:
    name: str
    drive: Drive
    input: str
    """The source or step whose rows arrive batch by batch."""
    upstream: tuple[str, ...]
    """The tables the input is made of, in order, without the input."""
    tables: tuple[str, ...]
    """Tables computed from each batch, in order, without the input; including lookups and tables made of them."""
    sinks: tuple[str, ...]
    dead_letters: int
    """The number of rules that make dead letters; each scans the whole batch."""
    output_mode: str
    trigger: Duration | None
    after: tuple[str, ...]
    """Queries that run before it with `--once`."""


def plan(pipeline: Pipeline, analysis: Analysis) -> dict[str, QueryPlan]:
    """By name; each query comes after those it waits for (unless they form a cycle)."""
    made: dict[str, QueryPlan] = {}
    for table in analysis.tables.values():
        if table.begins_query:
            query = _query(pipeline, analysis, table)
            if query is not None:
                made[query.name] = query
    return _sorted({name: _after(pipeline, query, made) for name, query in made.items()})


def has_dead_letters(pipeline: Pipeline, table: Table) -> bool:
    """Whether rows of this table itself may become dead letters."""
    return _rules(pipeline, table) > 0


def _rules(pipeline: Pipeline, table: Table) -> int:
    source = pipeline.sources.get(table.name)
    decoding = False
    if isinstance(source, TopicSource):
        decodes = source.value.format not in ("bytes", "string")
        decoding = (decodes and source.on_error == "dead-letter") or source.evolution == "dead-letter"
    return decoding + sum(each.otherwise == "dead-letter" for each in expectations(pipeline, table.name))


def expectations(pipeline: Pipeline, name: str) -> tuple[Expectation, ...]:
    source = pipeline.sources.get(name)
    return source.expect if source is not None else pipeline.steps[name].expect


def _query(pipeline: Pipeline, analysis: Analysis, first: Table) -> QueryPlan | None:
    """None if it has nothing to do."""
    own = [table for table in analysis.tables.values() if table.query == first.name]
    sinks = tuple(name for name, sink in pipeline.sinks.items() if analysis.find(sink.source) in own)
    dead_letters = sum(_rules(pipeline, table) for table in own)
    if not sinks and not dead_letters:
        return None
    wanted: set[str] = set()
    for table in own:
        fed = any(analysis.find(pipeline.sinks[sink].source) is table for sink in sinks)
        if fed or has_dead_letters(pipeline, table):
            wanted.update(analysis.upstream(table.name, until=first.name))
    upstream = tuple(each for each in analysis.upstream(first.name) if each != first.name)
    tables = tuple(
        name
        for name, table in analysis.tables.items()
        if name in wanted and name != first.name and (table in own or table.drive == "static")
    )
    step = pipeline.steps.get(first.name)
    settings = pipeline.queries.get(first.name)
    mode = step.output if step is not None else ""
    return QueryPlan(
        first.name,
        first.drive,
        first.name,
        upstream,
        tables,
        sinks,
        dead_letters,
        mode or _output_mode(pipeline, analysis, first),
        (settings.trigger if settings is not None else None) or pipeline.trigger,
        (),
    )


def _output_mode(pipeline: Pipeline, analysis: Analysis, first: Table) -> str:
    if first.name in pipeline.sources or not _has_state(pipeline, first):
        return "append"
    return "append" if all(pipeline.sources[each].watermark for each in first.sources) else "update"


def _has_state(pipeline: Pipeline, table: Table) -> bool:
    return pipeline.steps[table.name].stateful or (table.parsed is not None and table.parsed.stateful)


def _after(pipeline: Pipeline, query: QueryPlan, queries: dict[str, QueryPlan]) -> QueryPlan:
    """The query with those it waits for: those in its settings, and those that write the topics it reads."""
    read = {topic for name in (query.input, *query.upstream) for topic in _topics(pipeline, name)}
    settings = pipeline.queries.get(query.name)
    after = [*(settings.after if settings is not None else ())]
    for other in queries.values():
        written = (pipeline.sinks[name] for name in other.sinks)
        if other is not query and any(isinstance(sink, TopicSink) and sink.topic in read for sink in written):
            after.append(other.name)
    return replace(query, after=tuple(dict.fromkeys(after)))


def _topics(pipeline: Pipeline, name: str) -> Iterable[str]:
    source = pipeline.sources.get(name)
    return source.topic if isinstance(source, TopicSource) else ()


def _sorted(queries: dict[str, QueryPlan]) -> dict[str, QueryPlan]:
    ordered: dict[str, QueryPlan] = {}
    waiting = dict(queries)
    while waiting:
        ready = [name for name, query in waiting.items() if not any(each in waiting for each in query.after)]
        for name in ready or list(waiting):
            ordered[name] = waiting.pop(name)
    return ordered
