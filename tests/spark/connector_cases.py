"""Spark's own Kafka connector at work on a cluster, a case each for what its documentation names.

    python connector_cases.py BOOTSTRAP DIRECTORY JAR,... PREFIX [CASE...]

is a driver with a JVM of its own, because jars must be known when it starts. Every case prints one line of JSON: its
name, and what went wrong or null. Input is made here, so that a case can be run against any cluster.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.client.wire.admin import Admin
from penstock.model.ids import TopicPartition
from penstock.spark import session

BASE_MS = 1_700_000_000_000
PER_PARTITION = 20
PARTITIONS = 3
LAST_MS = BASE_MS + (PER_PARTITION - 1) * 1000


class World:
    """A cluster, a session, and topics of this run."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: str, prefix: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.prefix = prefix
        self._directory = directory
        self._names = iter(range(1_000_000))

    def new_topic(self, partitions: int = 1, infix: str = "topic") -> str:
        name = f"{self.prefix}-{infix}-{next(self._names)}"
        with Admin(self.bootstrap) as admin:
            admin.topics.create(name, partitions=partitions, configs={"retention.ms": "-1"})
        return name

    def new_directory(self) -> str:
        return f"{self._directory}/{next(self._names)}"

    def filled_topic(self, infix: str = "filled") -> str:
        """Every partition has records a second apart: keys, values and headers there or not."""
        topic = self.new_topic(PARTITIONS, infix)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for partition in range(PARTITIONS):
            for number in range(PER_PARTITION):
                producer.produce(
                    topic,
                    value=None if number % 7 == 3 else f"{partition}/{number}".encode(),
                    key=None if number % 5 == 4 else f"key-{number}".encode(),
                    headers=[("number", str(number).encode()), ("none", None)] if number % 2 else None,
                    partition=partition,
                    timestamp=BASE_MS + number * 1000,
                )
        assert producer.flush(60) == 0
        return topic

    def options(self, format_name: str, options: Mapping[str, Any]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **{key: str(value) for key, value in options.items()}}

    def batch(self, format_name: str = "kafka", **options: Any) -> DataFrame:
        return self.spark.read.format(format_name).options(**self.options(format_name, options)).load()

    def stream(self, format_name: str = "kafka", **options: Any) -> list[tuple[int, list[Row]]]:
        """All there is (AvailableNow), batch by batch."""
        batches: list[tuple[int, list[Row]]] = []
        rows = self.spark.readStream.format(format_name).options(**self.options(format_name, options)).load()
        query = (
            rows.writeStream.foreachBatch(lambda batch, number: batches.append((number, batch.collect())))
            .option("checkpointLocation", self.new_directory())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches

    def write(self, rows: DataFrame, format_name: str = "kafka", **options: Any) -> None:
        rows.write.format(format_name).options(**self.options(format_name, options)).mode("append").save()

    def write_stream(self, rows: DataFrame, format_name: str = "kafka", **options: Any) -> None:
        query = (
            rows.writeStream.format(format_name)
            .options(**self.options(format_name, options))
            .option("checkpointLocation", self.new_directory())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def places(rows: list[Row]) -> set[tuple[int, int]]:
    found = [(row.partition, row.offset) for row in rows]
    assert len(found) == len(set(found)), "rows twice"
    return set(found)


def between(starts: Mapping[int, int], ends: Mapping[int, int]) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in starts for offset in range(starts[partition], ends[partition])}


def everything(partitions: int = PARTITIONS) -> set[tuple[int, int]]:
    return between(dict.fromkeys(range(partitions), 0), dict.fromkeys(range(partitions), PER_PARTITION))


def batch_reads(world: World) -> None:
    """subscribe (of several topics), subscribePattern, assign; every column of every row."""
    one, other = world.filled_topic("pattern"), world.filled_topic("pattern")
    rows = world.batch(subscribe=f"{one},{other}", includeHeaders="true").collect()
    for topic in (one, other):
        of_topic = [row for row in rows if row.topic == topic]
        assert places(of_topic) == everything()
        for row in of_topic:
            number = row.offset
            assert row.value == (None if number % 7 == 3 else f"{row.partition}/{number}".encode())
            assert row.key == (None if number % 5 == 4 else f"key-{number}".encode())
            assert row.timestamp.replace(tzinfo=UTC) == datetime.fromtimestamp(BASE_MS / 1000 + number, UTC)
            assert row.timestampType == 0
            headers = [(header.key, header.value) for header in row.headers or ()]
            assert headers == ([("number", str(number).encode()), ("none", None)] if number % 2 else [])
    pattern = f"{world.prefix}-pattern-.*"
    assert {row.topic for row in world.batch(subscribePattern=pattern).select("topic").collect()} == {one, other}
    assigned = world.batch(assign=json.dumps({one: [0, 2]})).collect()
    assert places(assigned) == {place for place in everything() if place[0] != 1}


def batch_bounds(world: World) -> None:
    """Starting and ending offsets, -1 and -2 among them; times, of all partitions and of each."""
    topic = world.filled_topic()
    starts, ends = {0: 5, 1: -2, 2: 7}, {0: 9, 1: -1, 2: 7}
    rows = world.batch(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {str(each): offset for each, offset in starts.items()}}),
        endingOffsets=json.dumps({topic: {str(each): offset for each, offset in ends.items()}}),
    ).collect()
    assert places(rows) == between({0: 5, 1: 0}, {0: 9, 1: PER_PARTITION})
    rows = world.batch(subscribe=topic, startingTimestamp=BASE_MS + 3500, endingTimestamp=BASE_MS + 8000).collect()
    assert places(rows) == between(dict.fromkeys(range(3), 4), dict.fromkeys(range(3), 8))
    times = {"0": BASE_MS, "1": BASE_MS + 2000, "2": BASE_MS + 10_000}
    rows = world.batch(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: times}),
        endingOffsetsByTimestamp=json.dumps({topic: dict.fromkeys(times, BASE_MS + 11_000)}),
    ).collect()
    assert places(rows) == between({0: 0, 1: 2, 2: 10}, {0: 11, 1: 11, 2: 11})
    late = world.batch(
        subscribe=topic, startingTimestamp=LAST_MS + 1, startingOffsetsByTimestampStrategy="latest"
    ).collect()
    assert late == []


