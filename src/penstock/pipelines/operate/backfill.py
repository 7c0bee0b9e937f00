"""Runs a pipeline again over existing records, under another name: pure.

    penstock pipeline run orders.yaml --from 2026-05-01 --to 2026-05-02 --as orders-may

The name makes it another pipeline: it identifies checkpoints, consumer groups and transactions, so the original
pipeline may run at the same time. The backfill writes to the same outputs, or, with a suffix, to outputs beside them.

Its start and end are resolved once, to offsets, and stored with the checkpoints (`backfill_ranges`). A backfill that
was killed is started again with the same command, and ends where it was meant to end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition
from penstock.pipelines.spec.model import (
    DeadLetters,
    FormatSource,
    Pipeline,
    Sink,
    Source,
    TopicSink,
    TopicSource,
)
from penstock.pipelines.spec.problems import nearest
from penstock.pipelines.spec.sink_formats import ANY_FORMAT, SINK_FORMATS
from penstock.spark.source.offsets import EARLIEST, LATEST, Bound, Offsets, parse_offsets

if TYPE_CHECKING:  # the console uses this module, and does not have what SQL is parsed with
    from penstock.pipelines.check.query_plan import QueryPlan

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TABLES = ("dbtable", "table")
_PLACES = (*_TABLES, "index", "collection", "path", "topic")
"""Options that name the destination in formats of Spark and others."""

Range = tuple[int, int]
Ranges = dict[TopicPartition, Range]
"""For each partition, the first offset and the one after the last."""


class BackfillRefused(ClientError):
    """The request is not possible, or differs from the first request of this backfill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The request."""

    name: str
    begin: str
    """`earliest`, `latest`, `offset:N`, `{"orders": {"0": 23}}`, or a time."""
    end: str = ""
    """The same; empty: it continues until it is stopped."""
    suffix: str = ""
    queries: tuple[str, ...] = ()


def parse_point(option: str, text: str, now: datetime) -> Bound:
    """Where to begin or end, in all partitions."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text in words:
        return Bound(option, words[text])
    if text.startswith("{"):
        return Bound(option, parse_offsets(option, text))
    if text.startswith("offset:"):
        number = text.removeprefix("offset:").strip()
        if not number.isdecimal():
            raise BackfillRefused(f"{option} {text!r} is not an offset such as offset:1000")
        return Bound(option, int(number))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BackfillRefused(
            f"{option} {text!r} is not earliest, latest, offset:1000, a time such as 2026-05-01T12:00:00Z (UTC, where "
            f'no zone is said), nor {{"orders": {{"0": 23}}}}'
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    if time > now:
        hint = (
            "leave it out, and the pipeline goes on until it is stopped" if option == "--to" else "say when it is there"
        )
        raise BackfillRefused(f"{option} {text} has not come yet; {hint}")
    return Bound(option, max(0, round(time.timestamp() * 1000)), by_time=True)


def check_points(begin: Bound, end: Bound | None) -> None:
    """Check two points against each other, before they are resolved."""
    if end is None:
        return
    if end.point == EARLIEST and not end.by_time:
        raise BackfillRefused("--to earliest is before everything; say latest, or a time")
    if begin.point == LATEST and not begin.by_time:
        raise BackfillRefused("nothing lies behind --from latest yet; leave out --to, or say earlier where to begin")
    if begin.by_time != end.by_time or _is_word(begin) or _is_word(end):
        return
    if isinstance(begin.point, int) and isinstance(end.point, int) and begin.point >= end.point:
        raise BackfillRefused("--to is not behind --from")
    if not isinstance(begin.point, int) and not isinstance(end.point, int):
        for partition, offset in sorted(begin.point.items()):
            if 0 <= end.point.get(partition, offset) < offset:
                raise BackfillRefused(f"{partition}: --to is at {end.point[partition]}, before --from at {offset}")


def chosen(pipeline: Pipeline, queries: Mapping[str, QueryPlan], wanted: Backfill) -> list[QueryPlan]:
    """The queries that run; BackfillRefused if they cannot."""
    if not _NAME.fullmatch(wanted.name):
        raise BackfillRefused(f'--as "{wanted.name}" cannot be a name: letters, digits, ".", "_" and "-" only')
    if wanted.name == pipeline.name:
        raise BackfillRefused(f"--as {wanted.name} is the pipeline itself; a backfill needs a name of its own")
    if wanted.suffix and not _NAME.fullmatch(wanted.suffix):
        raise BackfillRefused(f'--output-suffix "{wanted.suffix}": letters, digits, ".", "_" and "-" only')
    for name in wanted.queries:
        if name not in queries:
            raise BackfillRefused(f'no query "{name}"; {nearest(name, queries)}')
    found = [query for name, query in queries.items() if not wanted.queries or name in wanted.queries]
    written = _topics_written(pipeline, found)
    for query in found:
        for name in (query.input, *query.upstream):
            source = pipeline.sources.get(name)
            if isinstance(source, FormatSource) and source.mode != "lookup":
                raise BackfillRefused(
                    f'query "{query.name}" reads "{name}", which is no topic and has no offsets to begin at; choose '
                    f"others with --query"
                )
            if isinstance(source, TopicSource):
                _check_chain(query, name, source, written, wanted)
    return found


def shadowed(pipeline: Pipeline, queries: Iterable[QueryPlan], wanted: Backfill) -> Pipeline:
    """The pipeline under the backfill's name, with all outputs beside the original ones if there is a suffix."""
    found = list(queries)
    letters = DeadLetters(topic=pipeline.dead_letter_topic + wanted.suffix)
    renamed = replace(pipeline, name=wanted.name, dead_letters=letters)
    if not wanted.suffix:
        return renamed
    running = {name for query in found for name in query.sinks}
    written = _topics_written(pipeline, found)
    sinks = {
        name: _beside(name, sink, wanted.suffix) if name in running else sink for name, sink in pipeline.sinks.items()
    }
    sources = {name: _following(source, written, wanted.suffix) for name, source in pipeline.sources.items()}
    return replace(renamed, sinks=sinks, sources=sources)


def read_whole(pipeline: Pipeline, queries: Iterable[QueryPlan]) -> set[str]:
    """Sources of topics that the backfill itself writes: these are read completely."""
    found = list(queries)
    written = _topics_written(pipeline, found)
    return {
        name
        for query in found
        for name in (query.input, *query.upstream)
        if isinstance(source := pipeline.sources.get(name), TopicSource) and written & set(source.topic)
    }


def ranges(
    begin: Bound,
    end: Bound | None,
    earliest: Offsets,
    latest: Offsets,
    begin_found: Offsets,
    end_found: Offsets,
) -> Ranges:
    """For every partition of `earliest`. A time after the last record of a partition is its end, and so is an offset
    after its end: partitions differ in length."""
    begin.check_names(earliest)
    first = _placed(begin, earliest, latest, begin_found)
    last = dict(latest)
    if end is not None:
        end.check_names(earliest)
        last = _placed(end, earliest, latest, end_found)
    return {each: (first[each], max(first[each], last[each])) for each in earliest}


def only(bound: Bound | None, partitions: Iterable[TopicPartition]) -> Bound | None:
    """The offsets of the topics that one source reads, out of those for all sources."""
    if bound is None or isinstance(bound.point, int):
        return bound
    topics = {partition.topic for partition in partitions}
    return replace(bound, point={each: offset for each, offset in bound.point.items() if each.topic in topics})


def _placed(bound: Bound, earliest: Offsets, latest: Offsets, found: Offsets) -> Offsets:
    words = {EARLIEST: earliest, LATEST: latest}
    placed: Offsets = {}
    for partition, low in earliest.items():
        high = latest[partition]
        if bound.by_time:
            placed[partition] = found.get(partition, high)
            continue
        point = bound.of(partition)
        placed[partition] = words[point][partition] if point in words else min(max(point, low), high)
    if not bound.by_time and not _is_word(bound) and isinstance(bound.point, int) and earliest:
        everywhere = [not earliest[each] <= bound.point <= latest[each] for each in earliest]
        if all(everywhere):
            spans = ", ".join(f"{each} has {earliest[each]} to {latest[each]}" for each in sorted(earliest)[:3])
            raise BackfillRefused(f"{bound.option} offset:{bound.point} is in no partition: {spans}")
    return placed


def _is_word(bound: Bound) -> bool:
    return isinstance(bound.point, int) and not bound.by_time and bound.point < 0


def _topics_written(pipeline: Pipeline, queries: Iterable[QueryPlan]) -> set[str]:
    sinks = (pipeline.sinks[name] for query in queries for name in query.sinks)
    return {sink.topic for sink in sinks if isinstance(sink, TopicSink) and sink.topic}


def _check_chain(query: QueryPlan, name: str, source: TopicSource, written: set[str], wanted: Backfill) -> None:
    """A query that reads what another one writes."""
    between = sorted(written & set(source.topic))
    if between and not wanted.suffix:
        raise BackfillRefused(
            f'query "{query.name}" reads {between[0]}, which this backfill writes: the pipeline itself goes on from '
            f"there. Choose others with --query, or write elsewhere with --output-suffix"
        )
    if between and set(source.topic) - written:
        raise BackfillRefused(f'source "{name}" reads {between[0]}, which this backfill writes, and others')
    matched = [each for each in sorted(written) if source.topic_pattern and re.fullmatch(source.topic_pattern, each)]
    shadows = [each for each in matched if re.fullmatch(source.topic_pattern, each + wanted.suffix)]
    if matched and (shadows or not wanted.suffix):
        raise BackfillRefused(
            f'source "{name}" reads {source.topic_pattern}, and so {matched[0]}, which is written here'
        )


def _beside(name: str, sink: Sink, suffix: str) -> Sink:
    if isinstance(sink, TopicSink):
        if sink.topic:
            return replace(sink, topic=sink.topic + suffix)
        return replace(sink, topic_expression=f"concat(CAST(({sink.topic_expression}) AS STRING), '{suffix}')")
    if sink.format == "console":
        return sink
    if sink.path:
        return replace(sink, path=sink.path.rstrip("/") + suffix)
    if sink.table:
        is_index = SINK_FORMATS.get(sink.format, ANY_FORMAT).table_is_index
        return replace(sink, table=sink.table + suffix if is_index else _table_beside(sink.table, suffix))
    for option in _PLACES:
        place = sink.options.get(option)
        if isinstance(place, str) and place:
            beside = _table_beside(place, suffix) if option in _TABLES else place + suffix
            return replace(sink, options={**sink.options, option: beside})
    raise BackfillRefused(
        f'sink "{name}": {sink.format} has neither a path nor a table that --output-suffix could be put to'
    )


def _table_beside(table: str, suffix: str) -> str:
    """In SQL a dot ends the name of a schema, and a "-" is a minus: the table beside `orders` is `orders_may`."""
    return table + re.sub(r"\W", "_", suffix)


def _following(source: Source, written: set[str], suffix: str) -> Source:
    if isinstance(source, TopicSource) and written & set(source.topic):
        return replace(source, topic=tuple(each + suffix for each in source.topic), starting_offsets="earliest")
    return source


def to_json(found: Mapping[str, Ranges]) -> str:
    """Ranges by source, in the form that is stored."""
    return json.dumps(
        {name: [[*partition, *span] for partition, span in sorted(each.items())] for name, each in found.items()}
    )


def from_json(text: str) -> dict[str, Ranges]:
    return {
        name: {TopicPartition(topic, index): (first, last) for topic, index, first, last in each}
        for name, each in json.loads(text).items()
    }
