"""Two queries that run while a cluster is moved: from topic to topic, with Spark's own connector and with ours.

    python migration_spark.py BOOTSTRAP DIRECTORY JAR,...

is a driver with a JVM of its own, because jars must be known when it starts. It ends when its input does, and with an
error if a query fails.
"""

from __future__ import annotations

import select
import sys

from penstock.spark import session

SOURCE = "spark-source"
TARGETS = {"kafka": "spark-by-kafka", "penstock": "spark-by-penstock"}


def main(bootstrap: str, directory: str, jars: str) -> None:
    config = {"spark.jars": jars, "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "600m"}
    spark = session("migration", "local[2]", config)
    queries = []
    for name, target in TARGETS.items():
        where = {"kafka.bootstrap.servers": bootstrap}
        rows = spark.readStream.format(name).options(**where, subscribe=SOURCE, startingOffsets="earliest").load()
        queries.append(
            rows.selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format(name)
            .options(**where, topic=target, checkpointLocation=f"{directory}/{name}")
            .trigger(processingTime="1 second")
            .start()
        )
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        for query in queries:
            if (error := query.exception()) is not None:
                raise SystemExit(f"{query.id} fails: {error}")
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
