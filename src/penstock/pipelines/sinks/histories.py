"""Slowly changing tables: every version of a row stays, with the time from which and until which it is valid.

The versions of a key are what was written for it, sorted by time, without those that equal the one before. Each is
valid until the next begins, and the last is the current one. So a batch takes the known versions of its keys, adds its
rows, and replaces all of them: a row that comes late gets its place between two others, and a row that changes nothing
makes no version.

A version begins at the time in a column of the row (`history_time`), otherwise when it is written. That column alone
makes no other version. Of rows with the same key and time the last one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.pipelines.sinks.shaping import as_json
from penstock.pipelines.spec.sink_formats import IS_CURRENT, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDER, _DOCUMENT, _NEWNESS = "__order", "__document", "__newness"
_KNOWN = -1


def shaped(frame: DataFrame) -> DataFrame:
    """With the columns of a table of versions, for its schema."""
    from pyspark.sql import functions as f

    nothing = f.lit(None)
    times = (nothing.cast("timestamp").alias(name) for name in (VALID_FROM, VALID_TO))
    return frame.select("*", *times, nothing.cast("boolean").alias(IS_CURRENT))


def beginning(frame: DataFrame, time: str, now: datetime) -> DataFrame:
    """Rows with the time from which they are valid. `time`: the column that has it; empty: now."""
    from pyspark.sql import functions as f

    written = f.lit(now)
    begins = f.coalesce(f.col(_ticked(time)).cast("timestamp"), written) if time else written
    return frame.withColumn(VALID_FROM, begins).withColumn(_ORDER, f.monotonically_increasing_id())


def versions(known: DataFrame | None, new: DataFrame, key: Sequence[str], time: str) -> DataFrame:
    """All versions of the keys of `new`, which `beginning` made. `known` are those of the table, for these keys."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    united = new
    if known is not None:
        earlier = known.drop(VALID_TO, IS_CURRENT).withColumn(_ORDER, f.lit(_KNOWN).cast("bigint"))
        united = earlier.unionByName(new, allowMissingColumns=True)
    keys = [f.col(_ticked(name)) for name in key]
    begins, order = f.col(VALID_FROM), f.col(_ORDER)
    if not time:  # a clock that was set back must not put a new version before an old one
        latest = f.max(f.when(order == _KNOWN, begins)).over(Window.partitionBy(*keys))
        united = united.withColumn(VALID_FROM, f.when(order == _KNOWN, begins).otherwise(f.greatest(begins, latest)))
    newest_first = Window.partitionBy(*keys, begins).orderBy(order.desc())
    single = united.withColumn(_NEWNESS, f.row_number().over(newest_first)).filter(f.col(_NEWNESS) == 1).drop(_NEWNESS)
    values = single.drop(*key, time, VALID_FROM, _ORDER)
    document = as_json(values) if values.columns else f.lit("")
    in_time = Window.partitionBy(*keys).orderBy(begins)
    before = f.lag(_DOCUMENT).over(in_time)
    changes = single.withColumn(_DOCUMENT, document).withColumn(_NEWNESS, before)
    changes = changes.filter(f.col(_NEWNESS).isNull() | (f.col(_NEWNESS) != f.col(_DOCUMENT)))
    ends = f.lead(begins).over(in_time)
    placed = changes.drop(_DOCUMENT, _NEWNESS, _ORDER).withColumn(VALID_TO, ends)
    return placed.withColumn(IS_CURRENT, f.col(VALID_TO).isNull())


def _ticked(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
