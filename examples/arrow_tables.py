"""A topic as a table: from Arrow to polars and DuckDB, and back.

pip install 'penstock[arrow]' polars duckdb
penstock up                                   (in another terminal)
python examples/arrow_tables.py
"""

from __future__ import annotations

import os

import duckdb
import polars
import pyarrow

from penstock import Admin
from penstock.arrow import read_table, write_table

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = "measurements"


def main() -> None:
    with Admin(BOOTSTRAP) as admin:
        admin.topics.create(TOPIC, partitions=3)
    measured = pyarrow.table(
        {
            "sensor": [f"sensor-{number % 4}" for number in range(1000)],
            "celsius": [number / 10 for number in range(1000)],
        }
    )
    write_table(BOOTSTRAP, TOPIC, measured, key="sensor", value="celsius")
    readings = read_table(BOOTSTRAP, TOPIC, key="string", value="float64", columns=["key", "value", "partition"])
    print(polars.DataFrame(readings).group_by("key").agg(polars.col("value").max()).sort("key"))
    print(
        duckdb.sql(
            "SELECT key, count(*) AS n, count(DISTINCT partition) AS partitions FROM readings GROUP BY 1 ORDER BY 1"
        )
    )


if __name__ == "__main__":
    main()
