"""Columns that are added as they appear, what Spark says of a pipeline, and the fixture that tests one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.pipelines import Decoding, FormatSink, PipelineInvalid, Step, TopicSink, TopicSource
from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.checkpoint_shape import QueryShape, SourceShape
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.check.routes import route
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.analyzer import analyze
from penstock.pipelines.engine.checkpoints import guard
from penstock.pipelines.engine.decoding import decoded
from penstock.pipelines.engine.evolution import CheckpointNotes, Evolution
from penstock.pipelines.sinks.delta import DeltaSink
from penstock.pipelines.sinks.destination import Destination
from penstock.pipelines.sinks.hadoop_files import Files
from penstock.pipelines.spec.loading import bind, read
from penstock.pipelines.spec.problems import PipelineFailed
from penstock.spark import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.testing.pipelines import PipelineUnderTest

SOURCE = TopicSource(
    topic=("orders",), value=Decoding(format="json", schema="id BIGINT NOT NULL"), evolution="add-columns"
)


@pytest.mark.soak
def test_columns_are_added_in_the_batch_they_appear_in(penstock_pipeline: Callable[..., PipelineUnderTest]) -> None:
    pipeline = Pipeline(
        name="growing",
        sources={"orders": SOURCE},
        steps={"all": Step(sql="SELECT *, _offset AS at FROM orders WHERE id > 0")},
        sinks={"all": TopicSink(source="all", topic="all")},
    )
    batches: list[dict[str, list[Any]]] = [
        {"orders": [{"value": {"id": 1}}, {"value": {"id": 2, "name": "ann", "Id": 5}}, {"value": "{'"}]},
        {"orders": [{"value": {"id": 3, "paid": 1.5, "lines": [{"n": 1}]}}, {"value": {"id": 4, "paid": "much"}}]},
        {"orders": [{"value": {"id": 5, "name": 7, "paid": 2}}, {"value": {"id": 6, "paid": "much"}}]},
    ]

    written = penstock_pipeline(pipeline).run(batches)

    values = sorted((record["value"] for record in written.sinks["all"]), key=lambda value: value["id"])
    assert values == [
        {"id": 1, "name": None, "at": 0},
        {"id": 2, "name": "ann", "at": 1},
        {"id": 3, "name": None, "paid": "1.5", "lines": '[{"n":1}]', "at": 3},
        {"id": 4, "name": None, "paid": "much", "lines": None, "at": 4},
        {"id": 5, "name": "7", "paid": "2", "lines": None, "at": 5},
        {"id": 6, "name": None, "paid": "much", "lines": None, "at": 6},
    ]
    assert [letter["reason"] for letter in written.dead_letters] == ["not JSON"]
    with pytest.raises(PipelineInvalid, match="at least one of sinks"):
        penstock_pipeline(Pipeline(name="empty", sources={"orders": SOURCE}))


def test_columns_are_noted_and_tables_get_them(spark: SparkSession, tmp_path: Path) -> None:
    notes = CheckpointNotes(Files(spark, str(tmp_path)), str(tmp_path))
    sink = DeltaSink(Destination("shop", "orders", "lake", str(tmp_path / "table"), options={"mergeSchema": "true"}))

    def write(evolution: Evolution, batch: int, **fields: object) -> str:
        records = _records(spark, {"id": batch, **fields})
        source = evolution.source_for(records)
        rows = decoded(records, source, str(tmp_path))
        sink.write(rows.drop(*(name for name in rows.columns if name.startswith("_"))), batch)
        return source.value.schema

    evolution = Evolution(SOURCE, str(tmp_path), notes)
    assert write(evolution, 0) == "id BIGINT NOT NULL"
    assert write(evolution, 1, paid=1) == "id BIGINT NOT NULL, `paid` BIGINT"
    after_a_restart = Evolution(SOURCE, str(tmp_path), notes)
    assert write(after_a_restart, 2, more="x") == "id BIGINT NOT NULL, `paid` BIGINT, `more` STRING"

    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [
        {"id": 0, "paid": None, "more": None},
        {"id": 1, "paid": 1, "more": None},
        {"id": 2, "paid": None, "more": "x"},
    ]


def _records(spark: SparkSession, value: dict[str, object]) -> DataFrame:
    row = (None, json.dumps(value).encode(), "orders", 0, 0)
    frame = spark.createDataFrame([row], "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT")
    return frame.selectExpr("*", "current_timestamp() AS timestamp", "NULL AS headers")


WRONG = """\
name: wrong
sources:
  orders:
    topic: orders
    value: {format: json, schema: "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"}
    watermark: {column: at, delay: 1 minute}
