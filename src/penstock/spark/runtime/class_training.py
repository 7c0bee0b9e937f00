"""Makes a class-data archive: runs a small Spark session that loads what queries load, and keeps its classes.

    python -m penstock.spark.runtime.class_training DIRECTORY KEY SETTINGS

Runs in the background with the lowest priority (`class_archive.make_behind`). What the session computes does not
matter: streams from a Python source to a Python sink, windows with state, JSON, files, and a `foreachBatch`, because
these are what topics and pipelines need.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from penstock.spark.runtime.class_archive import TRAINING, ClassArchive, remove_unused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXIT_S = 3600.0
_LOWEST = 19


def main() -> None:
    directory, key, settings = sys.argv[1:]
    os.nice(_LOWEST)
    archive = ClassArchive(directory, key)
    with archive.lock() as ours:
        if ours and archive.file() is None:
            make(archive, json.loads(settings))


def make(archive: ClassArchive, settings: dict[str, str]) -> None:
    """The caller holds the lock."""
    place = tempfile.mkdtemp(prefix=".training-", dir=archive.directory)
    try:
        written = os.path.join(place, "classes.jsa")
        _train(written, place, settings)
        if not os.path.exists(written):
            raise FileNotFoundError("Java ended without writing an archive")
        archive.keep(written)
        remove_unused(archive.directory)
    except Exception as error:
        archive.note_failure(f"{type(error).__name__}: {error}"[:2000])
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _train(written: str, place: str, settings: dict[str, str]) -> None:
    from penstock.spark.runtime.session import session

    os.environ[TRAINING] = written
    places = {"spark.local.dir": place, "spark.sql.warehouse.dir": os.path.join(place, "warehouse")}
    spark = session("penstock-class-archive", "local[2]", {**settings, **places})
    try:
        spark.sparkContext.setLogLevel("OFF")
        workload(spark, place)
    finally:
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        java.stdin.close()  # its signal to exit
        java.wait(_EXIT_S)


def workload(spark: SparkSession, place: str) -> None:
    from pyspark.sql import functions as f

    from penstock.spark.runtime.training_source import TrainingSource

    spark.dataSource.register(TrainingSource)
    name = TrainingSource.name()
    records = spark.readStream.format(name).load()
    rows = records.select(
        f.from_json(f.col("value").cast("string"), "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>").alias("row"), "key"
    ).select("row.*", "key")
    written = (
        rows.where("id IS NOT NULL")
        .select("key", "at", f.explode("tags").alias("tag"))
        .selectExpr(
            "key", "to_json(struct(*)) AS value", "CASE WHEN tag = 'a' THEN 'x' ELSE concat('y', tag) END AS topic"
        )
    )
    _stream(written, place, "records", "append").format(name).start().awaitTermination()
    windows = (
        rows.withWatermark("at", "1 minute").groupBy(f.window("at", "1 minute"), "id").agg(f.count("*"), f.sum("id"))
    )
    _stream(windows, place, "windows", "update").foreachBatch(_collected).start().awaitTermination()
    table = os.path.join(place, "table")
    spark.range(10).selectExpr("id", "CAST(id AS STRING) AS name", "current_timestamp() AS at").write.parquet(table)
    spark.read.parquet(table).join(spark.createDataFrame([(1, "a")], "id BIGINT, b STRING"), "id").collect()


def _stream(rows: DataFrame, place: str, name: str, mode: str) -> Any:
    checkpoint = os.path.join(place, f"checkpoint-{name}")
    return rows.writeStream.outputMode(mode).option("checkpointLocation", checkpoint).trigger(availableNow=True)


def _collected(batch: DataFrame, _: int) -> None:
    held = batch.persist()
    held.selectExpr("to_json(struct(*)) AS value").union(held.selectExpr("'x' AS value")).collect()
    held.unpersist()


if __name__ == "__main__":
    main()
