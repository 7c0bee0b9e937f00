"""Streaming queries tell the cluster how far they are: consumer groups and `__pipelines`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Admin, TopicPartition
from penstock.arrow import write_table
from penstock.spark import queries, watch
from penstock.spark.progress.query_progress import QueryProgress
from penstock.testing import Cluster
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import CommandLine

TIMEOUT_S = 120


def fill(cluster: Cluster, topic: str, rows: int) -> None:
    write_table(cluster.bootstrap, topic, pa.table({"value": [f"row {number}" for number in range(rows)]}))


def stream(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def told(cluster: Cluster, name: str) -> QueryProgress | None:
    return next((query for query in queries(cluster.bootstrap) if query.name == name), None)


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    with Admin(cluster.bootstrap) as admin:
        if admin.groups.find(group) is None:
            return {}
        assert all(lag.lag == 0 for lag in admin.groups.lag(group))
        return {where.partition: at.offset for where, at in admin.groups.offsets(group).items()}


def test_a_running_query_and_its_end(
    spark: SparkSession, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    fill(cluster, topic, 10)
    counts = stream(spark, cluster, topic).withWatermark("timestamp", "10 seconds").groupBy("partition").count()
    query = (
        counts.writeStream.format("noop")
        .outputMode("complete")
        .queryName("progress")
        .trigger(processingTime="1 hour")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    # Spark does not ask the source for more before an hour has passed, so only the listener knows that it is done.
    wait_until(lambda: sum(committed(cluster, "spark-progress").values()) == 10, seconds=TIMEOUT_S)
    wait_until(lambda: (seen := told(cluster, "progress")) is not None and seen.batch_id is not None, seconds=TIMEOUT_S)
    seen = told(cluster, "progress")
    assert seen is not None
    assert (seen.query_id, seen.run_id, seen.state, seen.error) == (query.id, query.runId, "running", None)
    assert (seen.batch_id, seen.rows_total, seen.state_rows, seen.lag) == (0, 10, 2, 0)
    assert seen.state_memory_bytes > 0
    assert seen.watermark_ms is None
    assert [(each.description, each.group, each.rows) for each in seen.sources] == [
        (f"penstock: {topic}", "spark-progress", 10)
    ]
    query.stop()
    wait_until(
        lambda: (seen := told(cluster, "progress")) is not None and seen.state == "terminated", seconds=TIMEOUT_S
    )


def test_a_query_that_fails_and_one_that_was_given_a_group(
    spark: SparkSession, cluster: Cluster, new_topic: Callable[..., str], cli: CommandLine
) -> None:
    from pyspark.errors import StreamingQueryException

    assert watch(spark) is watch(spark)  # as the session does, once
    topic = new_topic()
    fill(cluster, topic, 7)
    with Admin(cluster.bootstrap) as admin:  # a group is not set back by news that are late
        admin.groups.alter_offsets("billing", {TopicPartition(topic, 0): 7})
    rows = stream(spark, cluster, topic, **{"kafka.group.id": "billing"})
    broken = rows.selectExpr("raise_error('no such customer')").writeStream.format("noop").queryName("broken").start()
    with pytest.raises(StreamingQueryException):
        broken.awaitTermination(TIMEOUT_S)
    wait_until(lambda: (seen := told(cluster, "broken")) is not None and seen.state == "failed", seconds=TIMEOUT_S)
    failed = told(cluster, "broken")
    assert failed is not None
    assert "no such customer" in (failed.error or "")
    assert failed.batch_id is None
    whole = rows.writeStream.format("noop").queryName("whole").trigger(availableNow=True).start()
    assert whole.awaitTermination(TIMEOUT_S)
    wait_until(lambda: (seen := told(cluster, "whole")) is not None and seen.state == "terminated", seconds=TIMEOUT_S)
    assert committed(cluster, "billing") == {0: 7}

    status, out, err = cli("spark", "status", "-b", cluster.bootstrap)
    assert status == 0, err
    table = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert (table["whole"][:2], table["whole"][3:]) == (["terminated", "0"], ["0", "-", "-", "billing"])
    assert table["broken"][:2] == ["failed", "-"]
    assert "no such customer" in err
