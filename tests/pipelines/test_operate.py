"""What operating pipelines decides without Spark and brokers: reports, backfills, dead letters, metrics."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from rich.console import Console

from narrowing import expect
from penstock.cli.main import run
from penstock.cli.pipeline_display import line_of, picture
from penstock.client.errors import ClientError
from penstock.model.ids import TopicPartition
from penstock.pipelines import load
from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.query_plan import QueryPlan, plan
from penstock.pipelines.engine.metrics import FAMILIES, families_of, parse_listener
from penstock.pipelines.engine.prepared import Output, Prepared
from penstock.pipelines.engine.query_status import QueryStatus, RecordTimes, Tally
from penstock.pipelines.operate.backfill import (
    Backfill,
    BackfillRefused,
    check_points,
    chosen,
    from_json,
    parse_point,
    ranges,
    read_whole,
    shadowed,
    to_json,
)
from penstock.pipelines.operate.dead_letters import Done, Letter, Selection, ledger_entry, read_ledger, replay
from penstock.pipelines.operate.reports import (
    REPORT_EVERY_MS,
    Control,
    PipelineReport,
    QueryReport,
    UnreadableReport,
    is_due,
    state_of,
)
from penstock.pipelines.spec.model import FormatSink, Pipeline, TopicSink, TopicSource
from penstock.spark.progress.query_progress import HEARTBEAT_MS, LOST_AFTER_MS, QueryProgress, SourceIdentity

PAGE = Path(__file__).parents[2] / "docs" / "pipelines-operating.md"


def report(**fields: object) -> PipelineReport:
    given: dict[str, object] = {"name": "orders", "run_id": "r", "state": "running", "started_ms": 0, **fields}
    return PipelineReport(**{"heartbeat_ms": 0, **given})  # type: ignore[arg-type]


# Reports.


def test_reports_come_back_as_they_were() -> None:
    query = QueryReport(name="q", state="backing off", error="down", rows_out={"a": 3}, groups=("spark-orders.q",))
    told = report(queries=(query, QueryReport(name="p")), error="ended", environment="prod")

    assert PipelineReport.from_json(told.to_json()) == told
    assert PipelineReport.from_json(told.to_json().replace('"name":"orders"', '"name":"orders","more":1')) == told
    order = Control(command="stop", run_id="r", asked_ms=5, by="ann@host")
    assert Control.from_json(order.to_json()) == order


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"version": 2}', '{"version": 1}', '{"version": 1, "queries": [3]}']
)
def test_what_is_no_report_is_told(text: str) -> None:
    with pytest.raises(UnreadableReport):
        PipelineReport.from_json(text)
    with pytest.raises(UnreadableReport):
        Control.from_json(text)


def test_silence_is_loss_unless_it_has_ended() -> None:
    assert report().as_of(LOST_AFTER_MS).state == "running"
    assert report().as_of(LOST_AFTER_MS + 1).state == "lost"
    assert not report().as_of(LOST_AFTER_MS + 1).is_live
    assert report(state="stopped").as_of(LOST_AFTER_MS + 1).state == "stopped"


def test_states_are_told_at_once_figures_every_second_and_a_heartbeat() -> None:
    told = report(queries=(QueryReport(name="q", state="running"),))

    def later(ms: int, **fields: object) -> PipelineReport:
        return dataclasses.replace(told, heartbeat_ms=ms, **fields)  # type: ignore[arg-type]

    assert is_due(None, told)
    assert is_due(told, later(1, state="stopping"))
    assert is_due(told, later(1, queries=(QueryReport(name="q", state="backing off"),)))
    busy = (QueryReport(name="q", state="running", rows_in=5),)
    assert not is_due(told, later(REPORT_EVERY_MS - 1, queries=busy))
    assert is_due(told, later(REPORT_EVERY_MS, queries=busy))
    assert not is_due(told, later(HEARTBEAT_MS - 1))
    assert is_due(told, later(HEARTBEAT_MS))


def test_the_state_of_a_pipeline_and_its_last_error() -> None:
    down = QueryReport(name="q", state="backing off", error="new", error_ms=2)
    ran = QueryReport(name="p", state="running", error="old", error_ms=1, lag=3, watermark_ms=7)

    assert state_of([down, ran], stopping=False) == "backing off"
    assert state_of([down, ran], stopping=True) == "stopping"
    assert state_of([ran], stopping=False) == "running"
    told = report(queries=(down, ran))
    assert (told.last_error, told.lag, told.watermark_ms) == ('query "q": new', 3, 7)
    assert report(error="whole", queries=(down,)).last_error == "whole"
    assert (report().last_error, report().lag, report().watermark_ms) == (None, None, None)


def batch(number: int, run_id: str) -> dict[str, object]:
    offsets = {"orders": {"0": number}}
    return {
        "id": "q",
        "runId": run_id,
        "batchId": number,
        "timestamp": "2026-05-01T00:00:00.000Z",
        "numInputRows": 10,
        "durationMs": {"triggerExecution": 200},
        "sources": [{"endOffset": offsets, "latestOffset": {"orders": {"0": number + 4}}, "numInputRows": 10}],
        "stateOperators": [{"numRowsTotal": 2, "numRowsDroppedByWatermark": 1, "memoryUsedBytes": 100}],
        "eventTime": {"watermark": "2026-05-01T00:00:00.000Z"},
        "processedRowsPerSecond": 50.0,
    }


def running(run_id: str) -> QueryProgress:
    return QueryProgress(query_id="q", run_id=run_id, name="n", state="running", started_ms=0, heartbeat_ms=0)


ORDERS = (SourceIdentity("penstock: orders", bootstrap="here:9092", group="spark-orders.q"),)


def query_status() -> QueryStatus:
    """After a batch, a failure, a restart and another batch."""
    status = QueryStatus("q", lambda: 1000)
    status.starts()
    status.started(running("a"), ORDERS)
    tally = Tally({"out": 8}, dead_letters=2, seconds={"out": 0.1})
    tally.reasons["not JSON"] = 2
    tally.times = RecordTimes(8, mean_ms=1777593599000.0, oldest_ms=1777593598000.0)
    status.wrote(tally, 0)
    status.progressed(batch(0, "a"))
    status.failed("down", 1, 0.5)
    status.progressed(batch(1, "other"))
    assert (status.report().state, status.report().retry_ms, status.report().failures) == ("backing off", 1500, 1)
    status.starts()
    status.started(running("b"), ORDERS)
    status.progressed(batch(1, "b"))
    return status


def test_figures_of_a_query_go_on_over_restarts() -> None:
    status = query_status()
    told = status.report()

    assert (told.state, told.failures, told.restarts, told.error, told.retry_ms) == ("running", 0, 1, "down", None)
    assert (told.batches, told.batch_id, told.rows_in, told.late_rows) == (2, 1, 20, 2)
    assert (told.rows_out, told.dead_letters) == ({"out": 8}, 2)
    assert (told.lag, told.state_rows, told.groups) == (4, 2, ("spark-orders.q",))
    assert told.watermark_ms == 1777593600000
    status.idle("q", "b")
    assert status.report().lag == 0
    assert status.terminated("q", "b", None) is None
    assert status.terminated("q", "b", "Error: down") == "Error: down"
    assert status.heard_end.is_set()


def test_what_a_plan_has_written_is_observed_by_spark(caplog: pytest.LogCaptureFixture) -> None:
    letters = (Output(kinds=("not JSON", "null")), Output(kinds=("expects",)))
    outputs = (Output("a"), Output("b"), *letters, Output(violated=("orders", "an amount")))
    status = QueryStatus("q", lambda: 1000)
    status.observes(Prepared(cast(Any, None), outputs, cast(Any, None)).tally, "a,b")
    status.started(running("a"), ORDERS)
    counts = {"output_0": 5, "output_1": 0, "output_2": 1, "output_3": 2, "output_4": 3}
    kinds = {"output_2kind_0": 0, "output_2kind_1": 1, "output_3kind_0": 2}
    times = {"timed": 5, "time_mean": 1777593599000.0, "time_oldest": 1777593598500}
    observed = {"input": {"digests_of_0": 0}, "outputs": {**counts, **kinds, **times}}

    durations = {"triggerExecution": 200, "addBatch": 150}
    status.progressed({**batch(0, "a"), "durationMs": durations, "observedMetrics": observed})
    status.progressed(batch(1, "a"))  # its decision was there already, so nothing was computed

    told = status.report()
    assert (told.rows_out, told.dead_letters, told.batches) == ({"a": 5, "b": 0}, 3, 2)
    assert (told.dead_letters_by_reason, told.sink_seconds) == ({"null": 1, "expects": 2}, {"a,b": 0.15})
    assert (told.latency_ms, told.latency_max_ms, status.latency.records) == (1200, 1700, 5)
    told_lines = [each.getMessage() for each in caplog.records if each.name == "penstock.pipelines"]
    assert told_lines == ['batch 0: 3 rows of "orders" break "an amount"']


def test_latency_is_from_the_timestamps_of_records_to_the_end_of_their_batch() -> None:
    status = query_status()
    assert (status.latency.records, round(status.latency.seconds, 6)) == (8, 8 * 1.2)
    told = status.report()
    assert (told.latency_ms, told.latency_max_ms) == (1200, 2200)
    # Rows of a step with state come from no single record; Spark knows the times in the watermark's column.
    times = {"avg": "2026-04-30T23:59:57.000Z", "min": "2026-04-30T23:59:50.000Z", "max": "2026-05-01T00:00:01.000Z"}
    status.progressed({**batch(2, "b"), "eventTime": times})
    assert (status.report().latency_ms, status.report().latency_max_ms) == (3200, 10_200)
    assert (status.latency.records, round(status.latency.seconds, 6)) == (18, 8 * 1.2 + 10 * 3.2)
    # The clock of a producer that is ahead makes no negative latency.
    status.progressed({**batch(3, "b"), "eventTime": {**times, "avg": times["max"]}})
    assert status.report().latency_ms == 0


def test_how_it_looks() -> None:
    down = QueryReport(
        name="q", state="backing off", failures=3, restarts=3, error="[x] down", error_ms=1000, retry_ms=9000
    )
    ran = dataclasses.replace(query_status().report(), name="p", dead_letters=41)
    screen = io.StringIO()
    Console(file=screen, width=140).print(picture(report(heartbeat_ms=6000, queries=(down, ran))))
    shown = screen.getvalue()

    head, columns, first, second, *errors = [line.split() for line in shown.splitlines()]
    assert head == ["orders", "running", "6s"]
    assert columns == ["query", "state", "batch", "rows", "rows/s", "lag", "late", "dead", "restarts", "watermark"]
    assert first == ["q", "backing", "off", "3", "s", "-", "0", "-", "-", "0", "0", "3", "-"]
    assert second == ["p", "running", "1", "20", "50", "4", "2", "41", "1", "2026-05-01T00:00:00Z"]
    assert [" ".join(line) for line in errors] == ["q: 5s ago: [x] down", "p: 5s ago: down"]
    assert line_of(down, 6000) == "q: backing off 3 s, error: [x] down"  # no batch, no figures
    failed = dataclasses.replace(down, state="failed", batch_id=4)
    assert line_of(failed, 6000).endswith("restarts 3, watermark -, error: [x] down")
    assert line_of(failed, 6000, failure=False).endswith("restarts 3, watermark -")


# Metrics.


class Told(Collector):
    def __init__(self, status: QueryStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        return families_of([(report(queries=(self._status.report(),)), {"q": self._status})])


def test_metrics_are_those_of_the_page() -> None:
    registry = CollectorRegistry()
    registry.register(Told(query_status()))
    found = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    values = {sample.name: sample.value for family in found.values() for sample in family.samples}

    assert set(found) == {family.name.removesuffix("_total") for family in FAMILIES}
    assert values["penstock_pipeline_rows_in_total"] == 20
    assert values["penstock_pipeline_rows_out_total"] == 8
    assert values["penstock_pipeline_batch_seconds_count"] == 2
    assert values["penstock_pipeline_batch_seconds_sum"] == 0.4
    assert values["penstock_pipeline_dead_letters_by_reason_total"] == 2
    assert values["penstock_pipeline_sink_seconds_total"] == 0.1
    assert values["penstock_pipeline_latency_seconds_count"] == 8
    assert values["penstock_pipeline_latency_seconds_sum"] == pytest.approx(9.6)
    assert values["penstock_pipeline_latency_max_seconds"] == 2.2
    states = {each.labels["state"]: each.value for each in found["penstock_pipeline_query_state"].samples}
    assert states == {"waiting": 0, "running": 1, "backing off": 0, "ended": 0, "failed": 0}
    rows = re.findall(r"^\| `(penstock_pipeline_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (family.name, family.kind, ", ".join(f"`{each}`" for each in family.labels), family.help) for family in FAMILIES
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [(":9405", ("", 9405)), ("[::1]:0", ("::1", 0)), ("a:1", ("a", 1)), ("9405", None), ("a:b", None)],
)
def test_listeners(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert parse_listener(text) == address
        return
    with pytest.raises(ClientError, match="is not host:port"):
        parse_listener(text)


# Backfills.

NOW = datetime(2026, 5, 2, tzinfo=UTC)
CHAIN = """\
name: shop
sources:
  orders: {topic: orders}
  large: {topic: large}
  files: {format: json, path: in, schema: "value STRING"}
