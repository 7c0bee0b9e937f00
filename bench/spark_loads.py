"""What `bench.spark` measures: queries of Structured Streaming, and how fast their batches were.

A rate is taken from Spark's own progress: rows of a batch over the time of its trigger, planning and checkpoint
included, without the first batches of a query, in which code is generated and compiled.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrow import Writer
from penstock.client.librdkafka.consumer import Consumer
from penstock.client.librdkafka.producer import Producer
from penstock.client.wire.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

VALUE_BYTES = 100
PARTITIONS = 2
WARM_UP_BATCHES = 3
WINDOW = "10 seconds"
BATCH_MS = 20_000  # of event time in one batch, ours and the floor's: two or three windows
RECORDS_A_SECOND = 100
WARM_UP_S = 10
TIMEOUT_S = 300
_NUMBERS = count(1)

Sample = float
"""Rows a second."""


def floor_stream(spark: SparkSession, rows: int) -> DataFrame:
    """Spark's own rows, made in the JVM, in the shape of a topic's: nothing is read, and each value is a copy of
    constant bytes and a number. (With values that are all the same Spark makes twice as many.)"""
    rates = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=str(rows), numPartitions=str(PARTITIONS), advanceMillisPerBatch=str(BATCH_MS)
    )
    return rates.load().selectExpr(
        "cast(null as binary) key",
        f"cast(concat('{'x' * (VALUE_BYTES - 8)}', right(cast(value + 10000000 as string), 8)) as binary) value",
        "'bench' topic",
        f"cast(value % {PARTITIONS} as int) partition",
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


def fill(bootstrap: str, topic: str, rows: int, batches: int) -> None:
    """As many rows as all batches read, with times that advance from batch to batch as the floor's do."""
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    values = pa.array([b"x" * VALUE_BYTES] * rows, pa.binary())
    partition = pa.array(np.arange(rows, dtype=np.int32) % PARTITIONS)
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


@dataclass(frozen=True)
class Latency:
    """From the call that sends a record to the one that has it from the other topic."""

    delivery: str
    isolation: str
    records: int
    percentiles_ms: dict[int, float]

    def __str__(self) -> str:
        shown = ", ".join(f"p{percent} {value:.0f} ms" for percent, value in self.percentiles_ms.items())
        return f"topic to topic at {RECORDS_A_SECOND} records/s, {self.delivery}, {self.isolation}: {shown}"


def latency(spark: SparkSession, bootstrap: str, directory: str, delivery: str, records: int) -> Latency:
    isolation = "read_committed" if delivery == "exactly-once" else "read_uncommitted"
    source, target = (f"latency-{side}-{delivery}" for side in ("in", "out"))
    with Admin(bootstrap) as admin:
        for topic in (source, target):
            admin.topics.create(topic, partitions=1)
    rows = (
        spark.readStream.format("penstock")
        .options(**{"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": isolation, "subscribe": source})
        .load()
    )
    written = rows.select("value").writeStream.format("penstock")
    query = written.options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": target, "deliveryGuarantee": delivery},
        checkpointLocation=os.path.join(directory, f"checkpoint-{next(_NUMBERS)}"),
    ).start()
    try:
        with paced_producer(bootstrap, source, RECORDS_A_SECOND):
            found = _latencies_ms(bootstrap, target, records, isolation)
    finally:
        query.stop()
    hundredths = quantiles(found, n=100, method="inclusive")
    return Latency(delivery, isolation, records, {percent: hundredths[percent - 1] for percent in (50, 90, 99)})


def _latencies_ms(bootstrap: str, topic: str, records: int, isolation: str) -> list[float]:
    """Of records that come out at the other end; those of the first seconds are not counted."""
    found: list[float] = []
    counts_from: float | None = None
    deadline = time.monotonic() + TIMEOUT_S
    with Consumer(bootstrap, topic, settings={"isolation.level": isolation}) as consumer:
        while len(found) < records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} records of {records} came out within {TIMEOUT_S} s")
            for record in consumer.batch(1000, 1.0):
                now = time.time_ns()
                if counts_from is None:
                    counts_from = now + WARM_UP_S * 1e9
                sent = int(record.value)
                if sent > counts_from:
                    found.append((now - sent) / 1e6)
    return found
