"""Writes one batch of one query: from the rows of its input to all outputs.

Records for topics, of all sinks and the dead letters, are one write, and so one decision; it comes last. Sinks that are
not topics are written before, each on its own. If one fails, the whole batch is repeated under the same number, and
sinks that have it already recognise that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from penstock.pipelines.check.analysis import Analysis
from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.check.routes import TopicWrite, topic_writes
from penstock.pipelines.engine.counting import Counted, CountedLetters, RecordTimesOf, Stopwatch, written_together
from penstock.pipelines.engine.encoding import as_text, dead_letters, records
from penstock.pipelines.engine.query_input import Sources
from penstock.pipelines.engine.query_status import Tally
from penstock.pipelines.engine.record_writer import RecordWriter, checkpoint_of_batch
from penstock.pipelines.engine.refusals import Refusals, on_refusal
from penstock.pipelines.engine.sink_rows import selected
from penstock.pipelines.engine.tables import Tables
from penstock.pipelines.sinks import Sink, SinkUnavailable
from penstock.pipelines.sinks.delta import MERGE_SCHEMA
from penstock.pipelines.sinks.opening import open_sink
from penstock.pipelines.spec.model import FormatSink, Pipeline, TopicSink, TopicSource
from penstock.pipelines.spec.sink_formats import ANY_FORMAT, SINK_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of a batch."""

    sinks: Mapping[str, DataFrame]
    """Of topics: records, with columns topic, key, value, headers, and what is measured; of others: rows."""
    dead_letters: DataFrame | None
    tables: Tables


class BatchPlan:
    def __init__(
        self, pipeline: Pipeline, analysis: Analysis, query: QueryPlan, directory: str, sources: Sources
    ) -> None:
        self._sources = sources
        self._pipeline = pipeline
        self._analysis = analysis
        self._query = query
        self._directory = directory

    def tables(self, batch: DataFrame) -> Tables:
        """All tables of the query, from the rows of its input. Planned, not computed yet."""
        query, pipeline = self._query, self._pipeline
        if query.input in pipeline.sources:
            fitting = self._sources.fitting(query.input, batch)
            pipeline = replace(pipeline, sources={**pipeline.sources, query.input: fitting})
        tables = Tables(batch.sparkSession, pipeline, self._analysis, self._directory, makes_dead_letters=True)
        statics = [name for name in query.tables if self._analysis.tables[name].drive == "static"]
        for name in statics:
            if name in pipeline.sources:
                tables.add_source(name, self._sources.table(batch.sparkSession, name))
            else:
                tables.add([name])
        if query.input in pipeline.sources:
            tables.add_source(query.input, batch)
        else:
            tables.add_input(query.input, batch)
        tables.add(name for name in query.tables if name not in statics)
        return tables

    def topic_records(self, tables: Tables) -> dict[str, DataFrame]:
        """By topic sink: columns topic, key, value, headers, and what is measured."""
        made: dict[str, DataFrame] = {}
        for name in self._query.sinks:
            sink = self._pipeline.sinks[name]
            if isinstance(sink, TopicSink):
                made[name] = records(tables.with_records(self._table(name)), sink, self._directory)
        return made

    def row_type(self, tables: Tables, sink: str) -> StructType:
        """Of the rows that a sink is given, hidden columns included."""
        return tables.frames[self._table(sink)].schema

    def outputs(self, batch: DataFrame, origins: Collection[str] = ()) -> Outputs:
        """Planned, not computed yet. `origins`: sinks whose rows contain the origin of their records."""
        pipeline = self._pipeline
        tables = self.tables(batch)
        made = self.topic_records(tables)
        for name in self._query.sinks:
            sink = pipeline.sinks[name]
            if isinstance(sink, FormatSink):
                whole = tables.frames[self._table(name)] if name in origins else None
                made[name] = selected(tables.shown(self._table(name)), sink, whole)
        letters = dead_letters(tables.dead, pipeline.name, pipeline.dead_letter_topic) if tables.dead else None
        return Outputs(made, letters, tables)

    def _table(self, sink: str) -> str:
        table = self._analysis.find(self._pipeline.sinks[sink].source)
        assert table is not None
        return table.name


