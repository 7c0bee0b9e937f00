"""What `bench.pipelines` measures of running pipelines: latency, and the time of a batch.

The fleet is that of `penstock demo` without its triggers: three queries, of which two pass records on and one counts
windows and writes what has changed. By hand means the same queries in Structured Streaming with our source and sink,
exactly once. Both ways take turns in one session.

The load has as many queries as wanted, each from a topic of its own to another one, row by row.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.pipeline_load import LoadResult, LoadSettings
from bench.subjects import Kafka
from penstock.demo.workload import pipeline_file
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2
FLEET_RATE = 400  # 200 a second into each of the two topics
_NUMBERS = count(1)
_PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")

LOCATIONS = "truck STRING NOT NULL, sequence BIGINT NOT NULL, at TIMESTAMP NOT NULL, latitude DOUBLE, longitude DOUBLE"
LOCATED = """\
SELECT truck, sequence, at, speed, speed > 80 AS fast,
       concat(if(latitude >= 50.5, 'north', 'south'), if(longitude >= 10, '-east', '-west')) AS region
FROM locations"""
FUEL = "truck STRING NOT NULL, sequence BIGINT NOT NULL, at TIMESTAMP NOT NULL, litres DOUBLE"
TANKS = "SELECT truck, sequence, at, litres, litres < 80 AS low FROM fuel"
REGIONS = """\
SELECT region, window.start AS since, count(*) AS reports, count_if(speed > 0) AS driving,
       round(avg(nullif(speed, 0)), 1) AS speed
FROM located GROUP BY region, window(at, '5 seconds')"""

LOAD = """\
name: load-{number}
bootstrap: {bootstrap}
checkpoints: {directory}
sources:
{sources}
steps:
{steps}
sinks:
{sinks}
"""


@dataclass(frozen=True, kw_only=True)
class Sample:
    load: LoadResult
    batches: dict[str, float]
    """Medians of Spark's `durationMs`, by phase, and of the rows of a batch."""

    def to_json(self) -> dict[str, Any]:
        return {**self.load.__dict__, "batches": self.batches}


@dataclass(frozen=True, kw_only=True)
class Clock:
    warm_up_s: float
    seconds: float
    patience_s: float = 20.0


