"""The sink for formats that Spark itself writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipelines.sinks.destination import Destination, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ConsoleSink(Sink):
    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._rows = int(destination.options.get("numRows", 20))
        self._whole = destination.options.get("truncate", "false").lower() == "false"

    def write(self, frame: DataFrame, batch: int) -> None:
        print(f"{self.destination.sink}, batch {batch}", flush=True)
        frame.show(self._rows, truncate=not self._whole)


class SparkSink(Sink):
    """Appends to a format of Spark or of the user's jars. The format decides what happens if a batch is written
    twice."""

    def write(self, frame: DataFrame, batch: int) -> None:
        to = self.destination
        writer = frame.write.format(to.format).mode("append").options(**to.options)
        if to.partition_by:
            writer = writer.partitionBy(*to.partition_by)
        writer.save(to.path or None)
