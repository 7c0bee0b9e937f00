"""Checks what sinks make of the rows of a query: mistakes that no server reports, and that only show in the results.

- The rows of an aggregate with `output: update` replace earlier rows of the same group. A sink that only appends would
  keep every intermediate value, and a sum over its table would count each group several times.
- A query that writes a topic that it reads never ends, and reads its own results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.pipelines.check.analysis import Finding
from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.spec.model import FormatSink, Pipeline, TopicSink, TopicSource
from penstock.pipelines.spec.sink_formats import SINK_FORMATS


def findings(pipeline: Pipeline, queries: Mapping[str, QueryPlan]) -> Iterator[Finding]:
    for query in queries.values():
        yield from _intermediate_values(pipeline, query)
        yield from _loops(pipeline, query)


def _intermediate_values(pipeline: Pipeline, query: QueryPlan) -> Iterator[Finding]:
    if query.output_mode == "append":
        return
    for name in query.sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, FormatSink) and _only_appends(sink):
            merges = "key" in SINK_FORMATS[sink.format].takes
            way_out = (
                'say by "key" which row replaces which' if merges else 'write to a topic, or to delta with a "key"'
            )
            message = (
                f'"{query.input}" writes a row again whenever it changes (output: {query.output_mode}), and '
                f"{sink.format} would keep every intermediate value; {way_out}; or write final rows only, with a "
                f"watermark on every source, a window and output: append"
            )
            yield Finding(message, ("sinks", name))


def _only_appends(sink: FormatSink) -> bool:
    """Whether it is known that a row never replaces an earlier one."""
    kind = SINK_FORMATS.get(sink.format)
    return kind is not None and kind.appends and not sink.key


def _loops(pipeline: Pipeline, query: QueryPlan) -> Iterator[Finding]:
    read = [
        source
        for name in (query.input, *query.upstream)
        if isinstance(source := pipeline.sources.get(name), TopicSource) and not source.bootstrap
    ]
    for name in query.sinks:
        sink = pipeline.sinks[name]
        if isinstance(sink, TopicSink) and not sink.bootstrap and any(_reads(each, sink.topic) for each in read):
            message = (
                f'query "{query.name}" reads {sink.topic}, too, and would read what it writes; choose another topic'
            )
            yield Finding(message, ("sinks", name, "topic"))
    letters = pipeline.dead_letter_topic
    if query.dead_letters and any(_reads(source, letters) for source in read):
        message = f'query "{query.name}" reads {letters}, where its own dead letters go; choose another topic for them'
        yield Finding(message, ("dead_letters", "topic"))


def _reads(source: TopicSource, topic: str) -> bool:
    if not topic or not source.topic_pattern:
        return topic in source.topic
    try:
        return re.fullmatch(source.topic_pattern, topic) is not None
    except re.error:  # reported where patterns are checked
        return False