class BatchWriter:
    """Called by Spark with each batch of a query, in order."""

    def __init__(
        self,
        pipeline: Pipeline,
        analysis: Analysis,
        query: QueryPlan,
        directory: str,
        bootstrap: str,
        sources: Sources,
        wrote: Callable[[Tally, int], None] = lambda tally, batch: None,
    ) -> None:
        """`wrote` is called with the result of each batch."""
        self._pipeline = pipeline
        self._query = query
        self._records = RecordWriter(pipeline, query, bootstrap)
        self._writes = topic_writes(pipeline, query)
        self._wrote = wrote
        self._plan = BatchPlan(pipeline, analysis, query, directory, sources)
        self._analysis = analysis
        self._directory = directory
        self._reads_records = isinstance(pipeline.sources.get(query.input), TopicSource)
        self._others: dict[str, Sink] = {}
        self.unavailable = ""
        """Why the last batch was not written, if a sink's server was unavailable."""

    def __call__(self, batch: DataFrame, number: int, checkpoint: str = "") -> None:
        """`checkpoint`: the identity of what numbers the batches, if that is not a streaming query's checkpoint."""
        checkpoint = checkpoint or checkpoint_of_batch(batch)
        # A step may read an input with state twice, and two tasks must not compute the same state at the same time.
        has_state = self._query.input in self._pipeline.steps
        times = RecordTimesOf(batch) if self._reads_records else None
        batch = times.frame if times is not None else batch
        several = len(self._query.sinks) + self._query.dead_letters > 1 or (has_state and bool(self._query.tables))
        if several:
            batch = batch.persist()
        try:
            self._open(checkpoint)
            planned = self._plan.outputs(batch, [name for name, sink in self._others.items() if sink.wants_origin])
            counted = {name: Counted(frame) for name, frame in planned.sinks.items()}
            kinds = [kind for each in planned.tables.dead for kind in each.kinds]
            letters = CountedLetters(planned.dead_letters, kinds) if planned.dead_letters is not None else None
            outputs = replace(
                planned,
                sinks={name: each.frame for name, each in counted.items()},
                dead_letters=letters.frame if letters is not None else None,
            )
            violations = self._violations(outputs.tables)
            refusals = Refusals(self._pipeline, self._analysis, outputs.tables, number)
            watch = Stopwatch()
            for name, sink in self._others.items():
                with watch.of(name):
                    refusals.add(name, sink.write(outputs.sinks[name], number) or ())
            if refusals.dead:
                refused = dead_letters(refusals.dead, self._pipeline.name, self._pipeline.dead_letter_topic)
                before = outputs.dead_letters
                outputs = replace(outputs, dead_letters=before.union(refused) if before is not None else refused)
            for write, frame in self._topics(outputs):
                with watch.of(written_together(write.sinks)):
                    self._records.write(write, as_text(frame), number, checkpoint)
            rows = {name: each.rows() for name, each in counted.items()}
            dead = refusals.letters + (letters.rows() if letters is not None else 0)
            tally = Tally(rows, dead, violations, seconds=watch.seconds)
            tally.reasons.update(refusals.kinds)
            tally.reasons.update(letters.by_kind() if letters is not None else {})
            tally.times = times.times() if times is not None else None
            self._wrote(tally, number)
            self.unavailable = ""
        except SinkUnavailable as error:
            self.unavailable = str(error)
            raise
        finally:
            if several:
                batch.unpersist()

    def idle(self) -> None:
        """Called about once a second, from another thread than the one that writes batches."""
        for sink in self._others.values():
            sink.idle()

    def close(self) -> None:
        """The query ends without a failure."""
        for sink in self._others.values():
            sink.close()

    def _open(self, checkpoint: str) -> None:
        """At the first batch, when the identity of the checkpoint is known."""
        if self._others:
            return
        for name in self._query.sinks:
            sink = self._pipeline.sinks[name]
            if isinstance(sink, FormatSink):
                if SINK_FORMATS.get(sink.format, ANY_FORMAT).adds_columns and self._gets_columns(sink):
                    sink = replace(sink, options={MERGE_SCHEMA: "true", **sink.options})
                refusals = on_refusal(self._pipeline, self._analysis, name) != "fail"
                names = (name, self._pipeline.name, self._query.name, self._directory)
                self._others[name] = open_sink(sink, *names, checkpoint=checkpoint, refusals=refusals)

    def _gets_columns(self, sink: FormatSink) -> bool:
        """Whether its rows may get columns that were not known before."""
        table = self._analysis.find(sink.source)
        sources = (self._pipeline.sources[name] for name in (table.sources if table is not None else ()))
        return any(isinstance(each, TopicSource) and each.evolution == "add-columns" for each in sources)

    def _topics(self, outputs: Outputs) -> Iterator[tuple[TopicWrite, DataFrame]]:
        """The records for topics, by write; usually one."""
        letters = outputs.dead_letters
        for write in self._writes:
            frames = [outputs.sinks[name] for name in write.sinks]
            if write.takes_dead_letters and letters is not None:
                frames.append(letters)
                letters = None
            if frames:
                yield write, reduce(lambda above, below: above.union(below), frames)
        if letters is not None:  # of rows that a server refused
            yield TopicWrite({}, "exactly-once", ()), letters

    def _violations(self, tables: Tables) -> dict[tuple[str, str], int]:
        """For expectations whose broken rows are kept. Only these cost an additional job."""
        return {
            (name, expectation.title): tables.broken(name, expectation).count()
            for name, expectation in tables.violations
        }
