"""Draws a pipeline: as a tree for terminals, as Mermaid for pages."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.pipelines.check.analysis import Analysis
from penstock.pipelines.check.query_plan import QueryPlan, expectations, has_dead_letters
from penstock.pipelines.check.routes import Route, route
from penstock.pipelines.spec.model import FormatSource, Pipeline, Sink, Source, TopicSink, TopicSource


def tree(pipeline: Pipeline, analysis: Analysis, queries: dict[str, QueryPlan]) -> str:
    """Query by query: what it reads, each step under what it reads, each sink under what it takes."""
    lines = [pipeline.name]
    for position, query in enumerate(queries.values()):
        last = position == len(queries) - 1
        planned = route(pipeline, analysis, query)
        lines.append(f"{'└── ' if last else '├── '}query {query.name}{_query_notes(query, planned)}")
        below = [
            *(f"foreachBatch because {each.text}" for each in planned.reasons),
            *_branches(pipeline, analysis, query),
        ]
        lines += [("    " if last else "│   ") + line for line in below]
    return "\n".join(lines)


def mermaid(pipeline: Pipeline, analysis: Analysis, queries: dict[str, QueryPlan]) -> str:
    lines = ["flowchart LR"]
    for name, source in pipeline.sources.items():
        lines.append(f'  {name}[("{_escaped(f"{name}: {described_source(source)}")}")]')
    for query in queries.values():
        steps = [each for each in (query.input, *query.tables) if each in pipeline.steps]
        if steps:
            notes = _query_notes(query, route(pipeline, analysis, query))
            lines.append(f'  subgraph query_{query.name}["query {query.name}{_escaped(notes)}"]')
            lines += [f'    {each}["{each}"]' for each in steps if analysis.tables[each].query == query.name]
            lines.append("  end")
    lines += [
        f"  {each} --> {name}"
        for name, table in analysis.tables.items()
        for each in table.inputs
        if name in pipeline.steps
    ]
    for name, sink in pipeline.sinks.items():
        table = analysis.find(sink.source)
        identity = f"sink_{''.join(letter if letter.isalnum() else '_' for letter in name)}"
        lines.append(f'  {identity}[["{_escaped(f"{name}: {described_sink(sink)}")}"]]')
        if table is not None:
            lines.append(f"  {table.name} --> {identity}")
    letters = [name for name, table in analysis.tables.items() if has_dead_letters(pipeline, table)]
    if letters:
        lines.append(f'  dead_letters[["dead letters: topic {_escaped(pipeline.dead_letter_topic)}"]]')
        lines += [f"  {name} -.-> dead_letters" for name in letters]
    return "\n".join(lines)


def described_source(source: Source) -> str:
    if isinstance(source, TopicSource):
        value = "" if source.value.format == "string" else f", {source.value.format}"
        return f"topic {', '.join(source.topic) or source.topic_pattern}{value}"
    assert isinstance(source, FormatSource)
    return f"{source.mode} of {source.format}{' ' + source.path if source.path else ''}"


def described_sink(sink: Sink) -> str:
    if isinstance(sink, TopicSink):
        delivery = "" if sink.delivery == "exactly-once" else f", {sink.delivery}"
        return f"topic {sink.topic or 'by ' + sink.topic_expression}{delivery}"
    return f"{sink.format}{' ' + sink.path if sink.path else ''}"


def _query_notes(query: QueryPlan, planned: Route) -> str:
    notes = [query.output_mode] if query.output_mode != "append" else []
    notes += [str(planned)]
    notes += [f"every {query.trigger}"] if query.trigger is not None else []
    notes += [f"after {', '.join(query.after)}"] if query.after else []
    return f" ({'; '.join(notes)})"


def _branches(pipeline: Pipeline, analysis: Analysis, query: QueryPlan) -> Iterator[str]:
    """Sources are roots; a table of several inputs is placed under the last of them, and names the others."""
    shown = [*query.upstream, query.input, *(each for each in query.tables if each not in query.upstream)]
    parent: dict[str, str] = {}
    for name in shown:
        inputs = [each for each in shown if each in analysis.tables[name].inputs]
        driving = [each for each in inputs if analysis.tables[each].drive != "static"] or inputs
        if driving:
            parent[name] = driving[-1]
    children: dict[str, list[tuple[str, str]]] = {}
    for name in shown:
        if name in parent:
            others = [each for each in analysis.tables[name].inputs if each != parent[name]]
            joined = f" (with {', '.join(others)})" if others else ""
            children.setdefault(parent[name], []).append((name, f"{name}{joined}"))
    for sink in query.sinks:
        table = analysis.find(pipeline.sinks[sink].source)
        assert table is not None
        children.setdefault(table.name, []).append(("", f"=> {sink}: {described_sink(pipeline.sinks[sink])}"))
    for name in shown:
        if analysis.tables[name].query == query.name and has_dead_letters(pipeline, analysis.tables[name]):
            children.setdefault(name, []).append(("", f"=> dead letters: topic {pipeline.dead_letter_topic}"))
        for each in expectations(pipeline, name):
            children.setdefault(name, []).insert(0, ("", f"expects {each.title}, else {each.otherwise}"))
    for name in shown:
        if name not in parent:
            source = pipeline.sources.get(name)
            yield f"{name}: {described_source(source)}" if source is not None else name
            yield from _under(name, children)


def _under(name: str, children: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    below = children.get(name, [])
    for position, (child, line) in enumerate(below):
        last = position == len(below) - 1
        yield f"{'└── ' if last else '├── '}{line}"
        if child:
            yield from (("    " if last else "│   ") + each for each in _under(child, children))


def _escaped(text: str) -> str:
    return text.replace('"', "#quot;")
