"""What a sink would make of rows that change, a query that reads what it writes, and `window` by its name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.cli.pipeline_cluster import cluster_of
from penstock.pipelines.check.validate import validate
from penstock.pipelines.operate.backfill import Backfill, shadowed
from penstock.pipelines.spec.loading import load
from penstock.pipelines.spec.model import FormatSink, Pipeline, TopicSource

TOTALS = """\
name: shop
bootstrap: 127.0.0.1:9092
sources:
  orders:
    topic: orders
    value: {{format: json, schema: "id BIGINT, amount DOUBLE, at TIMESTAMP"}}
    watermark: {{column: at, delay: 1 minute}}
steps:
  totals:
    sql: SELECT id, window, sum(amount) AS amount FROM orders GROUP BY id, window(at, '1 minute')
    output: {output}
sinks:
  totals: {{from: totals, {sink}}}
"""

needs_pyiceberg = pytest.mark.skipif(find_spec("pyiceberg") is None, reason="no pyiceberg here: pip install pyiceberg")
APPENDING = (
    "format: parquet, path: t",
    "format: delta, path: t",
    "format: postgres, table: t",
    pytest.param("format: iceberg, table: s.t", marks=needs_pyiceberg),
)
MERGING = (
    pytest.param("format: iceberg, table: s.t, key: [id, window]", marks=needs_pyiceberg),
    "format: delta, path: t, key: [id, window]",
    "format: postgres, table: t, key: [id, window]",
    "format: elasticsearch, table: t, key: [id, window]",
    "format: cassandra, table: k.t",
    "format: console",
    "topic: totals",
)


def said(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    return [str(problem).removeprefix(f"{file}:") for problem in validate(str(file))]


@pytest.mark.parametrize("sink", APPENDING)
@pytest.mark.parametrize("output", ["update", "complete"])
def test_rows_that_change_are_not_appended(sink: str, output: str, tmp_path: Path) -> None:
    (problem,) = said(tmp_path, TOTALS.format(output=output, sink=sink))
    kind = sink.split()[1].strip(",")
    way_out = 'write to a topic, or to delta with a "key"' if kind == "parquet" else 'say by "key" which row replaces'
    assert problem.startswith(
        f'13:3: error: "totals" writes a row again whenever it changes (output: {output}), and {kind} would keep every '
        f"intermediate value; {way_out}"
    )
    assert said(tmp_path, TOTALS.format(output="append", sink=sink)) == []


@pytest.mark.parametrize("sink", MERGING)
def test_rows_that_change_replace_one_another(sink: str, tmp_path: Path) -> None:
    assert said(tmp_path, TOTALS.format(output="update", sink=sink)) == []


LOOP = """\
name: shop
sources:
  orders: {{{read}, value: {{format: json, schema: "id BIGINT"}}}}
sinks:
  copies: {{from: orders, topic: {write}}}
"""


@pytest.mark.parametrize(
    ("read", "write", "problem"),
    [
        ("topic: orders", "copies", ""),
        ("topic: orders", "orders", '5:33: error: query "orders" reads orders, too, and would read what it writes'),
        ("topic: [a, copies]", "copies", '5:33: error: query "orders" reads copies, too'),
        ("topic_pattern: orders.*", "orders-2", '5:33: error: query "orders" reads orders-2, too'),
        ("topic: orders, bootstrap: elsewhere:9092", "orders", ""),
        ("topic: orders", "orders, options: {kafka.bootstrap.servers: elsewhere:9092}", ""),
        ("topic_pattern: shop.*", "copies", '1:1: error: query "orders" reads shop.dead-letters, where its own dead'),
    ],
)
def test_a_query_does_not_read_what_it_writes(read: str, write: str, problem: str, tmp_path: Path) -> None:
    problems = said(tmp_path, LOOP.format(read=read, write=write))
    assert [each[: len(problem)] for each in problems] == ([problem] if problem else [])


def test_windows_are_called_windows(tmp_path: Path) -> None:
    text = TOTALS.format(output="append", sink="topic: totals")
    expecting = text.replace(
        "    output:", "    expect: [{that: window.start IS NOT NULL, otherwise: drop}]\n    output:"
    )
    assert said(tmp_path, expecting) == []
    for broken in ("window(at, '1 minute'", "window(at, '1 minute'))", "window((at)"):
        problems = said(tmp_path, text.replace("window(at, '1 minute')", broken))
        assert problems
        assert "wind0w" not in " ".join(problems).lower()


@pytest.mark.parametrize(
    ("sink", "place"),
    [
        (FormatSink(source="orders", format="postgres", table="shop.orders"), "shop.orders_may_1"),
        (FormatSink(source="orders", format="snowflake", table="orders"), "orders_may_1"),
        (FormatSink(source="orders", format="cassandra", table="shop.orders"), "shop.orders_may_1"),
        (FormatSink(source="orders", format="elasticsearch", table="orders"), "orders.may-1"),
        (FormatSink(source="orders", format="jdbc", options={"dbtable": "shop.orders"}), "shop.orders_may_1"),
        (FormatSink(source="orders", format="parquet", path="orders"), "orders.may-1"),
    ],
)
def test_the_table_of_a_shadow_is_beside_the_original(sink: FormatSink, place: str) -> None:
    """A dot in its name would make it a table of another schema."""
    pipeline = Pipeline(name="shop", sources={"orders": TopicSource(topic=("orders",))}, sinks={"orders": sink})
    from penstock.pipelines.check.analysis import analyse
    from penstock.pipelines.check.query_plan import plan

    queries = plan(pipeline, analyse(pipeline)).values()
    shadow = shadowed(pipeline, queries, Backfill(name="again", begin="earliest", suffix=".may-1")).sinks["orders"]
    assert isinstance(shadow, FormatSink)
    assert place in (shadow.table, shadow.path, shadow.options.get("dbtable"))


def test_the_file_says_which_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shop.yaml"
    text = LOOP.format(read="topic: orders", write="copies")
    file.write_text(text)
    bare = load(str(file))
    file.write_text(f"{text}bootstrap: one:9092\nenvironments: {{prod: {{bootstrap: 'prod:9092'}}}}\n")

    assert str(cluster_of(None, bare)) == "127.0.0.1:9092 (the default)"
    assert str(cluster_of(None, load(str(file)))) == f"one:9092 ({file})"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "two:9092")
    assert str(cluster_of(None)) == "two:9092 (PENSTOCK_BOOTSTRAP)"
    assert str(cluster_of(None, bare)) == "two:9092 (PENSTOCK_BOOTSTRAP)"
    overrides = "which overrides PENSTOCK_BOOTSTRAP=two:9092"
    assert str(cluster_of(None, load(str(file)))) == f"one:9092 ({file}, {overrides})"
    assert str(cluster_of(None, load(str(file), "prod"))) == f"prod:9092 ({file} --env prod, {overrides})"
    assert str(cluster_of("three:9092", load(str(file)))) == "three:9092 (--bootstrap-server)"
