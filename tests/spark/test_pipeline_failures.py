"""What a run says that fails, with the errors that Spark really makes of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from penstock.arrow import write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.failures import QueryFailed
from penstock.pipelines.engine.fixtures import run_tests
from penstock.pipelines.engine.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

NewTopic = Callable[..., str]

FILE = """\
name: {name}
bootstrap: {bootstrap}
restart: {{attempts: {attempts}, backoff: 10ms}}
sources:
  orders: {{topic: {read}, value: {{format: json, schema: "id BIGINT"}}, on_error: drop}}
steps:
  valid: {{sql: "SELECT {column} FROM orders", expect: [{{that: id < 9, name: a small id, otherwise: fail}}]}}
sinks:
  copies: {{from: valid, {sink}}}
tests:
  - {{name: fails, given: {{orders: [{{value: {{id: 10}}}}]}}, expect: {{copies: []}}}}
  - {{name: passes, given: {{orders: [{{value: {{id: 1}}}}]}}, expect: {{copies: [{{value: {{id: 1}}}}]}}}}
"""


def test_errors_are_named_and_end_the_run_where_no_attempt_can_help(
    spark: SparkSession, cluster: Cluster, new_topic: NewTopic, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    topic, small, copies, missing = new_topic(), new_topic(), new_topic(), unique_topic("missing")
    write_table(cluster.bootstrap, topic, pa.table({"value": [json.dumps({"id": each}) for each in (1, 10)]}))
    write_table(cluster.bootstrap, small, pa.table({"value": [json.dumps({"id": 1})]}))

    def failed(**edits: str | int) -> list[str]:
        file = tmp_path / "shop.yaml"
        usual = {"bootstrap": cluster.bootstrap, "read": topic, "column": "id", "sink": f"topic: {copies}"}
        file.write_text(FILE.format(**{"name": unique_topic("shop"), "attempts": 7, **usual, **edits}))
        with pytest.raises(QueryFailed) as told:
            Runner(load_checked(str(file))[0], spark).run_once()
        assert told.value.lines[3] == f"why:        {str(told.value).partition(': ')[2]}"
        return [line.partition(":")[2].strip() for line in told.value.lines]

    query, batch, what, why, to_do = failed(read=missing)
    assert query.startswith("orders of shop-")
    assert (query.partition(", ")[2], batch, what) == ("failed once", "0", "finding the records to read")
    assert why.startswith(f"there is no topic {missing!r} (subscribe) at {cluster.bootstrap}")
    assert to_do.startswith("create the topic")

    query, batch, _, why, to_do = failed(read=small, sink=f"topic: {missing}")
    assert (query.partition(", ")[2], batch) == ("failed once", "0")
    assert f"there is no topic {missing!r}" in why
    assert to_do.startswith("create the topic")

    query, batch, _, why, to_do = failed()
    assert (query.partition(", ")[2], batch) == ("failed once", "0")
    assert why == '[USER_RAISED_EXCEPTION] "valid" expects a small id'
    assert "dead-letter" in to_do

    query, batch, what, why, to_do = failed(bootstrap="127.0.0.1:1", attempts=1)
    assert (query.partition(", ")[2], batch, what) == ("failed 2 times", "0", "finding the records to read")
    assert "127.0.0.1:1: Connection refused" in why
    assert to_do.startswith("start the brokers")


def test_a_test_that_fails_does_not_end_the_others(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(name="shop", bootstrap="b:9092", attempts=0, read="t", column="id", sink="topic: c"))

    results = {each.name: each.differences for each in run_tests(load_checked(str(file))[0], spark)}

    assert results["passes"] == []
    (difference,) = results["fails"]
    assert difference == 'error: query "orders": [USER_RAISED_EXCEPTION] "valid" expects a small id'


def test_an_error_in_sql_is_raised_and_not_printed(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark would print 20 KB of JSON beside the exception."""
    with pytest.raises(AnalysisException, match="nothing"):
        spark.sql("SELECT nothing FROM range(3)")

    assert capfd.readouterr() == ("", "")
