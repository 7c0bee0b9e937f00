"""Prepares the records of a query: from the rows of its input to everything that goes to topics, as one plan.

    prepared = prepare(batch_plan, pipeline, query, input_rows)
    prepared.records.writeStream.format("penstock")...

`check.routes` decides which queries go this way. Each row of the input becomes an array of what it turns into, which is
exploded (`one_scan`): records for all topic sinks and its dead letter. So a batch is one scan, one job, one write and
one decision, without a call from Spark into this process.

What a batch has written is counted on the way, by Spark's observed metrics. Rows that break an expectation and are kept
are counted like rows of an output, and then taken away.

**An input with state is a barrier.** Spark's optimizer would remove columns from the state that no sink
writes, and move filters of later steps below it. Then the shape of the state, and the rows in it, would depend on the
sinks, and a checkpoint would not survive an edit of one. So the input is observed, too, in all of its columns:
nothing is moved through that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipelines.engine.counting import by_kind, counts_by_kind, time_aggregates, times_in
from penstock.pipelines.engine.encoding import MEASURED, RECORD, TIME, as_text, dead_letters
from penstock.pipelines.engine.one_scan import OUTPUT, united
from penstock.pipelines.engine.query_status import Tally
from penstock.pipelines.spec.model import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.pipelines.check.query_plan import QueryPlan
    from penstock.pipelines.check.routes import TopicWrite
    from penstock.pipelines.engine.batch import BatchPlan
    from penstock.pipelines.engine.tables import Tables
    from penstock.pipelines.spec.model import Pipeline

COUNTS, INPUT = "outputs", "input"
"""The names of the observed metrics."""


@dataclass(frozen=True, slots=True)
class Output:
    """Records of a sink; dead letters, if `sink` is empty; or rows that are only counted."""

    sink: str = ""
    violated: tuple[str, str] | None = None
    """The table, and the expectation that its rows break."""
    kinds: tuple[str, ...] = ()
    """Of the reasons of dead letters."""


@dataclass(frozen=True, slots=True)
class Prepared:
    rows: DataFrame
    """Records with the column `output`, the position of their output, and what is measured."""
    outputs: tuple[Output, ...]
    tables: Tables
    """What the records are made of."""

    @property
    def records(self) -> DataFrame:
        return only_records(self.rows)

    def of(self, rows: DataFrame, write: TopicWrite) -> DataFrame:
        """The records of one write, from a batch of `rows`."""
        from pyspark.sql import functions as f

        wanted = [
            number
            for number, output in enumerate(self.outputs)
            if (output.sink in write.sinks if output.sink else write.takes_dead_letters)
        ]
        return only_records(rows.filter(f.col(OUTPUT).isin(wanted)))

    def tally(self, observed: Mapping[str, Any]) -> Tally:
        """From the observed metrics of a batch."""
        counts = observed.get(COUNTS) or {}
        tally = Tally(times=times_in(counts))
        for number, output in enumerate(self.outputs):
            count = int(counts.get(_metric(number)) or 0)
            if output.violated is not None:
                tally.violations[output.violated] = count
            elif output.sink:
                tally.rows[output.sink] = count
            else:
                tally.dead_letters += count
                tally.reasons.update(by_kind(counts, output.kinds, _metric(number)))
        return tally


def only_records(rows: DataFrame) -> DataFrame:
    """What sinks get."""
    return rows.drop(OUTPUT, *MEASURED)


def prepare(plan: BatchPlan, pipeline: Pipeline, query: QueryPlan, input_rows: DataFrame) -> Prepared:
    """NotOnePlan if the outputs cannot be computed in one scan of the input."""
    from pyspark.sql import functions as f

    tables = plan.tables(_barrier(input_rows) if query.input in pipeline.steps else input_rows)
    outputs = {Output(sink=name): frame for name, frame in plan.topic_records(tables).items()}
    letters = [
        (Output(kinds=each.kinds), dead_letters([each], pipeline.name, pipeline.dead_letter_topic))
        for each in tables.dead
    ]
    has_headers = bool(letters) or any(_has_headers(pipeline, name) for name in query.sinks)
    counted = [(Output(violated=violated), frame) for violated, frame in _violations(tables)]
    made = [*outputs.items(), *letters, *counted]
    shaped = [as_text(frame, *MEASURED) if has_headers else frame.drop("headers") for _, frame in made]
    rows = united(shaped)
    counts = [f.count_if(f.col(OUTPUT) == number).alias(_metric(number)) for number in range(len(made))]
    for number, (output, _) in enumerate(made):
        counts += counts_by_kind(output.kinds, _metric(number), f.col(OUTPUT) == number)
    rows = rows.observe(COUNTS, *counts, *time_aggregates(f.col(TIME)))
    if counted:
        rows = rows.filter(f.col(OUTPUT) < len(made) - len(counted))
    return Prepared(rows, tuple(output for output, _ in made), tables)


def _violations(tables: Tables) -> list[tuple[tuple[str, str], DataFrame]]:
    """Rows that break an expectation and are kept, as records without content."""
    from pyspark.sql import functions as f

    types = ("string", "binary", "binary", "array<struct<key:string,value:binary>>", "bigint", "string")
    empty = dict(zip((*RECORD, *MEASURED), types, strict=True))
    nothing = [f.lit(None).cast(kind).alias(name) for name, kind in empty.items()]
    return [
        ((name, expectation.title), tables.broken(name, expectation).select(*nothing))
        for name, expectation in tables.violations
    ]


def _has_headers(pipeline: Pipeline, name: str) -> bool:
    sink = pipeline.sinks[name]
    return isinstance(sink, TopicSink) and bool(sink.headers)


def _barrier(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    def digestible(name: str, kind: str) -> Column:
        column = f.col(f"`{name.replace('`', '``')}`")
        return f.to_json(f.struct(column)) if "map<" in kind or "variant" in kind else column

    columns = [digestible(each.name, each.dataType.simpleString()) for each in rows.schema.fields]
    return rows.observe(INPUT, f.count_if(f.hash(*columns) == 0).alias("digests_of_0"))


def _metric(number: int) -> str:
    return f"output_{number}"
