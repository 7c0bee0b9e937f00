"""What `bench.pipelines` measures of whole runs: a pipeline file beside the same written by hand.

Both read the same topic of JSON in the same batches, in turns and in one session of `local[2]`, and write to a topic
exactly once: rows that are decoded and filtered, and windows that are counted. Measured is the time from start to end
of a whole run (`--once`; by hand: `availableNow`), with what is planned before the first batch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

import pyarrow as pa

from bench.subjects import Kafka
from penstock.arrow import Writer
from penstock.demo.events import Stream, page_views
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "page-views"
PARTITIONS = 2
CHUNK = 100_000
_NUMBERS = count(1)

SCHEMA = "user STRING NOT NULL, page STRING, at TIMESTAMP NOT NULL"
FILE = """\
name: bench-{number}
bootstrap: {bootstrap}
checkpoints: {directory}/checkpoints
sources:
  views:
    topic: page-views
    value: {{format: json, schema: "{schema}"}}
    on_error: drop
    max_records: {batch}
    watermark: {{column: at, delay: 10 minutes}}
steps:
  made:
    sql: |
      {sql}
sinks:
  made: {{from: made, topic: made-{number}, key: user}}
"""
LOADS = {
    "rows": "SELECT user, page, at, length(page) AS size FROM views WHERE page <> '/help'",
    "windows": "SELECT user, window.start, count(*) AS views FROM views GROUP BY user, window(at, '5 minutes')",
}


@dataclass(frozen=True)
class WholeRuns:
    spark: SparkSession
    kafka: Kafka
    directory: str
    batch: int

    def by_file(self, load: str) -> float:
        number = next(_NUMBERS)
        path = os.path.join(self.directory, f"{number}.yaml")
        text = FILE.format(
            number=number,
            bootstrap=self.kafka.bootstrap,
            directory=self.directory,
            schema=SCHEMA,
            batch=self.batch,
            sql=LOADS[load],
        )
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        with self.kafka.topic(f"made-{number}", PARTITIONS):
            return _seconds(lambda: self._run_file(path))

    def _run_file(self, path: str) -> None:
        loaded, _ = load_checked(path)
        Runner(loaded, self.spark).run_once()

    def by_hand(self, load: str) -> float:
        number = next(_NUMBERS)
        with self.kafka.topic(f"made-{number}", PARTITIONS) as topic:
            return _seconds(lambda: self._run_hand(load, topic, number))

    def _run_hand(self, load: str, topic: str, number: int) -> None:
        made = _by_hand(self.spark, self.kafka.bootstrap, self.batch, LOADS[load])
        made = made.selectExpr("user AS key", "to_json(struct(*), map('ignoreNullFields', 'false')) AS value")
        query = (
            made.writeStream.format("penstock")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", os.path.join(self.directory, f"by-hand-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _by_hand(spark: SparkSession, bootstrap: str, batch: int, sql: str) -> DataFrame:
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch))
        .load()
    )
    read = f.from_json(f.col("value").cast("string"), f"{SCHEMA}, bad STRING", {"columnNameOfCorruptRecord": "bad"})
    rows = (
        records.select(read.alias("row")).select("row.*").filter("bad IS NULL AND user IS NOT NULL AND at IS NOT NULL")
    )
    rows.drop("bad").withWatermark("at", "10 minutes").createOrReplaceTempView("views")
    return spark.sql(sql)


def _seconds(run: Callable[[], None]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def fill(kafka: Kafka, rows: int) -> None:
    events = page_views(Stream(step_ms=12 * 3_600_000 / rows, keys=1000, late=0.0, poison=0.0))
    with Writer(kafka.bootstrap) as writer:
        for _ in range(0, rows, CHUNK):
            chunk = list(islice(events, CHUNK))
            table = pa.table({"key": [each.key for each in chunk], "value": [each.value for each in chunk]})
            writer.write(TOPIC, table)
