"""Pipelines on Spark: those of examples/ with their own tests, and one from end to end on a broker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.arrow import read_table, write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.decoding import decoded
from penstock.pipelines.engine.encoding import records
from penstock.pipelines.engine.fixtures import pipeline_output, run_tests
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.spec.model import Decoding, Encoding, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
NewTopic = Callable[..., str]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_examples(name: str, spark: SparkSession) -> None:
    loaded, warnings = load_checked(str(EXAMPLES / name))

    results = {result.name: result.differences for result in run_tests(loaded, spark)}

    assert warnings == []
    assert results
    assert results == {name: [] for name in results}


COUNTED = """\
name: counted
sources:
  orders: {{topic: orders, value: {{format: json, schema: "id BIGINT"}}}}
steps:
  counts: {{python: "{module}:counts", from: orders, stateful: true}}
  few: {{sql: "SELECT * FROM counts WHERE count < 2"}}
sinks:
  counts: {{from: counts, topic: counts}}
  few: {{from: few, topic: few}}
"""

COUNTING = """\
def counts(rows):
    def noting(batches):
        for batch in batches:
            with open({notes!r}, "a") as notes:
                notes.write("computed\\n" * batch.num_rows)
            yield batch

    return rows.groupBy("id").count().mapInArrow(noting, "id BIGINT, count BIGINT")
