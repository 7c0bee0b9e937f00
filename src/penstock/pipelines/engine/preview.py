"""Computes the rows of one table of a pipeline from real records, as a batch: nothing is written, nothing remembered.

The newest records of every topic are read once, and all tables on the way are computed from them. A step with state
sees these records only, and no watermark: its groups are those of the records that were read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.wire.admin import Admin
from penstock.pipelines.check.analysis import Analysis, analyse
from penstock.pipelines.engine.evolution import MemoryNotes, Notes
from penstock.pipelines.engine.failures import message_of
from penstock.pipelines.engine.plain_rows import plain_rows
from penstock.pipelines.engine.query_input import Sources, own_session
from penstock.pipelines.engine.tables import FIELD, REASON, Tables, read_table
from penstock.pipelines.operate.sampling import newest_offsets
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.model import FormatSource, Pipeline, TopicSource
from penstock.pipelines.spec.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT_S = 10.0
_BATCH_HAS_NO = ("startingOffsets", "maxOffsetsPerTrigger", "subscribe", "subscribePattern")

Starts = dict[str, dict[str, dict[str, int]]]
"""By source and topic: where to begin in each partition."""


class DeadCount(NamedTuple):
    reason: str
    field: str | None
    records: int


@dataclass(frozen=True, slots=True)
class Preview:
    columns: list[str]
    rows: list[dict[str, Any]]
    dead_letters: list[DeadCount]
    """Rows on the way that would be dead letters."""


def table_named(loaded: Loaded, name: str) -> str:
    """The table of a source or step, or the one that a sink takes; PipelineFailed if there is none."""
    pipeline = loaded.pipeline
    analysis = analyse(pipeline, loaded.directory)
    table = analysis.find(pipeline.sinks[name].source if name in pipeline.sinks else name)
    if table is None:
        raise PipelineFailed(
            f'{loaded.file} has no step "{name}"; {nearest(name, [*analysis.tables, *pipeline.sinks])}'
        )
    return table.name


def newest(loaded: Loaded, table: str, bootstrap: str, records: int | None) -> Starts:
    """Where to begin to read about so many records of each topic that the table is made of; None: at the beginning.
    Finds missing topics before Spark has started."""
    starts: Starts = {}
    for name in analyse(loaded.pipeline, loaded.directory).upstream(table):
        source = loaded.pipeline.sources.get(name)
        if not isinstance(source, TopicSource):
            continue
        address = source.bootstrap or bootstrap
        count = 2**62 if records is None else records
        topics = source.topic or _matching(address, source.topic_pattern)
        found = {topic: newest_offsets(address, topic, count) for topic in topics}
        starts[name] = {
            topic: {str(each.partition): offset for each, offset in offsets.items()} for topic, offsets in found.items()
        }
    return starts


def preview(
    loaded: Loaded, session: SparkSession, table: str, bootstrap: str, starts: Starts, *, limit: int
) -> Preview:
    from pyspark.errors import PySparkException

    own = own_session(session)
    analysis = analyse(loaded.pipeline, loaded.directory)
    sources = _Newest(loaded.pipeline, loaded.directory, bootstrap, starts)
    try:
        tables = _computed(own, loaded, analysis, table, sources)
        frame = tables.shown(table)
        return Preview(frame.columns, plain_rows(frame.limit(limit)), _dead(tables))
    except PySparkException as error:
        raise PipelineFailed(f'"{table}" cannot be computed: {message_of(error)}') from error


def _computed(session: SparkSession, loaded: Loaded, analysis: Analysis, table: str, sources: _Newest) -> Tables:
    names = analysis.upstream(table)
    raw = {name: sources.table(session, name) for name in names if name in loaded.pipeline.sources}
    fitting = {name: sources.fitting(name, frame) for name, frame in raw.items()}
    pipeline = replace(loaded.pipeline, sources={**loaded.pipeline.sources, **fitting})
    tables = Tables(session, pipeline, analysis, loaded.directory, makes_dead_letters=True)
    for name in names:
        if name in raw:
            tables.add_source(name, raw[name])
        else:
            tables.add([name])
    return tables


def _dead(tables: Tables) -> list[DeadCount]:
    counted = [each.frame.groupBy(REASON, FIELD).count() for each in tables.dead]
    if not counted:
        return []
    rows = reduce(lambda above, below: above.union(below), counted).collect()
    return sorted((DeadCount(*row) for row in rows), key=lambda each: -each.records)


def _matching(bootstrap: str, pattern: str) -> list[str]:
    with Admin(bootstrap, timeout=_TIMEOUT_S) as admin:
        names = [each.name for each in admin.topics.list()]
    found = [name for name in names if re.fullmatch(pattern, name)]
    if not found:
        raise PipelineFailed(f'no topic matches "{pattern}" on {bootstrap}; {nearest(pattern, names)}')
    return found


class _Newest(Sources):
    """Every source as a table, topics from certain offsets on."""

    def __init__(self, pipeline: Pipeline, directory: str, bootstrap: str, starts: Mapping[str, Any]) -> None:
        super().__init__(pipeline, directory, bootstrap)
        self._starts = starts

    def table(self, session: SparkSession, name: str) -> DataFrame:
        source = self._pipeline.sources[name]
        if isinstance(source, FormatSource):
            return read_table(session, source, self._directory)
        options = {key: value for key, value in self.topic_options(name).items() if key not in _BATCH_HAS_NO}
        starts = self._starts[name]
        where = {"subscribe": ",".join(starts), "startingOffsets": json.dumps(starts)}
        return session.read.format("penstock").options(**options, **where).load()

    def _notes(self, name: str, session: SparkSession) -> Notes:
        return MemoryNotes()