def batch_splits(world: World) -> None:
    """minPartitions: more tasks, the same rows; maxRecordsPerPartition: the same rows."""
    topic = world.filled_topic()
    rows = world.batch(subscribe=topic, minPartitions="6")
    assert rows.rdd.getNumPartitions() == 6
    assert places(rows.collect()) == everything()
    assert places(world.batch(subscribe=topic, maxRecordsPerPartition="8").collect()) == everything()


def committed_reads(world: World) -> None:
    """read_committed leaves out what was aborted and what is not decided, in batch and in a stream."""
    topic = world.new_topic()
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(60)
    for number, outcome in enumerate(["commit", "abort", "commit", "open"]):
        producer.begin_transaction()
        producer.produce(topic, value=f"{outcome}-{number}".encode(), partition=0)
        assert producer.flush(60) == 0
        if outcome != "open":
            (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(60)
    try:
        committed = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
        expected = [b"commit-0", b"commit-2"]
        assert [row.value for row in world.batch(**committed).collect()] == expected
        seen = [row.value for _, rows in world.stream(startingOffsets="earliest", **committed) for row in rows]
        assert seen == expected
        assert world.batch(subscribe=topic).count() == 4
    finally:
        producer.abort_transaction(60)


def stream_reads(world: World) -> None:
    """AvailableNow in limited batches, by topics, pattern and partitions; from times and from the end."""
    topic = world.filled_topic("stream")
    pattern = f"{world.prefix}-stream-.*"
    for where in ({"subscribe": topic}, {"subscribePattern": pattern}, {"assign": json.dumps({topic: [0, 1, 2]})}):
        batches = world.stream(startingOffsets="earliest", maxOffsetsPerTrigger="25", **where)
        assert places([row for _, rows in batches for row in rows]) == everything()
        assert len([rows for _, rows in batches if rows]) >= 3
        assert all(len(rows) <= 27 for _, rows in batches)  # a share for every partition is rounded up
    rows = [row for _, rows in world.stream(subscribe=topic, startingTimestamp=BASE_MS + 15_000) for row in rows]
    assert places(rows) == between(dict.fromkeys(range(3), 15), dict.fromkeys(range(3), PER_PARTITION))
    assert not [row for _, rows in world.stream(subscribe=topic, startingOffsets="latest") for row in rows]


def lost_data(world: World) -> None:
    """Records that were deleted meanwhile: an error, or passed over if told so."""
    topic = world.filled_topic()
    with Admin(world.bootstrap) as admin:
        admin.topics.delete_records({TopicPartition(topic, 0): 6})
    told = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2, "1": 0, "2": 0}})}
    rows = world.batch(failOnDataLoss="false", **told).collect()
    assert places(rows) == between({0: 6, 1: 0, 2: 0}, dict.fromkeys(range(3), PER_PARTITION))
    try:
        world.batch(failOnDataLoss="true", **told).collect()
    except (PySparkException, Py4JJavaError) as error:
        assert "offset" in str(error).lower(), error
    else:
        raise AssertionError("lost data was not noticed")


