"""Snapshots and increments: runs over static tables, each written exactly once.

Before a run, its range is stored (`runs/N.plan`: the upper bound of the cursor); when everything is written, that is
stored, too (`runs/N.done`). A run that was planned and not done is repeated over the same range and under the same
number, so that sinks recognise it. Spark does the same with the offsets of streams. Like Spark's checkpoints these
files have an identity: if they are deleted, runs start again, and no sink mistakes the new runs for those it has.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.sinks.shaping import time_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Run:
    number: int
    after: str | None
    """Rows whose cursor is greater than this (None: all) ..."""
    until: str | None
    """... and not greater than that (None: all that exist)."""
    checkpoint: str
    """The checkpoint that numbers the run; empty if it is older than such identities."""


class RunLog:
    def __init__(self, files: Files, checkpoint: str) -> None:
        self._files = files
        self._root = f"{checkpoint}/runs"

    def next(self, table: DataFrame, cursor: str) -> Run | None:
        """The run that was planned and not done, or a new one; None if an increment has no new rows."""
        names = self._files.names(self._root)
        planned = sorted(int(each.removesuffix(".plan")) for each in names if each.endswith(".plan"))
        last: Any = self._files.read_note(f"{self._root}/{planned[-1]}.plan") if planned else None
        if planned and f"{planned[-1]}.done" not in names:
            return Run(planned[-1], last["after"], last["until"], last.get("checkpoint", ""))
        number = planned[-1] + 1 if planned else 0
        after = last["until"] if last is not None else None
        until: str | None = None
        if cursor:
            until = _latest(table, cursor, after)
            if until is None:
                return None
        checkpoint = last.get("checkpoint", "") if last is not None else str(uuid.uuid4())
        run = Run(number, after, until, checkpoint)
        plan = {"after": after, "until": until, "checkpoint": checkpoint}
        self._files.write_note(f"{self._root}/{number}.plan", plan)
        return run

    def done(self, run: Run) -> None:
        self._files.write_note(f"{self._root}/{run.number}.done", {})
        for name in self._files.names(self._root):
            if name.partition(".")[0].isdecimal() and int(name.partition(".")[0]) < run.number:
                self._files.delete(f"{self._root}/{name}")


def rows_of(table: DataFrame, cursor: str, run: Run) -> DataFrame:
    from pyspark.sql import functions as f

    if not cursor:
        return table
    kept = f.col(cursor) <= _literal(table, cursor, run.until)
    if run.after is not None:
        kept = kept & (f.col(cursor) > _literal(table, cursor, run.after))
    return table.filter(kept)


def _latest(table: DataFrame, cursor: str, after: str | None) -> str | None:
    from pyspark.sql import functions as f

    rows = table if after is None else table.filter(f.col(cursor) > _literal(table, cursor, after))
    latest = f.max(cursor)
    is_time = table.schema[cursor].dataType.typeName() == "timestamp"
    # A time has its zone: the next run may be in a session of another zone.
    found = rows.agg(time_text(latest) if is_time else latest.cast("string")).first()
    return None if found is None else found[0]


def _literal(table: DataFrame, cursor: str, text: str | None) -> Column:
    """Text in the stored files, and the column's own type in comparisons."""
    from pyspark.sql import functions as f

    return f.lit(text).cast(table.schema[cursor].dataType)
