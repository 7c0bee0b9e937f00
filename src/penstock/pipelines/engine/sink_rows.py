"""Selects the rows that a sink gets: the columns it writes, and the origin of each row's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.engine.encoding import columns_written
from penstock.pipelines.sinks.destination import ORIGIN
from penstock.pipelines.spec.model import FormatSink
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def selected(shown: DataFrame, sink: FormatSink, whole: DataFrame | None = None) -> DataFrame:
    """The columns to write, from a table as sinks see it, and the origin of each row's record, if `whole` has it."""
    from pyspark.sql import functions as f

    names = [f"`{name}`" for name in sink.columns or columns_written(shown)]
    if whole is None or SOURCE_ROW not in whole.columns:
        return shown.select(*names)
    return whole.select(*names, origin_of(f.col(SOURCE_ROW)).alias(ORIGIN))


def origin_of(record: Column) -> Column:
    """`topic-partition-offset`; NULL for a row that does not come from a topic."""
    from pyspark.sql import functions as f

    return f.concat(record["topic"], f.lit("-"), record["partition"], f.lit("-"), record["offset"])