steps:
  big: {sql: SELECT value FROM orders}
sinks:
  large: {from: big, topic: large}
  routed: {from: orders, topic_expression: "'to-' || _key"}
  lake: {from: large, format: parquet, path: lake/}
  table: {from: large, format: jdbc, options: {dbtable: public.large, url: x}}
  seen: {from: large, format: console}
  copies: {from: files, topic: copies}
"""


@pytest.fixture
def chain(tmp_path: Path) -> tuple[Pipeline, dict[str, QueryPlan]]:
    file = tmp_path / "shop.yaml"
    file.write_text(CHAIN)
    loaded = load(str(file))
    return loaded.pipeline, plan(loaded.pipeline, analyse(loaded.pipeline, loaded.directory))


def test_a_backfill_has_a_name_and_outputs_of_its_own(chain: tuple[Pipeline, dict[str, QueryPlan]]) -> None:
    pipeline, queries = chain
    wanted = Backfill(name="again", begin="earliest", suffix=".v2", queries=("orders", "large"))
    found = chosen(pipeline, queries, wanted)

    shadow = shadowed(pipeline, found, wanted)

    assert [query.name for query in found] == ["orders", "large"]
    assert (shadow.name, shadow.dead_letter_topic) == ("again", "shop.dead-letters.v2")
    large, routed = shadow.sinks["large"], shadow.sinks["routed"]
    assert isinstance(large, TopicSink)
    assert isinstance(routed, TopicSink)
    assert large.topic == "large.v2"
    assert routed.topic_expression == "concat(CAST(('to-' || _key) AS STRING), '.v2')"
    assert expect(FormatSink, shadow.sinks["lake"]).path == "lake.v2"
    assert shadow.sinks["table"].options["dbtable"] == "public.large_v2"
    assert shadow.sinks["seen"] == pipeline.sinks["seen"]
    assert shadow.sinks["copies"] == pipeline.sinks["copies"]
    assert expect(TopicSource, shadow.sources["large"]).topic == ("large.v2",)
    assert shadow.sources["orders"] == pipeline.sources["orders"]
    assert read_whole(pipeline, found) == {"large"}
    same = shadowed(pipeline, found[:1], Backfill(name="again", begin="earliest"))
    assert (same.name, same.dead_letter_topic, same.sinks) == ("again", "shop.dead-letters", pipeline.sinks)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Backfill(name="shop", begin="earliest"), "is the pipeline itself"),
        (Backfill(name="a/b", begin="earliest"), "cannot be a name"),
        (Backfill(name="a", begin="earliest", suffix="/x"), "--output-suffix"),
        (Backfill(name="a", begin="earliest", queries=("order",)), 'no query "order"; did you mean "orders"'),
        (
            Backfill(name="a", begin="earliest", queries=("orders", "large")),
            'query "large" reads large, which this backfill writes',
        ),
        (Backfill(name="a", begin="earliest", suffix=".x"), 'query "files" reads "files", which is no topic'),
    ],
)
def test_what_makes_no_sense_is_refused(
    wanted: Backfill, message: str, chain: tuple[Pipeline, dict[str, QueryPlan]]
) -> None:
    with pytest.raises(BackfillRefused, match=re.escape(message)):
        chosen(*chain, wanted)


@pytest.mark.parametrize(
    ("begin", "end", "message"),
    [
        ("soon", "", "--from 'soon' is not earliest, latest"),
        ("offset:x", "", "is not an offset"),
        ("2026-05-03", "", "has not come yet"),
        ("earliest", "2026-05-02T01:00:00Z", "leave it out, and the pipeline goes on"),
        ("earliest", "earliest", "is before everything"),
        ("latest", "latest", "nothing lies behind --from latest"),
        ("2026-05-01T12:00:00", "2026-05-01", "--to is not behind --from"),
        ("offset:5", "offset:5", "--to is not behind --from"),
        ('{"o": {"0": 5}}', '{"o": {"0": 4}}', "o-0: --to is at 4, before --from at 5"),
        ('{"o": 5}', "", "is not like"),
    ],
)
def test_points_that_make_no_sense_are_refused(begin: str, end: str, message: str) -> None:
    with pytest.raises(ClientError, match=re.escape(message)):
        check_points(parse_point("--from", begin, NOW), parse_point("--to", end, NOW) if end else None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "earliest"], "--from begins a backfill, which has checkpoints of its own: name it with --as"),
        (["--to", "latest"], "--to is for backfills; say --from, too"),
        (["--as", "x"], "--as is for backfills; say --from, too"),
        (["--output-suffix", ".x", "--once"], "--output-suffix is for backfills; say --from, too"),
        (["--query", "one"], "--query is for backfills; say --from, too"),
    ],
)
def test_options_that_belong_together(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: a\nsources: {one: {topic: x}}\nsinks: {out: {from: one, topic: y, key: value}}\n")
    assert run(["pipeline", "run", str(file), *options]) == 1
    assert capsys.readouterr().err == f"penstock: {message}\n"


ZERO, ONE = TopicPartition("o", 0), TopicPartition("o", 1)


def test_points_become_offsets() -> None:
    earliest, latest = {ZERO: 10, ONE: 0}, {ZERO: 100, ONE: 20}

    def between(begin: str, end: str = "", **found: dict[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        points = parse_point("--from", begin, NOW), parse_point("--to", end, NOW) if end else None
        return ranges(*points, earliest, latest, found.get("first", {}), found.get("last", {}))

    assert between("earliest") == between("earliest", "latest") == {ZERO: (10, 100), ONE: (0, 20)}
    assert between("latest") == {ZERO: (100, 100), ONE: (20, 20)}
    assert between("offset:15", "offset:50") == {ZERO: (15, 50), ONE: (15, 20)}
    assert between('{"o": {"0": 15, "1": -2}}', '{"o": {"0": -1, "1": 7}}') == {ZERO: (15, 100), ONE: (0, 7)}
    assert between("2026-05-01", "2026-05-02", first={ZERO: 40}, last={ZERO: 60}) == {ZERO: (40, 60), ONE: (20, 20)}
    assert between("offset:60", "2026-05-01", last={ZERO: 40, ONE: 3}) == {ZERO: (60, 60), ONE: (20, 20)}
    with pytest.raises(BackfillRefused, match="offset:101 is in no partition: o-0 has 10 to 100, o-1 has 0 to 20"):
        between("offset:101")
    with pytest.raises(ClientError, match="says nothing of o-1"):
        between('{"o": {"0": 15}}')
    found = {"orders": between("earliest")}
    assert from_json(to_json(found)) == found


# Dead letters.


def letter(offset: int = 7, **headers: str) -> Letter:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in headers.items()}
    return Letter(
        topic="dead",
        partition=1,
        offset=offset,
        key=b"k",
        value=None,
        headers=tuple((name, value.encode()) for name, value in named.items()),
        timestamp_ms=99,
    )


def test_a_replayed_record_is_the_one_that_died() -> None:
    died = letter(mine="x", dead_letter__topic="orders", dead_letter__partition="3", dead_letter__timestamp="5")
    again = replay(died)

    assert (again.topic, again.partition, again.key, again.value, again.timestamp_ms) == ("orders", 3, b"k", None, 5)
    told = {"replayed.topic": b"dead", "replayed.partition": b"1", "replayed.offset": b"7", "replayed.times": b"1"}
    assert dict(again.headers) == {"mine": b"x", **told}
    once_more = dataclasses.replace(died, headers=(*again.headers, ("dead-letter.topic", b"orders")), offset=8)
    third = replay(once_more, to="retry")
    assert (third.topic, third.partition, third.timestamp_ms) == ("retry", None, 99)
    assert dict(third.headers) == {"mine": b"x", **told, "replayed.offset": b"8", "replayed.times": b"2"}
    with pytest.raises(ValueError, match="no record of a topic"):
        replay(letter())


def test_letters_are_chosen_by_reason_and_pipeline() -> None:
    died = letter(dead_letter__reason="not JSON: x", dead_letter__pipeline="shop")

    assert Selection().takes(died)
    assert Selection(reason="not json", pipeline="shop").takes(died)
    assert not Selection(pipeline="shop-2").takes(died)
    assert not Selection(reason="late").takes(died)
    assert (letter().reason, letter().pipeline, letter().source) == ("unknown", "unknown", None)


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 40), min_size=1), max_size=8), st.integers(0, 40))
def test_what_is_done_is_what_was_noted(calls: list[set[int]], begin: int) -> None:
    entries = [ledger_entry("id", 3, sorted(offsets)) for offsets in calls]
    done = read_ledger("id", [*entries, ledger_entry("other", 3, [1, 2]), (None, "x"), ("id/3/1", None)]).get(3, Done())
    noted = set().union(*calls)

    assert {offset for offset in range(50) if offset in done} == noted
    assert done.first_missing(begin) == next(offset for offset in range(begin, 50) if offset not in noted)
    assert done.count_from(begin) == len([offset for offset in noted if offset >= begin])
    assert all(below[1] + 1 < above[0] for below, above in zip(done.ranges, done.ranges[1:], strict=False))