def batch_writes(world: World) -> None:
    """key, value, headers, topic and partition as columns; the topic as an option goes before its column."""
    one, other = world.new_topic(3), world.new_topic(1)
    rows = world.spark.range(30).selectExpr(
        "binary(string(id)) AS key",
        "string(id) AS value",
        "array(struct('h' AS key, binary(string(id)) AS value), struct('n' AS key, null AS value)) AS headers",
        f"if(id % 2 = 0, '{one}', '{other}') AS topic",
        "int(if(id % 2 = 0, id % 3, 0)) AS partition",
    )
    world.write(rows, includeHeaders="true")
    found = world.batch(subscribe=f"{one},{other}", includeHeaders="true").collect()
    assert sorted(int(row.value) for row in found) == list(range(30))
    for row in found:
        number = int(row.value)
        assert row.topic == (other if number % 2 else one)
        assert row.partition == (0 if number % 2 else number % 3)
        assert row.key == row.value == row.headers[0].value and row.headers[1].value is None
    third = world.new_topic(2)
    world.write(rows.drop("partition"), topic=third, **{"kafka.compression.type": "zstd"})
    assert world.batch(subscribe=third).count() == 30


def stream_writes(world: World) -> None:
    """From topic to topic."""
    source, target = world.filled_topic(), world.new_topic(2)
    options = world.options("kafka", {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"})
    rows = world.spark.readStream.format("kafka").options(**options).load()
    world.write_stream(rows.select("key", "value", "headers"), topic=target)
    read, written = world.batch(subscribe=source), world.batch(subscribe=target)
    assert sorted(map(str, read.select("key", "value").collect())) == sorted(
        map(str, written.select("key", "value").collect())
    )


def same_rows(world: World) -> None:
    """Ours and Spark's, asked the same, answer the same, column for column."""
    topic = world.filled_topic()
    for options in _same_questions(topic):
        theirs, ours = world.batch("kafka", **options), world.batch("penstock", **options)
        assert theirs.schema.simpleString() == ours.schema.simpleString(), (options, theirs.schema, ours.schema)
        assert _sorted(theirs.collect()) == _sorted(ours.collect()), options
    streamed = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    spark_rows, our_rows = (
        _sorted([row for _, rows in world.stream(name, **streamed) for row in rows]) for name in ("kafka", "penstock")
    )
    assert spark_rows == our_rows


def _same_questions(topic: str) -> Iterator[dict[str, Any]]:
    yield {"subscribe": topic, "includeHeaders": "true"}
    yield {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3, "1": -2, "2": 20}})}
    yield {"assign": json.dumps({topic: [1]}), "endingOffsets": json.dumps({topic: {"1": 11}})}
    yield {"subscribe": topic, "startingTimestamp": BASE_MS + 4001, "endingTimestamp": BASE_MS + 9000}
    yield {"subscribe": topic, "minPartitions": "5"}


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def passed_on(world: World) -> None:
    """Written by one and read by the other, both ways."""
    for writer, reader in (("kafka", "penstock"), ("penstock", "kafka")):
        topic = world.new_topic(2)
        rows = world.spark.range(50).selectExpr("string(id % 10) AS key", "string(id) AS value")
        world.write(rows, writer, topic=topic)
        found = world.batch(reader, subscribe=topic, **{"kafka.isolation.level": "read_committed"}).collect()
        assert sorted(int(row.value) for row in found) == list(range(50))
        world.write(rows, "kafka", topic=topic)
        by_key: dict[bytes, set[int]] = {}
        for row in world.batch("kafka", subscribe=topic).collect():
            by_key.setdefault(row.key, set()).add(row.partition)
        assert all(len(partitions) == 1 for partitions in by_key.values()), "both must place a key alike"


CASES: dict[str, Callable[[World], None]] = {
    case.__name__: case
    for case in (
        batch_reads,
        batch_bounds,
        batch_splits,
        committed_reads,
        stream_reads,
        lost_data,
        batch_writes,
        stream_writes,
        same_rows,
        passed_on,
    )
}


def main(bootstrap: str, directory: str, jars: str, prefix: str, *names: str) -> None:
    config = {"spark.driver.memory": "700m", "spark.sql.session.timeZone": "UTC", "spark.local.dir": directory}
    spark = session("both-doors", "local[2]", config | ({"spark.jars": jars} if jars else {}))
    world = World(spark, bootstrap, directory, prefix)
    for name in names or CASES:
        wrong = None
        try:
            CASES[name](world)
        except Exception:  # noqa: BLE001, whatever it is, it is told, and the next case runs
            wrong = traceback.format_exc()
        print(json.dumps({"case": name, "wrong": wrong}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