@dataclass(frozen=True)
class Latencies:
    spark: SparkSession
    kafka: Kafka
    directory: str

    def fleet_by_file(self, clock: Clock) -> Sample:
        names = Names(next(_NUMBERS))
        with open(pipeline_file("fleet"), encoding="utf-8") as file:
            text = names.apply(without_triggers(file.read()))
        with self._topics(names), self._running(text, names.number) as runner:
            return self._sample(clock, names, lambda: runner_batches(runner, "locations"))

    def fleet_by_hand(self, clock: Clock) -> Sample:
        names = Names(next(_NUMBERS))
        with self._topics(names):
            queries = fleet_by_hand(self.spark, self.kafka.bootstrap, os.path.join(self.directory, names.of("")), names)
            try:
                return self._sample(clock, names, lambda: [json.loads(each.json) for each in queries[0].recentProgress])
            finally:
                for query in queries:
                    query.stop()

    def load(self, queries: int, rate: int, clock: Clock) -> LoadResult:
        """By file."""
        number = next(_NUMBERS)
        sources = [f"in-{number}-{each}" for each in range(queries)]
        sinks = [f"out-{number}-{each}" for each in range(queries)]
        with contextlib.ExitStack() as stack:
            for topic in (*sources, *sinks, f"load-{number}.dead-letters"):
                stack.enter_context(self.kafka.topic(topic, PARTITIONS))
            stack.enter_context(self._running(load_file(number, sources, sinks), number))
            return self._measured(sources, sinks, rate, clock)

    def _sample(self, clock: Clock, names: Names, progress: Callable[[], list[dict[str, Any]]]) -> Sample:
        sources, sinks = [names.of("truck-locations"), names.of("truck-fuel")], [names.of("fleet.locations")]
        made = self._measured(sources, sinks, FLEET_RATE, clock)
        return Sample(load=made, batches=batch_medians(progress()))

    def _measured(self, sources: list[str], sinks: list[str], rate: int, clock: Clock) -> LoadResult:
        settings = LoadSettings(
            bootstrap=self.kafka.bootstrap,
            sources=sources,
            sinks=sinks,
            rate=rate,
            partitions=PARTITIONS,
            warm_up_s=clock.warm_up_s,
            seconds=clock.seconds,
            patience_s=clock.patience_s,
        )
        command = [sys.executable, "-m", "bench.pipeline_load", json.dumps(settings.__dict__)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return LoadResult(**json.loads(told.splitlines()[-1]))

    @contextlib.contextmanager
    def _topics(self, names: Names) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for topic in names.topics:
                stack.enter_context(self.kafka.topic(topic, PARTITIONS))
            yield

    @contextlib.contextmanager
    def _running(self, text: str, number: int) -> Iterator[Runner]:
        path = os.path.join(self.directory, f"latency-{number}.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        given = {
            "bootstrap": self.kafka.bootstrap,
            "checkpoints": os.path.join(self.directory, f"checkpoints-{number}"),
        }
        loaded, _ = load_checked(path, None, {name: value for name, value in given.items() if f"${{{name}}}" in text})
        if "parameters" not in text:
            pipeline = replace(loaded.pipeline, bootstrap=given["bootstrap"], checkpoints=given["checkpoints"])
            loaded = replace(loaded, pipeline=pipeline)
        runner = Runner(loaded, self.spark)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            _wait_until_all_run(runner, thread)
            yield runner
        finally:
            runner.stop()
            thread.join()


@dataclass(frozen=True)
class Names:
    """The names of one run's pipeline and topics: those of the demo with a number behind."""

    number: int

    def of(self, name: str) -> str:
        return f"{name}-{self.number}"

    @property
    def topics(self) -> list[str]:
        made = ("truck-locations", "truck-fuel", "fleet.locations", "fleet.fuel", "fleet.report")
        return [*(self.of(name) for name in made), f"{self.of('fleet')}.dead-letters"]

    def apply(self, text: str) -> str:
        text = text.replace("name: fleet\n", f"name: {self.of('fleet')}\n")
        return re.sub(
            r"(topic: )([\w.-]+)", lambda found: f"{found[1]}{self.of(found[2])}", text.partition("tests:")[0]
        )


def without_triggers(text: str) -> str:
    return re.sub(r"^(trigger: .*|queries:|  regions: \{trigger: .*)\n", "", text, flags=re.MULTILINE)


def load_file(number: int, sources: list[str], sinks: list[str]) -> str:
    numbers = range(len(sources))
    schema = f"{LOCATIONS}, speed INT"
    return LOAD.format(
        number=number,
        bootstrap="127.0.0.1:9092",
        directory="checkpoints",
        sources="\n".join(
            f'  s{each}: {{topic: {sources[each]}, value: {{format: json, schema: "{schema}"}}}}' for each in numbers
        ),
        steps="\n".join(
            f"  p{each}: {{sql: 'SELECT truck, sequence, at, speed > 80 AS fast FROM s{each} WHERE speed > 0'}}"
            for each in numbers
        ),
        sinks="\n".join(f"  p{each}: {{from: p{each}, topic: {sinks[each]}, key: truck}}" for each in numbers),
    )


def fleet_by_hand(spark: SparkSession, bootstrap: str, place: str, names: Names) -> list[StreamingQuery]:
    """The three queries; that of locations is the first."""
    from pyspark.sql import functions as f

    def rows(topic: str, schema: str) -> DataFrame:
        records = (
            spark.readStream.format("penstock")
            .options(**{"kafka.bootstrap.servers": bootstrap, "kafka.isolation.level": "read_committed"})
            .options(subscribe=names.of(topic), startingOffsets="earliest", maxOffsetsPerTrigger="20000")
            .load()
        )
        text = f.col("value").cast("string")
        read = f.from_json(text, f"{schema}, bad STRING", {"columnNameOfCorruptRecord": "bad"})
        return records.select(read.alias("row")).select("row.*").filter("bad IS NULL").drop("bad")

    def encoded(frame: DataFrame, key: str) -> DataFrame:
        return frame.selectExpr(f"{key} AS key", "to_json(struct(*), map('ignoreNullFields', 'false')) AS value")

    def written(frame: DataFrame, key: str, topic: str) -> StreamingQuery:
        return (
            encoded(frame, key)
            .writeStream.format("penstock")
            .options(**{"kafka.bootstrap.servers": bootstrap}, topic=names.of(topic))
            .option("checkpointLocation", os.path.join(place, topic))
            .start()
        )

    def write_report(batch: DataFrame, number: int) -> None:
        options = {"topic": names.of("fleet.report"), "sinkId": names.of("by-hand"), "version": str(number)}
        made = encoded(batch, "region").write.format("penstock").mode("append")
        made.options(**{"kafka.bootstrap.servers": bootstrap}, **options).save()

    locations = rows("truck-locations", f"{LOCATIONS}, speed INT")
    locations.withWatermark("at", "10 seconds").createOrReplaceTempView("locations")
    rows("truck-fuel", FUEL).createOrReplaceTempView("fuel")
    located = spark.sql(LOCATED)
    located.createOrReplaceTempView("located")
    report = spark.sql(REGIONS).writeStream.outputMode("update").foreachBatch(write_report)
    return [
        written(located, "truck", "fleet.locations"),
        written(spark.sql(TANKS), "truck", "fleet.fuel"),
        report.option("checkpointLocation", os.path.join(place, "report")).start(),
    ]


def running_queries(spark: SparkSession) -> dict[str, Any]:
    """Spark's own objects, by name, of all sessions: each query of a pipeline has a session of its own."""
    found = spark._jsparkSession.sharedState().activeStreamingQueries().values()
    return {query.name(): query for query in found}


def runner_batches(runner: Runner, query: str) -> list[dict[str, Any]]:
    running = running_queries(runner.session)[f"{runner.loaded.pipeline.name}.{query}"]
    return [json.loads(each.json()) for each in running.recentProgress()]


def batch_medians(progress: list[dict[str, Any]]) -> dict[str, float]:
    """Of the batches with rows, without the first half, in which code is compiled."""
    found = [each for each in progress if each["numInputRows"]]
    found = found[len(found) // 2 :]
    taken: dict[str, list[float]] = defaultdict(list)
    for each in found:
        taken["rows"].append(each["numInputRows"])
        for phase in _PHASES:
            taken[phase].append(each["durationMs"].get(phase, 0))
    return {name: median(values) for name, values in taken.items()}


def _wait_until_all_run(runner: Runner, thread: threading.Thread) -> None:
    """Until every query waits for records."""
    names = {f"{runner.loaded.pipeline.name}.{query}" for query in runner.queries}
    while thread.is_alive():
        if names <= running_queries(runner.session).keys():
            return
        time.sleep(0.05)
    raise RuntimeError("the pipeline has ended")
