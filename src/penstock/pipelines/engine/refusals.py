"""Handles rows that a sink's server refused: drops them, makes dead letters of them, or fails.

A dead letter is the original record that the row comes from, so that it can be replayed when the table is repaired. It
is found in the batch by its origin.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from penstock.pipelines.engine.sink_rows import origin_of
from penstock.pipelines.engine.tables import FIELD, KIND, REASON, DeadRows
from penstock.pipelines.sinks.destination import Refused
from penstock.pipelines.spec.model import FormatSink
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.pipelines.spec.sql import SOURCE_ROW

if TYPE_CHECKING:
    from penstock.pipelines.check.analysis import Analysis
    from penstock.pipelines.engine.tables import Tables
    from penstock.pipelines.spec.model import Pipeline

logger = logging.getLogger("penstock.pipelines")


def on_refusal(pipeline: Pipeline, analysis: Analysis, sink: str) -> Literal["fail", "drop", "dead-letter"]:
    """As the file says; the default is a dead letter if that is possible."""
    declared = pipeline.sinks[sink]
    assert isinstance(declared, FormatSink)
    if declared.history:
        return "fail"  # without it, the versions of its key would be others
    if declared.on_error:
        return declared.on_error
    table = analysis.find(declared.source)
    keeps = table is not None and table.drive == "stream" and not table.loses_row
    return "dead-letter" if keeps else "fail"


class Refusals:
    """The refused rows of one batch."""

    def __init__(self, pipeline: Pipeline, analysis: Analysis, tables: Tables, batch: int) -> None:
        self._pipeline = pipeline
        self._analysis = analysis
        self._tables = tables
        self._batch = batch
        self.dead: list[DeadRows] = []
        self.letters = 0
        self.kinds: Counter[str] = Counter()

    def add(self, sink: str, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        logger.warning('batch %d: sink "%s" refused %d rows: %s', self._batch, sink, len(refused), refused[0].reason)
        what = on_refusal(self._pipeline, self._analysis, sink)
        if what == "fail":
            raise PipelineFailed(f'sink "{sink}" refused {len(refused)} rows: {refused[0].reason}')
        if what == "dead-letter":
            self.dead.append(self._records(sink, refused))
            letters = len({each.origin for each in refused})
            self.letters += letters
            self.kinds[_kind(sink)] += letters

    def _records(self, sink: str, refused: Sequence[Refused]) -> DeadRows:
        from pyspark.sql import functions as f

        table = self._analysis.find(self._pipeline.sinks[sink].source)
        assert table is not None
        whole = self._tables.frames[table.name]
        reasons = {each.origin: f'sink "{sink}": {each.reason}' for each in refused}
        refusals = whole.sparkSession.createDataFrame(list(reasons.items()), f"origin string, {REASON} string")
        found = whole.select(SOURCE_ROW).join(f.broadcast(refusals), origin_of(f.col(SOURCE_ROW)) == f.col("origin"))
        kind = _kind(sink)
        nothing = f.lit(None).cast("string").alias(FIELD)
        rows = found.select(SOURCE_ROW, REASON, nothing, f.lit(kind).alias(KIND))
        return DeadRows(table.name, rows, multiplied=True, kinds=(kind,))


def _kind(sink: str) -> str:
    return f'sink "{sink}" refused it'