steps:
  sums:
    sql: |
      SELECT id,
             tags + 1 AS more
      FROM orders
  unbounded: {sql: "SELECT id, count(*) AS n FROM orders GROUP BY id", output: append}
  fine: {sql: "SELECT window.start AS since, count(*) AS n FROM orders GROUP BY window(at, '1 hour')"}
sinks:
  sums: {from: sums, topic: sums}
  unbounded: {from: unbounded, topic: unbounded}
  fine: {from: fine, topic: fine, key: "element_at(n, 1)"}
"""


def test_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    loaded = bind(read(str(file)), str(file))  # validate finds these, too

    found = analyze(loaded, spark)

    told = {
        str(problem).removeprefix(f"{file}:").partition(": error: ")[0]: problem.message for problem in found.problems
    }
    assert list(told) == ["11:14", "13:3", "18:3"]
    assert told["11:14"].startswith("[DATATYPE_MISMATCH")
    assert "Append output mode" in told["13:3"] or "append" in told["13:3"].lower()
    assert told["18:3"].startswith("[DATATYPE_MISMATCH")
    assert found.types["fine"] == "since TIMESTAMP, n BIGINT"


FUNCTIONS = """\
name: functions
sources:
  orders: {topic: orders, value: {format: json, schema: "id BIGINT"}, expect: [{that: id > 0, otherwise: dead-letter}]}
steps:
  named: {python: "MODULE:named", from: orders, keeps_source_row: true}
sinks:
  named: {from: named, topic: named, key: name}
  plain: {from: orders, topic: plain}
"""
MODULE = """\
from pyspark.sql import functions as f

def named(orders):
    return orders.filter("id < 9").withColumn("name", f.udf(lambda number: f"order {number}", "string")("id"))
"""


def test_why_a_query_is_not_one_plan(spark: SparkSession, tmp_path: Path) -> None:
    """`graph` knows only the file, and takes it for one plan."""
    (tmp_path / "orders_by_name.py").write_text(MODULE)
    file = tmp_path / "functions.yaml"
    file.write_text(FUNCTIONS.replace("MODULE", "orders_by_name"))
    loaded, _ = load_checked(str(file))
    analysis = analyse(loaded.pipeline, loaded.directory)
    (query,) = plan(loaded.pipeline, analysis).values()
    assert route(loaded.pipeline, analysis, query).way == "streamed"

    found = analyze(loaded, spark)

    assert found.problems == []
    assert found.not_one_plan == {"orders": "Spark would call its Python functions on rows of other outputs"}


def test_a_checkpoint_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    files, place, file = Files(spark, str(tmp_path)), str(tmp_path / "orders"), tmp_path / "others.yaml"
    file.write_text("name: a\nsources:\n  orders: {topic: others}\nsinks: {out: {from: orders, topic: out}}\n")
    loaded, _ = load_checked(str(file))
    shape = QueryShape(drive="stream", sources={"orders": SourceShape(kind="topics", place=("orders",))})
    other = QueryShape(drive="stream", sources={"orders": SourceShape(kind="topics", place=("others",))})

    guard(files, place, "orders", shape, loaded)
    guard(files, place, "orders", shape, loaded)

    told = 'others.yaml:3:19: refused: query "orders": it read orders, and reads others now; undo the edit, or give'
    with pytest.raises(PipelineFailed, match=told):
        guard(files, place, "orders", other, loaded)


def test_a_sink_of_files_takes_what_there_is(penstock_pipeline: Callable[..., PipelineUnderTest]) -> None:
    pipeline = Pipeline(
        name="files", sources={"orders": SOURCE}, sinks={"lake": FormatSink(source="orders", format="json", path="x")}
    )

    written = penstock_pipeline(pipeline).run({"orders": [{"value": {"id": 1, "paid": True}}]})

    assert written.sinks["lake"] == [{"id": 1, "paid": True}]
