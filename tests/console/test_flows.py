"""Rates on the edges of a pipeline, and backfills that are started from a page."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.client.errors import ClientError
from penstock.console.observe.pipelines import graph_of
from penstock.console.pages.layout import Frame
from penstock.console.pages.pipelines import backfill_form, graph
from penstock.console.server.backfills import RUNNING_MAX, Backfills
from penstock.console.views.backfills import BadBackfill, WantedBackfill, parse_backfill
from penstock.console.views.flows import edge_rates
from penstock.console.views.graph import DEAD, Edge, Node, lay_out
from penstock.demo.workload import pipeline_file
from penstock.pipelines.operate.reports import PipelineReport, QueryReport
from waiting import wait_until

NOW = datetime(2026, 5, 2, tzinfo=UTC)
NODES = [
    Node("orders", "orders", "topic orders", "topic"),
    Node("clean", "clean", "query clean", "step", "clean"),
    Node("sums", "sums", "query sums", "step", "sums"),
    Node("sink out", "out", "topic out", "topic"),
    Node("sink totals", "totals", "topic totals", "topic"),
    Node(DEAD, DEAD, "topic dead", "dead"),
]
EDGES = [
    Edge("orders", "clean"),
    Edge("clean", "sums"),
    Edge("clean", "sink out"),
    Edge("sums", "sink totals"),
    Edge("clean", DEAD),
]


def report(*queries: QueryReport, run_id: str = "r") -> PipelineReport:
    return PipelineReport(name="p <b>", run_id=run_id, state="running", started_ms=0, heartbeat_ms=0, queries=queries)


def clean(out: int, dead: int, ended_ms: int) -> QueryReport:
    return QueryReport(
        name="clean",
        state="running",
        input_rows_per_second=140.0,
        rows_out={"out": out},
        dead_letters=dead,
        batch_ended_ms=ended_ms,
    )


SUMS = QueryReport(name="sums", state="backing off", input_rows_per_second=5.0)


def test_rates_of_edges() -> None:
    rates = edge_rates(NODES, EDGES, report(clean(900, 12, 9_000), SUMS), report(clean(100, 2, 4_000), SUMS))
    assert rates == {EDGES[0]: 140.0, EDGES[1]: 0.0, EDGES[2]: 160.0, EDGES[4]: 2.0}
    html = graph(lay_out(NODES, EDGES), rates)
    assert html.count('class="rate"') == 4
    assert "160/s" in html


def test_rates_that_are_not_known_are_left_out() -> None:
    now = report(clean(900, 12, 9_000))
    assert edge_rates(NODES, EDGES, now, None) == {EDGES[0]: 140.0}
    assert edge_rates(NODES, EDGES, now, report(clean(100, 2, 4_000), run_id="earlier")) == {EDGES[0]: 140.0}
    assert edge_rates(NODES, EDGES, now, now)[EDGES[2]] == 0.0
    both = [*EDGES, Edge("customers", "clean")]
    assert EDGES[0] not in edge_rates(NODES, both, now, None), "the rate is that of both sources together"


def test_letters_of_a_source_are_counted_by_the_query_that_reads_it() -> None:
    edge = Edge("orders", DEAD)
    now, before = report(clean(900, 12, 9_000)), report(clean(100, 2, 4_000))
    assert edge_rates(NODES, [EDGES[0], edge], now, before)[edge] == 2.0
    assert edge not in edge_rates(NODES, [EDGES[0], Edge("orders", "sums"), edge], now, before)


def test_the_graph_of_the_demo_has_rates() -> None:
    pytest.importorskip("sqlglot", reason="the extra `pipelines` is not installed")
    name, nodes, edges = graph_of(pipeline_file("fleet"))
    assert name == "fleet"
    queries = [QueryReport(name=node.query, state="running", input_rows_per_second=7.0) for node in nodes if node.query]
    assert edge_rates(nodes, edges, report(*queries), None)


def test_backfills_as_forms_ask_for_them() -> None:
    wanted = parse_backfill({"name": "p", "as": "p-2", "from": "2026-05-01", "to": "latest", "suffix": ".new"}, NOW)
    assert wanted == WantedBackfill("p-2", "2026-05-01", "latest", ".new")
    assert wanted.arguments("-f.yaml", "h:1", "prod") == [
        "pipeline",
        "run",
        "--from=2026-05-01",
        "--to=latest",
        "--as=p-2",
        "--output-suffix=.new",
        "--env=prod",
        "--bootstrap-server=h:1",
        "--",
        "-f.yaml",
    ]
    good = {"name": "p", "as": "q", "from": "earliest"}
    for bad in (
        {"as": ""},
        {"as": "p"},
        {"as": "--once"},
        {"as": "a;b"},
        {"from": ""},
        {"from": "sometime"},
        {"from": "2027-01-01"},
        {"to": "earliest"},
        {"suffix": "/../x"},
        {"from": "x" * 5000},
    ):
        with pytest.raises(BadBackfill):
            parse_backfill({**good, **bad}, NOW)


def test_the_form_is_escaped_and_left_out_of_a_read_only_console() -> None:
    html = backfill_form(report(), "penstock <i>", {"x": "failed: <b>"}, Frame(csrf="t"))
    assert "<b>" not in html
    assert "penstock &lt;i&gt;" in html
    assert "<form" not in backfill_form(report(), "", {}, Frame(csrf="t", read_only=True))


def test_backfills_are_processes_that_end_with_the_console(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\nif sys.argv[1] == 'fail': sys.exit('why <b>')\ntime.sleep(float(sys.argv[1]))\n"
    )
    backfills = Backfills([sys.executable, str(program)])
    backfills.start("bad", ["fail"])
    wait_until(lambda: backfills.states()["bad"] != "running", "it fails")
    assert backfills.states()["bad"] == "failed: why <b>"
    backfills.start("good", ["0"])
    wait_until(lambda: backfills.states()["good"] == "ended", "it ends")
    for number in range(RUNNING_MAX):
        backfills.start(f"long-{number}", ["600"])
    with pytest.raises(ClientError, match="the backfill long-0 is running"):
        backfills.start("long-0", ["600"])
    with pytest.raises(ClientError, match="2 backfills are running"):
        backfills.start("one-more", ["600"])
    backfills.close()
    assert backfills.states() == {}
