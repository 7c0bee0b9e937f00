"""Resolves the start and end of a backfill once, stores them with its checkpoints, and opens the sources for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from penstock.client.wire.admin import Admin
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.engine.query_input import Sources
from penstock.pipelines.operate.backfill import (
    Backfill,
    BackfillRefused,
    Ranges,
    check_points,
    from_json,
    only,
    parse_point,
    ranges,
    read_whole,
    to_json,
)
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.model import Pipeline, TopicSink, TopicSource
from penstock.spark.source.offsets import Bound, Offsets, to_spark
from penstock.spark.source.options import source_options
from penstock.spark.source.topic_logs import TopicLogs

NOTE = "backfill.json"
_WHAT = ("subscribe", "subscribepattern", "assign")
_WHERE = (
    "startingoffsets",
    "startingoffsetsbytimestamp",
    "startingtimestamp",
    "startingoffsetsbytimestampstrategy",
)
_GROUP = "kafka.group.id"


def resolved(pipeline: Pipeline, queries: Iterable[QueryPlan], sources: Sources, wanted: Backfill) -> dict[str, Ranges]:
    """By source, as offsets at the time of the call."""
    now = datetime.now(UTC)
    begin = parse_point("--from", wanted.begin, now)
    end = parse_point("--to", wanted.end, now) if wanted.end else None
    check_points(begin, end)
    found = list(queries)
    whole = read_whole(pipeline, found)
    names = dict.fromkeys(name for query in found for name in (query.input, *query.upstream))
    topics = [name for name in names if isinstance(pipeline.sources.get(name), TopicSource) and name not in whole]
    resolved = {name: _source_ranges(sources.topic_options(name), begin, end) for name in topics}
    read = {partition.topic for each in resolved.values() for partition in each}
    for bound in (begin, end):
        named = set() if bound is None or isinstance(bound.point, int) else {each.topic for each in bound.point}
        if named - read and bound is not None:
            raise BackfillRefused(f"{bound.option} names topic {min(named - read)}, which is not read")
    return resolved


def agreed(files: Files, place: str, pipeline: str, wanted: Backfill, found: dict[str, Ranges]) -> dict[str, Ranges]:
    """The ranges stored by the first run of this backfill, or else `found`, stored now."""
    asked = {
        "pipeline": pipeline,
        "from": wanted.begin,
        "to": wanted.end,
        "suffix": wanted.suffix,
        "queries": sorted(wanted.queries),
    }
    names = files.names(place)
    if NOTE in names:
        note = files.read_note(f"{place}/{NOTE}")
        for field, value in asked.items():
            if note["asked"][field] != value:
                before, after = json.dumps(note["asked"][field]), json.dumps(value)
                raise BackfillRefused(
                    f"backfill {wanted.name} was begun with {field} {before}, not {after}: say the same to go on with "
                    f"it, or another --as for another one"
                )
        return from_json(json.dumps(note["ranges"]))
    if set(names) - {f"{NOTE}.draft"}:
        raise BackfillRefused(f"{place} has checkpoints that are of no backfill; choose another --as")
    files.write_note(f"{place}/{NOTE}", {"asked": asked, "ranges": json.loads(to_json(found))})
    return found


class BackfillSources(Sources):
    """Reads the ranges; sources without a range are read completely."""

    def __init__(
        self, pipeline: Pipeline, directory: str, bootstrap: str, ranges: dict[str, Ranges], *, ends: bool
    ) -> None:
        super().__init__(pipeline, directory, bootstrap)
        self._ranges = ranges
        self._ends = ends

    def topic_options(self, name: str) -> dict[str, str]:
        options = {
            option: value
            for option, value in super().topic_options(name).items()
            if option.lower() not in (*_WHERE, _GROUP)
        }
        if name not in self._ranges:
            return {**options, "startingOffsets": "earliest"}
        spans = self._ranges[name]
        options["startingOffsets"] = _text({each: first for each, (first, _) in spans.items()})
        if not self._ends:
            return options
        options = {option: value for option, value in options.items() if option.lower() not in _WHAT}
        options["assign"] = json.dumps(_assigned(spans))
        options["untilOffsets"] = _text({each: last for each, (_, last) in spans.items()})
        return options


def make_shadow_topics(bootstrap: str, pipeline: Pipeline, queries: Iterable[QueryPlan], suffix: str) -> list[str]:
    """Create the shadow topics of the outputs, with as many partitions and replicas as the original ones; returns the
    names of those created."""
    made = []
    topics = {
        sink.topic
        for query in queries
        for name in query.sinks
        if isinstance(sink := pipeline.sinks[name], TopicSink) and sink.topic
    }
    with Admin(bootstrap) as admin:
        there = {topic.name: topic for topic in admin.topics.list(internal=True)}
        for topic in sorted({*topics, pipeline.dead_letter_topic} & there.keys()):
            if topic + suffix in there:
                continue
            like = there[topic]
            try:
                admin.topics.create(
                    topic + suffix, partitions=len(like.partitions), replication_factor=like.replication_factor
                )
                made.append(topic + suffix)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
    return made


def _source_ranges(options: dict[str, str], begin: Bound, end: Bound | None) -> Ranges:
    what = {name: value for name, value in options.items() if name.lower() not in _WHERE}
    with TopicLogs(source_options(what)) as logs:
        logs.look()
        earliest, latest = logs.begins(), logs.ends()
        first, last = only(begin, earliest), only(end, earliest)
        assert first is not None
        return ranges(first, last, earliest, latest, _found(logs, first, earliest), _found(logs, last, earliest))


def _found(logs: TopicLogs, bound: Bound | None, partitions: Offsets) -> Offsets:
    found: Offsets = {}
    for timestamp, wanted in (bound.times(partitions) if bound is not None else {}).items():
        found |= logs.at_time(wanted, timestamp)
    return found


def _assigned(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    made: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        made.setdefault(topic, []).append(index)
    return made


def _text(offsets: Offsets) -> str:
    return json.dumps(to_spark(offsets))
