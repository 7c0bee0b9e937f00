"""A stream of windows from topic to topic, through a sink that fails at a chosen point: as a library, and as a driver.

    python spark_sink_query.py MASTER BOOTSTRAP SOURCE TARGET DIRECTORY [KEY=VALUE ...]

The driver runs the query over what is there, starts it again when it fails, and ends when it came to its end: then it
has written every window that is complete. `KEY=VALUE` are settings of Spark, or with `sink.` before them of the sink.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from chaos import spark_fail_points
from penstock.arrow import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
# After these everything is complete, but for their own windows.
END_OF_TIME = range(10_000_000, 10_000_000 + PARTITIONS)


def feed(bootstrap: str, topic: str, ids: range) -> None:
    """One a second, in the partition of its remainder."""
    table = pa.table(
        {
            "value": [str(number) for number in ids],
            "time": pa.array([number * 1000 for number in ids], pa.timestamp("ms", "UTC")),
            "partition": pa.array([number % PARTITIONS for number in ids], pa.int32()),
        }
    )
    write_table(bootstrap, topic, table, timestamp="time", partition="partition")


def expected_windows(ids: Iterable[int]) -> Counter[str]:
    """What a batch run over the input gives: a row a window and key, its id in front."""
    members: dict[tuple[int, int], list[int]] = {}
    for number in ids:
        members.setdefault((number // 10 * 10, number % 3), []).append(number)
    return Counter(f"{start}:{key}:{len(found)}:{sum(found)}" for (start, key), found in members.items())


def windows(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    """Per ten seconds and key: how many, and their sum; each once, when it is complete."""
    from pyspark.sql import functions as f

    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"} | options
    rows = spark.readStream.format("penstock").options(**given).load()
    return (
        rows.selectExpr("cast(cast(value as string) as bigint) id", "timestamp")
        .withWatermark("timestamp", "30 seconds")
        .groupBy(f.window("timestamp", "10 seconds"), (f.col("id") % 3).alias("key"))
        .agg(f.count("*").alias("number"), f.sum("id").alias("total"))
        .selectExpr(
            "cast(key as string) key",
            "concat_ws(':', unix_timestamp(window.start), key, number, total) value",
        )
    )


def main(master: str, bootstrap: str, source: str, target: str, directory: str, *settings: str) -> None:
    from pyspark.errors import StreamingQueryException

    from penstock.spark import session

    given = dict(setting.split("=", 1) for setting in settings)
    master = given.pop("spark.master", master)
    sink = {name.removeprefix("sink."): value for name, value in given.items() if name.startswith("sink.")}
    config = {
        "spark.driver.memory": "600m",
        "spark.executor.memory": "600m",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
    } | {name: value for name, value in given.items() if not name.startswith("sink.")}
    spark = session("sink", master=master, config=config)
    spark_fail_points.register(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target, "faults": directory} | sink
    stream = (
        windows(spark, bootstrap, source, maxOffsetsPerTrigger="100")
        .writeStream.format(spark_fail_points.FORMAT)
        .options(**options)
        .option("checkpointLocation", os.path.join(directory, "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
    )
    while True:
        query = stream.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print("the query fails:", str(error)[:2000], flush=True)
            continue
        break
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
