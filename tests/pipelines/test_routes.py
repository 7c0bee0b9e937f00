"""Which way a query's batches are written, and why: decided from the file, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.pipelines.check.analysis import Analysis, analyse
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.check.routes import Route, TopicWrite, route, uses_headers
from penstock.pipelines.spec.documents import parse
from penstock.pipelines.spec.loading import bind
from penstock.pipelines.spec.model import Pipeline, TopicSource

SOURCE = 'topic: orders, value: {format: json, schema: "id BIGINT, amount DOUBLE, at TIMESTAMP, items ARRAY<INT>"}'
TIMED = SOURCE + ", watermark: {column: at, delay: 1 minute}"
ITEMS = "SELECT id, item FROM orders LATERAL VIEW explode(items) AS item"
BY_ID = "SELECT id, count(*) AS n FROM orders GROUP BY id"
BY_HOUR = "SELECT window.start AS since, count(*) AS n FROM orders GROUP BY window(at, '1 hour')"
FILES = "sinks: {out: {from: made, format: parquet, path: out}}"


def routed(source: str, made: str, sinks: str = "") -> dict[str, Route]:
    """By query."""
    pipeline, analysis = planned(source, made, sinks)
    return {name: route(pipeline, analysis, query) for name, query in plan(pipeline, analysis).items()}


def planned(source: str, made: str, sinks: str = "") -> tuple[Pipeline, Analysis]:
    """`made`: the step of that name, in SQL or as a mapping."""
    step = made if made.startswith("{") else f'{{sql: "{made}"}}'
    text = (
        f"name: shop\nsources:\n  orders: {{{source}}}\n"
        "  customers: {format: csv, mode: lookup, path: c.csv, schema: 'id BIGINT, name STRING'}\n"
        f"steps:\n  made: {step}\n{sinks or 'sinks: {out: {from: made, topic: out}}'}\n"
    )
    pipeline = bind(parse(text, "shop.yaml"), "shop.yaml").pipeline
    analysis = analyse(pipeline)
    assert analysis.findings == []
    return pipeline, analysis


def test_rows_one_by_one_and_final_results_are_one_plan() -> None:
    for made in ("SELECT id, upper(amount) AS amount FROM orders WHERE id > 3", ITEMS):
        found = routed(SOURCE, made)["orders"]
        assert (found.way, found.reasons, str(found)) == ("streamed", (), "one plan")
        assert found.writes == (TopicWrite({}, "exactly-once", ("out",)),)
    assert routed(TIMED, BY_HOUR)["made"].way == "streamed"
    assert routed(SOURCE, "{python: 'm:f', from: orders, keeps_source_row: true}")["orders"].way == "streamed"


JOINED = "SELECT o.id, name FROM orders o JOIN customers c ON o.id = c.id"


@pytest.mark.parametrize(
    ("found", "way", "reason"),
    [
        (routed(SOURCE, BY_ID)["made"], "prepared", 'with output "update" its rows are not final'),
        (routed(SOURCE, JOINED)["orders"], "batch by batch", '"customers" is read anew for every batch'),
        (
            routed(SOURCE + ", evolution: add-columns", "SELECT * FROM orders")["orders"],
            "batch by batch",
            '"orders" gets columns that appear in its records',
        ),
        (
            routed(SOURCE, "{python: 'm:f', from: orders}")["orders"],
            "batch by batch",
            'step "made" is a function without "keeps_source_row: true"',
        ),
        (
            routed(SOURCE, f'{{sql: "{ITEMS}", expect: [{{that: item > 0}}]}}')["orders"],
            "batch by batch",
            '"made" makes several rows of one record, and dead letters',
        ),
        (
            routed(SOURCE, "WITH x AS (SELECT id FROM orders) SELECT id FROM x")["orders"],
            "batch by batch",
            'step "made" is not done row by row: it has a WITH',
        ),
        (
            routed(SOURCE, "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id")["orders"],
            "batch by batch",
            'step "made" joins',
        ),
        (
            routed(SOURCE, "SELECT id FROM orders", sinks=FILES)["orders"],
            "batch by batch",
            'sink "out" is not a topic',
        ),
    ],
)
def test_what_needs_foreach_batch(found: Route, way: str, reason: str) -> None:
    assert (found.way, str(found), [each.text for each in found.reasons]) == (way, "foreachBatch", [reason])


def test_records_that_cannot_be_one_write() -> None:
    several = """sinks:
  a: {from: made, topic: a}
  b: {from: made, topic: b, options: {kafka.compression.type: zstd}}
  c: {from: made, topic: c, options: {kafka.compression.type: zstd}}
  d: {from: made, topic: d, delivery: at-least-once}"""
    found = routed(SOURCE, "SELECT id FROM orders", sinks=several)["orders"]

    assert found.way == "prepared"
    assert [(write.sinks, write.names, write.takes_dead_letters) for write in found.writes] == [
        (("a",), (), True),
        (("b", "c"), ("b", "c"), False),
        (("d",), (), False),
    ]
    assert [reason.text for reason in found.reasons] == [
        f'sink "{name}" has options or a delivery of its own' for name in "bcd"
    ]

    only_d = "sinks: {d: {from: made, topic: d, delivery: at-least-once}}"
    assert routed(SOURCE, "SELECT id FROM orders", sinks=only_d)["orders"].way == "prepared"  # dead letters are once
    assert routed(SOURCE + ", on_error: drop", "SELECT id FROM orders", sinks=only_d)["orders"].way == "streamed"


@pytest.mark.parametrize(
    ("source", "made", "expected"),
    [
        (SOURCE, "SELECT id FROM orders", True),  # a record that does not decode keeps its headers
        (SOURCE + ", on_error: drop", "SELECT * FROM orders", False),
        (SOURCE + ", on_error: drop", "SELECT id, _Headers AS h FROM orders", True),
        (SOURCE + ", on_error: drop", "{python: 'm:f', from: orders, keeps_source_row: true}", True),
        (SOURCE + ", on_error: drop", "{sql: SELECT id FROM orders, expect: [{that: id > 0}]}", True),
        (
            SOURCE + ", on_error: drop, expect: [{that: size(_headers) > 0, otherwise: drop}]",
            "SELECT id FROM orders",
            True,
        ),
    ],
)
def test_headers_are_read_where_somebody_uses_them(source: str, made: str, expected: bool) -> None:
    pipeline, analysis = planned(source, made)
    queries = plan(pipeline, analysis)

    assert uses_headers(pipeline, analysis, queries["orders"]) is expected


def test_headers_may_carry_the_guids_of_schemas() -> None:
    pipeline, analysis = planned(SOURCE + ", on_error: drop", "SELECT id FROM orders")
    queries = plan(pipeline, analysis)
    assert not uses_headers(pipeline, analysis, queries["orders"])
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    framed = replace(source, value=replace(source.value, registry="http://127.0.0.1:1"))
    registered = replace(pipeline, sources={"orders": framed})
    assert uses_headers(registered, analysis, queries["orders"])


def test_a_query_with_state_has_no_dead_letters_of_its_own() -> None:
    pipeline, analysis = planned(TIMED, BY_HOUR)
    queries = plan(pipeline, analysis)

    assert not uses_headers(pipeline, analysis, queries["made"])
    assert uses_headers(pipeline, analysis, queries["orders"])


def test_runs_over_tables_are_no_streams() -> None:
    found = routed("format: csv, mode: snapshot, path: o.csv, schema: 'id BIGINT'", "SELECT id FROM orders")["orders"]

    assert (found.way, str(found)) == ("table", "run by run")
