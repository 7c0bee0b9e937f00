"""Spark's own connector and ours on one protocol and mechanism after the other; each reads what the other has written.

    python mechanism_cases.py JAR,... < CASES

is a driver with a JVM of its own, because jars must be known when it starts. A line of CASES is a JSON object: `case`
(its name), `topic`, `theirs` and `ours` (the options of both formats). Each line is answered by one: the name, and the
values that each format has read.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from penstock.spark import session


def write(spark: SparkSession, format_name: str, options: dict[str, str], topic: str, value: str) -> None:
    rows = spark.createDataFrame([(value,)], "value STRING")
    rows.write.format(format_name).mode("append").options(**options, topic=topic).save()


def read(spark: SparkSession, format_name: str, options: dict[str, str], topic: str) -> list[str]:
    rows = spark.read.format(format_name).options(**options, subscribe=topic).load()
    return sorted(row.value for row in rows.selectExpr("CAST(value AS STRING) AS value").collect())


def main() -> None:
    (jars,) = sys.argv[1:]
    spark = session("every-mechanism", "local[1]", {"spark.jars": jars, "spark.sql.shuffle.partitions": "1"})
    for line in sys.stdin:
        asked = json.loads(line)
        formats = {"kafka": asked["theirs"], "penstock": asked["ours"]}
        for name, options in formats.items():
            write(spark, name, options, asked["topic"], f"by {name}")
        found = {name: read(spark, name, options, asked["topic"]) for name, options in formats.items()}
        print(json.dumps({"case": asked["case"], **found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
