"""A checkpoint of an earlier engine goes on in this one: no record is read again, and its state counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.arrow import read_table, write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.checkpoints import against_checkpoints, noted_here
from penstock.pipelines.engine.runner import Runner
from spark.earlier_checkpoint import ORDERS, restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

FILE = """\
name: shop
bootstrap: {bootstrap}
sources:
  orders:
    topic: {orders}
    value: {{format: json, schema: "id BIGINT NOT NULL, customer STRING, amount DOUBLE, at TIMESTAMP NOT NULL"}}
    watermark: {{column: at, delay: 10 minutes}}
steps:
  large: {{sql: "SELECT id, customer, amount FROM orders WHERE amount > 10"}}
  hours:
    sql: SELECT customer, window.start AS hour, count(*) AS n, sum(amount) AS total FROM orders
      GROUP BY customer, window(at, '1 hour')
sinks:
  large: {{from: large, topic: {large}, key: id}}
  hours: {{from: hours, topic: {hours}, key: customer}}
"""


def order(number: int) -> str:
    at = f"2026-05-01T{number // 60:02d}:{number % 60:02d}:00Z"
    return json.dumps({"id": number, "customer": f"c{number % 3}", "amount": float(number), "at": at})


def test_it_goes_on(spark: SparkSession, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topics = {name: new_topic() for name in ("orders", "large", "hours")}
    restore(tmp_path / "checkpoints", topics["orders"], cluster.bootstrap)
    (tmp_path / "shop.yaml").write_text(FILE.format(bootstrap=cluster.bootstrap, **topics))
    loaded, _ = load_checked(str(tmp_path / "shop.yaml"))

    def written(name: str) -> list[dict[str, Any]]:
        values = read_table(cluster.bootstrap, topics[name], value="string", columns=["value"])["value"]
        return [json.loads(value) for value in values.to_pylist()]

    def produce(values: list[str]) -> None:
        write_table(cluster.bootstrap, topics["orders"], pa.table({"value": values}))

    produce(["read before"] * ORDERS)  # would be dead letters, for which there is no topic
    later = [*range(ORDERS, 60), 130]  # the last one closes the window of the first hour
    produce([order(number) for number in later])
    assert {(each.found, each.verdict) for each in against_checkpoints(loaded, noted_here)} == {(True, "safe")}

    Runner(loaded, spark).run_once()

    assert sorted(row["id"] for row in written("large")) == later
    hours = {row["customer"]: (row["hour"], row["n"], row["total"]) for row in written("hours")}
    totals = {f"c{rest}": float(sum(range(rest, 60, 3))) for rest in range(3)}
    assert hours == {name: ("2026-05-01T00:00:00.000Z", 20, total) for name, total in totals.items()}
