"""The sink in Spark: columns, batches once, streams once whatever dies, and what is said of bad input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from chaos import spark_fail_points
from chaos.spark_fail_points import IN_WRITE, POINTS, arm, is_reached
from chaos.spark_sink_query import END_OF_TIME, expected_windows, feed, windows
from penstock.arrow import read_table
from penstock.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

NewTopic = Callable[..., str]
PATIENCE_S = 120.0


def writing(frame: DataFrame, cluster: Cluster, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": cluster.bootstrap} | options
    return frame.write.format("penstock").mode("append").options(**given)


def values(cluster: Cluster, topic: str) -> Counter[str]:
    table = read_table(cluster.bootstrap, topic, value="string", columns=["value"])
    return Counter(table["value"].to_pylist())


def open_transactions(cluster: Cluster) -> list[str]:
    with cluster.admin() as admin:
        return [each.transactional_id for each in admin.transactions.list(states=["Ongoing"])]


def test_columns_and_topics(spark: SparkSession, cluster: Cluster, new_topic: NewTopic) -> None:
    one, other = new_topic(partitions=3), new_topic(partitions=3)
    frame = spark.createDataFrame(
        [
            (b"k", "v1", [("h", b"x"), ("n", None)], one, 2),
            (None, "v2", [], other, 1),
            (b"k", None, None, one, None),
        ],
        "key binary, value string, headers array<struct<key:string,value:binary>>, topic string, partition int",
    )
    writing(frame, cluster).save()
    table = read_table(cluster.bootstrap, [one, other], columns=["topic", "partition", "key", "value", "headers"])
    found = sorted(table.to_pylist(), key=lambda row: (row["value"] or b"", row["topic"]))
    placed = found[0].pop("partition")
    assert 0 <= placed < 3
    assert found == [
        {"topic": one, "key": b"k", "value": None, "headers": []},
        {
            "topic": one,
            "partition": 2,
            "key": b"k",
            "value": b"v1",
            "headers": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}],
        },
        {"topic": other, "partition": 1, "key": None, "value": b"v2", "headers": []},
    ]
    # The option wins over the column; what was read can be written as it is.
    copy = new_topic(partitions=3)
    source = spark.read.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    read = source.option("subscribe", f"{one},{other}").option("includeHeaders", "true").load()
    writing(read, cluster, topic=copy, deliveryGuarantee="at-least-once").save()
    assert read_table(cluster.bootstrap, copy).num_rows == 3


def test_a_version_is_written_once(spark: SparkSession, cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value")
    named = {"topic": topic, "sinkId": topic, "version": "4"}
    for _ in range(2):
        writing(frame, cluster, **named).save()
    assert values(cluster, topic) == Counter(str(number) for number in range(100))
    with pytest.raises(Exception, match="version=3 comes after 4 was written"):
        writing(frame, cluster, **named | {"version": "3"}).save()
    with pytest.raises(Exception, match="refuses it"):
        large = spark.sql("select repeat('x', 2000000) value union all select 'fine' value")
        writing(large, cluster, **named | {"version": "5"}).save()
    assert values(cluster, topic).total() == 100
    assert open_transactions(cluster) == []


def test_bad_input(spark: SparkSession, cluster: Cluster, new_topic: NewTopic) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) value")
    cases = [
        (frame, {"topic": "nowhere-at-all"}, "topic='nowhere-at-all'.*penstock topics create nowhere-at-all"),
        (frame, {"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "cannot connect to 127.0.0.1:1"),
        (frame, {}, "no topic is given"),
        (spark.range(1), {"topic": "t"}, "no column 'id'"),
        (frame, {"topic": "t", "sinkID": "x.y"}, "sinkId='x.y'"),
    ]
    for rows, options, message in cases:
        with pytest.raises(Exception, match=f"(?s){message}"):
            writing(rows, cluster, **options).save()


def test_a_stream_survives_what_kills_its_commits(
    spark: SparkSession, cluster: Cluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    """At every point of a commit the process that does it dies once; the query is started again, in one application."""
    spark_fail_points.register(spark)
    source, target = new_topic(partitions=2), new_topic(partitions=3)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": target, "faults": str(tmp_path)}
    writer = windows(spark, cluster.bootstrap, source).writeStream.format(spark_fail_points.FORMAT).options(**options)
    stream = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("append")
    deaths = 0
    for number, point in enumerate([point for point in POINTS if point != IN_WRITE]):
        feed(cluster.bootstrap, source, range(number * 100, number * 100 + 100))
        arm(tmp_path, point, "kill")
        while not is_done(stream):
            deaths += 1
        assert is_reached(tmp_path, point)
    feed(cluster.bootstrap, source, END_OF_TIME)
    assert is_done(stream)
    assert deaths == len(POINTS) - 1
    assert values(cluster, target) == expected_windows(range(400))
    assert open_transactions(cluster) == []


def is_done(stream: Any) -> bool:
    """Whether a run of what is there came to its end."""
    query = stream.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    except StreamingQueryException as error:
        assert "crashed" in str(error), error
        return False
    return True
