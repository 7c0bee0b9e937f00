"""What `bench.spark` measures: queries of Structured Streaming, and how fast their batches were.

A rate is taken from Spark's own progress: rows of a batch over the time of its trigger, planning and checkpoint
included, without the first batches of a query, in which code is generated and compiled.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrow import Writer
from penstock.client.admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

VALUE_BYTES = 100
WARM_UP_BATCHES = 2
WINDOW = "10 seconds"
BATCH_MS = 20_000  # of event time in one batch, ours and the floor's: two or three windows
TIMEOUT_S = 300
_NUMBERS = count(1)

Sample = float
"""Rows a second."""


def floor_stream(spark: SparkSession, rows: int) -> DataFrame:
    """Spark's own rows, made in the JVM, in the shape of a topic's: nothing is read, and the values are constant."""
    rates = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=str(rows), numPartitions="2", advanceMillisPerBatch=str(BATCH_MS)
    )
    return rates.load().selectExpr(
        "cast(null as binary) key",
        f"cast('{'x' * VALUE_BYTES}' as binary) value",
        "'bench' topic",
        "cast(value % 2 as int) partition",
        "value offset",
        "timestamp",
        "0 timestampType",
    )


def topic_stream(spark: SparkSession, form: str, bootstrap: str, topic: str, rows: int) -> DataFrame:
    return (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows))
        .load()
    )


def windowed(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    return rows.withWatermark("timestamp", WINDOW).groupBy(functions.window("timestamp", WINDOW)).count()


def fill(bootstrap: str, topic: str, rows: int, batches: int, partitions: int) -> None:
    """As many rows as all batches read, with times that advance from batch to batch as the floor's do."""
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=partitions, configs={"retention.ms": "-1"})
    values = pa.array([b"x" * VALUE_BYTES] * rows, pa.binary())
    partition = pa.array(np.arange(rows, dtype=np.int32) % partitions)
    began_ms = time.time_ns() // 1_000_000 - batches * BATCH_MS
    with Writer(bootstrap) as writer:
        for batch in range(batches):
            times = began_ms + batch * BATCH_MS + np.arange(rows, dtype=np.int64) * BATCH_MS // rows
            table = pa.table(
                {"value": values, "partition": partition, "timestamp": pa.array(times, pa.timestamp("ms"))}
            )
            writer.write(topic, table, partition="partition", timestamp="timestamp")


def rows_a_second(
    rows: DataFrame, batches: int, directory: str, *, form: str = "noop", mode: str = "append", **options: str
) -> Sample:
    """Of a query that writes to `form`, in `batches` batches beside those it warms up in."""
    written = rows.writeStream.format(form).outputMode(mode).options(**options)
    query = written.option("checkpointLocation", os.path.join(directory, f"checkpoint-{next(_NUMBERS)}")).start()
    try:
        measured = _progress(query, WARM_UP_BATCHES + batches)[WARM_UP_BATCHES:]
    finally:
        query.stop()
    seconds = sum(int(each["durationMs"]["triggerExecution"]) / 1000 for each in measured)
    return sum(int(each["numInputRows"]) for each in measured) / seconds


def _progress(query: StreamingQuery, batches: int) -> list[dict[str, Any]]:
    """Of the first batches that had rows."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = [each for each in map(_plain, query.recentProgress) if each["numInputRows"]]
        if len(found) >= batches:
            return found[:batches]
        if not query.isActive:
            raise RuntimeError(f"the query ended after {len(found)} batches of {batches}: {query.exception()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} batches of {batches} within {TIMEOUT_S} s")
        time.sleep(0.05)


def _plain(progress: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(progress.json)
    return parsed


@contextmanager
def paced_producer(bootstrap: str, topic: str, records_a_second: int) -> Iterator[None]:
    """A record every so often, its value the time it was sent at."""
    ending = threading.Event()

    def run() -> None:
        with Producer(bootstrap, linger_ms=0) as producer:
            due = time.monotonic()
            while not ending.is_set():
                producer.send(topic, str(time.time_ns()).encode())
                producer.poll()
                due += 1 / records_a_second
                ending.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def latencies_ms(bootstrap: str, topic: str, records: int, warm_up_s: float, *, isolation: str) -> list[float]:
    """Of records that come out at the other end, sorted; those of the first seconds are not counted."""
    found: list[float] = []
    with Consumer(bootstrap, topic, settings={"isolation.level": isolation}) as consumer:
        counts_from = None
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} records of {records} came out within {TIMEOUT_S} s")
            for record in consumer.batch(1000, 1.0):
                now = time.time_ns()
                if counts_from is None:
                    counts_from = now + warm_up_s * 1e9
                sent = int(record.value)
                if sent > counts_from:
                    found.append((now - sent) / 1e6)
    return sorted(found)


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


Measure = Callable[[], Sample]