"""


def test_state_is_computed_once_a_batch(
    spark: SparkSession, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    """However many sinks it has. Two tasks with the same state disturb each other: only one of them makes the directory
    of the state store, and the other may come before it is there."""
    module, notes = unique_topic("counting").replace("-", "_"), tmp_path / "notes"
    (tmp_path / f"{module}.py").write_text(COUNTING.format(notes=str(notes)))
    file = tmp_path / "counted.yaml"
    file.write_text(COUNTED.format(module=module))
    loaded, _ = load_checked(str(file))

    written = pipeline_output(loaded, spark, {"orders": [{"value": {"id": number}} for number in (1, 1, 2)]})

    assert sorted(row["value"]["count"] for row in written.sinks["counts"]) == [1, 2]
    assert [row["value"]["id"] for row in written.sinks["few"]] == [2]
    assert notes.read_text().count("computed") == 2


FILE = """\
name: shop-{unique}
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints
restart: {{attempts: 1, backoff: 10ms}}
sources:
  orders:
    topic: {orders}
    value: {{format: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}
  customers: {{format: json, mode: lookup, path: customers.json, schema: "id BIGINT, name STRING"}}
  invoices: {{format: json, mode: incremental, cursor: id, path: invoices, schema: "id BIGINT, total DOUBLE"}}
steps:
  named:
    sql: SELECT o.id, amount, name FROM orders o LEFT JOIN customers c ON o.id % 2 = c.id
    expect: [{{that: amount > 0, name: an amount}}]
  doubled: {{python: "{module}:doubled", from: named}}
sinks:
  named: {{from: named, topic: {named}, key: id}}
  doubled: {{from: doubled, format: parquet, path: doubled, partition_by: name}}
  invoices: {{from: invoices, topic: {invoices}, key: id}}
dead_letters: {{topic: {dead}}}
"""

DOUBLING = """\
import os

def doubled(rows):
    if os.path.exists({flag!r}):
        os.remove({flag!r})
        raise RuntimeError("broken on purpose")
    return rows.withColumn("amount", rows.amount * 2)
"""


def test_a_pipeline_from_end_to_end(
    spark: SparkSession, cluster: Cluster, new_topic: NewTopic, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    """Topics and a growing table in; a topic, files, and dead letters out. What is run again goes on where it was, and
    a batch that failed before it wrote is there once."""
    topics = {name: new_topic(partitions=2) for name in ("orders", "named", "invoices", "dead")}
    flag = tmp_path / "flag"
    module = unique_topic("doubling").replace("-", "_")
    (tmp_path / f"{module}.py").write_text(DOUBLING.format(flag=str(flag)))
    (tmp_path / "customers.json").write_text('{"id": 0, "name": "even"}\n{"id": 1, "name": "odd"}\n')
    (tmp_path / "invoices").mkdir()
    file = tmp_path / "shop.yaml"
    place, unique = str(tmp_path), unique_topic("pipeline")
    file.write_text(FILE.format(unique=unique, module=module, bootstrap=cluster.bootstrap, place=place, **topics))
    loaded, _ = load_checked(str(file))

    def written(name: str) -> list[Any]:
        columns = ["key", "value", "headers"]
        rows: list[Any] = read_table(cluster.bootstrap, topics[name], value="string", columns=columns).to_pylist()
        return rows

    def produce(*values: str) -> None:
        write_table(cluster.bootstrap, topics["orders"], pa.table({"value": values}))

    produce('{"id": 1, "amount": 1.5}', "poison", '{"id": 2, "amount": -1}')
    (tmp_path / "invoices" / "1.json").write_text('{"id": 1, "total": 10}\n{"id": 2, "total": 20}\n')
    Runner(loaded, spark).run_once()
    flag.touch()  # the next batch fails in its step
    produce('{"id": 4, "amount": 2.5}')
    (tmp_path / "invoices" / "2.json").write_text('{"id": 3, "total": 30}\n')
    runner = Runner(loaded, spark)
    runner.run_once()

    assert sorted(json.loads(row["value"])["id"] for row in written("named")) == [1, 4]
    assert sorted(json.loads(row["value"])["id"] for row in written("invoices")) == [1, 2, 3]
    assert {row["value"] for row in written("dead")} == {"poison", '{"id": 2, "amount": -1}'}
    rows = spark.read.parquet(str(tmp_path / "doubled")).collect()
    assert sorted((row.id, row.amount, row["name"]) for row in rows) == [(1, 3.0, "odd"), (4, 5.0, "even")]
    assert not flag.exists()
    assert {status.state for status in runner.status.values()} == {"ended"}

    dead = {row["value"]: {each["key"]: each["value"].decode() for each in row["headers"]} for row in written("dead")}
    assert dead["poison"]["dead-letter.reason"] == "not JSON"
    assert dead["poison"]["dead-letter.pipeline"] == f"shop-{unique}"
    assert dead["poison"]["dead-letter.topic"] == topics["orders"]
    assert set(dead["poison"]) == {
        f"dead-letter.{name}" for name in ("reason", "pipeline", "topic", "partition", "offset", "timestamp")
    }

    shutil.rmtree(tmp_path / "checkpoints")  # who deletes them begins anew
    Runner(loaded, spark).run_once()

    assert sorted(json.loads(row["value"])["id"] for row in written("named")) == [1, 1, 4, 4]
    assert sorted(json.loads(row["value"])["id"] for row in written("invoices")) == [1, 1, 2, 2, 3, 3]
    assert spark.read.parquet(str(tmp_path / "doubled")).count() == 4


AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "p", "type": "long"}]}'


def test_avro_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(4).selectExpr("id", "id % 2 AS p")
    written = records(
        rows, TopicSink(source="x", topic="t", key="id", value=Encoding(format="avro", schema=AVRO)), str(tmp_path)
    )
    raw = written.selectExpr(
        "key",
        "CASE WHEN key = X'33' THEN X'00' ELSE value END AS value",
        "topic",
        "0 AS partition",
        "0L AS offset",
        "TIMESTAMP '2026-05-01 12:00:00' AS timestamp",
        "headers",
    )
    source = TopicSource(topic=("t",), value=Decoding(format="avro", schema=AVRO))

    found = decoded(raw, source, str(tmp_path)).select("id", "p", "_key", "__error").collect()

    assert sorted((row._key, row.id, row.p) for row in found) == [
        ("0", 0, 0),
        ("1", 1, 1),
        ("2", 2, 0),
        ("3", None, None),
    ]
    assert {row._key for row in found if row["__error"]} == {"3"}
