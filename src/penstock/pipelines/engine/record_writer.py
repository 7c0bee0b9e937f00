"""Writes the records of a query to topics: as a stream, or batch by batch under the same names.

A decision is named by pipeline, query, sinks with options of their own, and the checkpoint that numbers the batches.
Both ways make the same name. So a query may change from one to the other, by an edit or by an upgrade, and a batch that
was decided before is not written again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipelines.check.query_plan import QueryPlan
from penstock.pipelines.check.routes import TopicWrite
from penstock.pipelines.engine.prepared import Prepared, only_records
from penstock.pipelines.spec.model import Pipeline
from penstock.pipelines.spec.secrets import plain_of_topic
from penstock.spark.sink.naming import sink_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RecordWriter:
    """Writes the records of a query's batches to topics."""

    def __init__(self, pipeline: Pipeline, query: QueryPlan, bootstrap: str) -> None:
        self._names = (pipeline.name, query.name)
        self._bootstrap = bootstrap

    def stream_options(self, write: TopicWrite) -> dict[str, str]:
        """For the streaming sink, which knows its checkpoint and counts its batches by itself."""
        options = self._options(write)
        if write.delivery == "exactly-once":
            options["sinkNames"] = json.dumps([*self._names, *write.names])
        return options

    def write(self, write: TopicWrite, frame: DataFrame, number: int, checkpoint: str) -> None:
        """`checkpoint`: the identity of what numbers the batches."""
        options = self._options(write)
        if write.delivery == "exactly-once":
            options["sinkId"] = sink_id(*self._names, *write.names, checkpoint=checkpoint)
            options["version"] = str(number)
        frame.write.format("penstock").mode("append").options(**options).save()

    def _options(self, write: TopicWrite) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._bootstrap,
            "deliveryGuarantee": write.delivery,
            **plain_of_topic(write.options),
        }


class PreparedWriter:
    """Called by Spark with each batch of prepared records, in order."""

    def __init__(self, prepared: Prepared, writes: Sequence[TopicWrite], records: RecordWriter) -> None:
        self._prepared = prepared
        self._writes = writes
        self._records = records

    def __call__(self, batch: DataFrame, number: int) -> None:
        checkpoint = checkpoint_of_batch(batch)
        if len(self._writes) == 1:
            self._records.write(self._writes[0], only_records(batch), number, checkpoint)
            return
        batch = batch.persist()
        try:
            for write in self._writes:
                frame = self._prepared.of(batch, write)
                self._records.write(write, frame, number, checkpoint)
        finally:
            batch.unpersist()


def checkpoint_of_batch(batch: DataFrame) -> str:
    from penstock.spark.sink.writer import QUERY_ID

    return batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID) or ""
