"""The queries that a pipeline runs as.

One for each source that drives something, and one for each step with state or over several streams. A query has a
*head*, what Spark streams (a source, or such a step with all it is made of), and a *body*, the tables made of each
batch of it and the sinks they go to. All records of topics that a batch makes, of all sinks and dead letters, are
written together.

Records that do not decode are dead letters of their source's query only, and so are rows that break an expectation on
the way; where another query computes the same tables on its way to a step with state, it just leaves them out.
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
    head: str
    """The source or step whose rows come batch by batch."""
    upstream: tuple[str, ...]
    """What the head is made of, in order, without it."""
    body: tuple[str, ...]
    """Tables made of each batch, in order, without the head; lookups and what is made of them included."""
    sinks: tuple[str, ...]
    dead_letters: int
    """Rules by which rows become some; each looks at the whole batch."""
    output_mode: str
    trigger: Duration | None
    after: tuple[str, ...]
    """Queries that come first where each runs once."""


def plan(pipeline: Pipeline, analysis: Analysis) -> dict[str, QueryPlan]:
    """By name, in an order in which each comes after those it waits for (where they do not go round in circles)."""
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


def _query(pipeline: Pipeline, analysis: Analysis, head: Table) -> QueryPlan | None:
    """None if there is nothing for it to do."""
    own = [table for table in analysis.tables.values() if table.query == head.name]
    sinks = tuple(name for name, sink in pipeline.sinks.items() if analysis.find(sink.source) in own)
    dead_letters = sum(_rules(pipeline, table) for table in own)
    if not sinks and not dead_letters:
        return None
    wanted: set[str] = set()
    for table in own:
        fed = any(analysis.find(pipeline.sinks[sink].source) is table for sink in sinks)
        if fed or has_dead_letters(pipeline, table):
            wanted.update(analysis.upstream(table.name, until=head.name))
    upstream = tuple(each for each in analysis.upstream(head.name) if each != head.name)
    body = tuple(
        name
        for name, table in analysis.tables.items()
        if name in wanted and name != head.name and (table in own or table.drive == "static")
    )
    step = pipeline.steps.get(head.name)
    settings = pipeline.queries.get(head.name)
    mode = step.output if step is not None else ""
    return QueryPlan(
        head.name,
        head.drive,
        head.name,
        upstream,
        body,
        sinks,
        dead_letters,
        mode or _output_mode(pipeline, analysis, head),
        (settings.trigger if settings is not None else None) or pipeline.trigger,
        (),
    )


def _output_mode(pipeline: Pipeline, analysis: Analysis, head: Table) -> str:
    if head.name in pipeline.sources or not _has_state(pipeline, head):
        return "append"
    return "append" if all(pipeline.sources[each].watermark for each in head.sources) else "update"


def _has_state(pipeline: Pipeline, table: Table) -> bool:
    return pipeline.steps[table.name].stateful or (table.parsed is not None and table.parsed.stateful)


def _after(pipeline: Pipeline, query: QueryPlan, queries: dict[str, QueryPlan]) -> QueryPlan:
    """With the queries it waits for: as said, and those that write the topics it reads."""
    read = {topic for name in (query.head, *query.upstream) for topic in _topics(pipeline, name)}
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
