"""The source in Spark: columns, bounds and filters of batches; streams that stop at the present, go on, and run."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.arrow import write_table
from penstock.model.ids import TopicPartition
from penstock.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NewTopic = Callable[..., str]
HOUR = 3_600_000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def hourly(cluster: Cluster, new_topic: NewTopic) -> str:
    """Three partitions of four records each, one an hour from 1970 on, with the second and third in the wrong order."""
    topic = new_topic(partitions=3)
    hours = [0, 2, 1, 3] * 3
    write_table(
        cluster.bootstrap,
        topic,
        pa.table(
            {
                "key": [None if hour == 3 else f"k{hour}".encode() for hour in hours],
                "value": [f"v{number}".encode() if number else None for number in range(12)],
                "headers": pa.array(
                    [[{"key": "h", "value": b"x"}, {"key": "n", "value": None}]] + [[]] * 11,
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
                "time": pa.array([hour * HOUR for hour in hours], pa.timestamp("ms", "UTC")),
                "partition": pa.array([number // 4 for number in range(12)], pa.int32()),
            }
        ),
        headers="headers",
        timestamp="time",
        partition="partition",
    )
    return topic


def reading(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> Any:
    return spark.read.format("penstock").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic} | options
    )


def streaming(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("penstock").options(**given | options).load()


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_a_batch_has_the_columns_of_sparks_own_source(spark: SparkSession, cluster: Cluster, hourly: str) -> None:
    frame = reading(spark, cluster, hourly, includeHeaders="true", minPartitions="6").load()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = {(row.partition, row.offset): row for row in frame.collect()}
    assert rows.keys() == {(partition, offset) for partition in range(3) for offset in range(4)}
    first, last = rows[0, 0], rows[2, 3]
    assert (bytes(first.key), first.value, first.topic) == (b"k0", None, hourly)
    assert first.headers[0].key == "h" and bytes(first.headers[0].value) == b"x" and first.headers[1].value is None
    assert (last.key, bytes(last.value), last.headers, last.timestampType) == (None, b"v11", None, 0)
    assert last.timestamp == datetime(1970, 1, 1, 3)  # in the session's time zone
    assert frame.rdd.getNumPartitions() == 6
    some = reading(spark, cluster, hourly).schema("offset BIGINT, value BINARY").load()
    assert some.columns == ["offset", "value"] and {row.offset for row in some.collect()} == {0, 1, 2, 3}


def test_bounds_and_filters_say_what_is_read(spark: SparkSession, cluster: Cluster, hourly: str) -> None:
    everything = reading(spark, cluster, hourly).load()
    # Filters by place and time, which are pushed down, against the same on rows that Spark has.
    kept = everything.cache()
    noon = datetime(1970, 1, 1, 2, tzinfo=UTC)
    for condition in (
        "partition = 1 AND offset > 0 AND offset <= 2",
        "partition IN (0, 2) AND offset IN (1, 3)",
        f"topic = '{hourly}' AND partition < 2 AND timestamp >= TIMESTAMP'{noon:%Y-%m-%d %H:%M:%S}'",
        "offset >= 100",
    ):
        fresh = reading(spark, cluster, hourly).load().where(condition)
        assert places(fresh) == places(kept.where(condition)), condition
        assert condition == "offset >= 100" or 0 < len(places(fresh)) < 12
    kept.unpersist()
    one = reading(spark, cluster, hourly).load().where("partition = 1 AND offset > 2")
    assert one.rdd.getNumPartitions() == 1
    spark.conf.set(PUSHDOWN, "false")  # as in sessions that are not ours
    try:
        assert places(reading(spark, cluster, hourly).load().where("partition = 1 AND offset > 2")) == [(1, 3)]
    finally:
        spark.conf.set(PUSHDOWN, "true")
    bounded = reading(
        spark,
        cluster,
        hourly,
        startingOffsets=json.dumps({hourly: {"0": 1, "1": -2, "2": 4}}),
        endingOffsets=json.dumps({hourly: {"0": -1, "1": 2, "2": 4}}),
    ).load()
    assert places(bounded) == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    timed = reading(spark, cluster, hourly, startingTimestamp=str(2 * HOUR), endingTimestamp=str(3 * HOUR)).load()
    assert places(timed) == [(partition, offset) for partition in range(3) for offset in (1, 2)]
    empty = reading(spark, cluster, hourly, startingTimestamp="9", endingTimestamp="10").load()
    assert places(empty) == []


def test_what_is_wrong_is_said_in_one_line(spark: SparkSession, cluster: Cluster, hourly: str, tmp_path: Path) -> None:
    def said(action: Callable[[], Any]) -> str:
        with pytest.raises(Exception) as caught:  # Spark wraps them in several kinds
            action()
        return str(caught.value)

    beyond = json.dumps({hourly: {"0": 9, "1": 0, "2": 0}})
    assert "Did you mean 'startingOffsets'?" in said(reading(spark, cluster, hourly, startingOffset="latest").load)
    assert "kafka.sasl.jaas.config is a secret" in said(
        reading(spark, cluster, hourly, **{"kafka.sasl.jaas.config": "..."}).load
    )
    wrong_type = reading(spark, cluster, hourly).schema("value STRING").load()
    assert "column 'value' is of type binary, not string" in said(wrong_type.collect)
    assert f"{hourly}-0 has offsets 0 to 4, 9 is not among them" in said(
        reading(spark, cluster, hourly, startingOffsets=beyond).load().collect
    )
    nowhere = reading(spark, cluster, hourly, **{"kafka.bootstrap.servers": "127.0.0.1:1"}).load()
    assert "127.0.0.1:1: Connection refused (kafka.bootstrap.servers=127.0.0.1:1)" in said(nowhere.collect)

    def run(topic: str) -> None:
        query = streaming(spark, cluster, topic).writeStream.format("noop").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)

    run(hourly)
    other = cluster.create_topic(f"{hourly}-other")
    assert f"offsets of topic '{hourly}', which subscribe={other} does not read" in said(lambda: run(other))


def test_a_stream_goes_on_where_it_was_with_limits_new_partitions_and_a_group(
    spark: SparkSession, cluster: Cluster, hourly: str, tmp_path: Path
) -> None:
    options = {"maxOffsetsPerTrigger": "5", "kafka.group.id": hourly, "kafka.isolation.level": "read_committed"}

    def run(sink: str = "parquet") -> StreamingQuery:
        frame = streaming(spark, cluster, hourly, **options)
        writing = frame.writeStream.format(sink).option("path", str(tmp_path / "out"))
        query = writing.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    batches = [progress.numInputRows for progress in run().recentProgress if progress.numInputRows]
    assert batches == [5, 5, 2]
    offsets = json.loads((tmp_path / "state" / "offsets" / "2").read_text().splitlines()[-1])
    assert offsets[hourly] == {"0": 4, "1": 4, "2": 4}
    assert set(offsets) == {hourly, "topic ids"}
    with cluster.admin() as admin:
        assert sum(each.lag or 0 for each in admin.groups.lag(hourly)) == 0
        admin.topics.add_partitions(hourly, 4)
        more = pa.table({"value": [b"more"] * 3, "partition": pa.array([0, 3, 3], pa.int32())})
        write_table(cluster.bootstrap, hourly, more, partition="partition")
        run()
        assert sum(each.lag or 0 for each in admin.groups.lag(hourly)) == 0
    expected = [(partition, offset) for partition in range(3) for offset in range(4)] + [(0, 4), (3, 0), (3, 1)]
    assert places(spark.read.parquet(str(tmp_path / "out"))) == sorted(expected)
    with cluster.admin() as admin:
        admin.topics.delete_records({TopicPartition(hourly, 3): 2})
    (tmp_path / "state" / "commits" / "3").unlink()  # as if the last run had died before its end
    with pytest.raises(Exception, match=rf"{hourly}-3: offsets 0 to 1 are lost"):
        run("noop")
