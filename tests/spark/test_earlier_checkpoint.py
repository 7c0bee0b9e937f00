"""A checkpoint of an earlier engine goes on in this one: no record is read again, its state counts, and a batch that
was decided is not written again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.arrow import read_table, write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.checkpoints import against_checkpoints, noted_here
from penstock.pipelines.engine.runner import Runner
from penstock.spark.sink.decisions import TOPIC as DECISIONS
from penstock.spark.sink.decisions import DecisionLog
from spark.earlier_checkpoint import ORDERS, decisions, kill_before_commit, restore

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


class Shop:
    """That pipeline, with topics of its own."""

    def __init__(self, cluster: Cluster, new_topic: Callable[..., str], place: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.topics = {name: new_topic() for name in ("orders", "large", "hours")}
        self.checkpoints = place / "checkpoints"
        restore(self.checkpoints, self.topics["orders"], self.bootstrap)
        (place / "shop.yaml").write_text(FILE.format(bootstrap=self.bootstrap, **self.topics))
        self.loaded, _ = load_checked(str(place / "shop.yaml"))

    def written(self, name: str) -> list[dict[str, Any]]:
        values = read_table(self.bootstrap, self.topics[name], value="string", columns=["value"])["value"]
        return [json.loads(value) for value in values.to_pylist()]

    def produce(self, name: str, values: list[str]) -> None:
        write_table(self.bootstrap, self.topics[name], pa.table({"value": values}))

    def totals(self) -> dict[str, tuple[str, int, float]]:
        return {row["customer"]: (row["hour"], row["n"], row["total"]) for row in self.written("hours")}


LATER = [*range(ORDERS, 60), 130]
"""The last one closes the window of the first hour."""
TOTALS = {f"c{rest}": ("2026-05-01T00:00:00.000Z", 20, float(sum(range(rest, 60, 3)))) for rest in range(3)}


@pytest.fixture
def shop(cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(cluster, new_topic, tmp_path)


def test_it_goes_on(spark: SparkSession, shop: Shop) -> None:
    shop.produce("orders", ["read before"] * ORDERS)  # would be dead letters, for which there is no topic
    shop.produce("orders", [order(number) for number in LATER])
    assert {(each.found, each.verdict) for each in against_checkpoints(shop.loaded, noted_here)} == {(True, "safe")}

    Runner(shop.loaded, spark).run_once()

    assert sorted(row["id"] for row in shop.written("large")) == LATER
    assert shop.totals() == TOTALS


@pytest.mark.parametrize("decided", [True, False])
def test_a_batch_in_flight(decided: bool, spark: SparkSession, shop: Shop) -> None:
    """The earlier engine was killed in a batch. If it had decided it, the records are there; otherwise they are not.
    Either way they are there once in the end."""
    shop.produce("orders", [order(number) for number in (*range(ORDERS), *LATER)])
    if decided:
        shop.produce("large", [json.dumps({"id": number}) for number in range(11, ORDERS)])
        note(shop.bootstrap, decisions(shop.checkpoints))
    kill_before_commit(shop.checkpoints)

    runner = Runner(shop.loaded, spark)
    runner.run_once()

    assert {name: planned.way for name, planned in runner.routes.items()} == {"orders": "streamed", "hours": "streamed"}
    assert sorted(row["id"] for row in shop.written("large")) == [*range(11, ORDERS), *LATER]
    assert len(shop.written("hours")) == len(TOTALS)
    assert shop.totals() == TOTALS


def note(bootstrap: str, records: dict[str, str]) -> None:
    with contextlib.closing(DecisionLog(bootstrap, timeout=30.0, request_timeout=30.0)) as log:
        log.known("")  # makes the topic if it is missing
    write_table(bootstrap, DECISIONS, pa.table({"key": list(records), "value": list(records.values())}))
