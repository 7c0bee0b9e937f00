"""Queries as one plan beside the same queries with `foreachBatch`: the same records, one scan, and a checkpoint that
either way goes on with."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.arrow import read_table, write_table
from penstock.pipelines.check.routes import Way
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine import runner as running
from penstock.pipelines.engine.ending import Ending
from penstock.pipelines.engine.runner import Runner
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipelines.spec.loading import Loaded
    from penstock.testing import Cluster

NewTopic = Callable[..., str]

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "part", "type": "long"}]}'
FILE = """\
name: {name}
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints-{way}
restart: {{attempts: 1, backoff: 10ms}}
sources:
  orders:
    topic: {orders}
    max_records: 150
    value: {{format: json, schema: "id BIGINT NOT NULL, n INT, words ARRAY<STRING>, name STRING"}}
    expect:
      - {{that: n < 1000, name: small}}
      - {{that: id % 7 <> 0, otherwise: keep, name: not a seventh}}
steps:
  # Without the filters below them, the division fails and the encoder refuses the row.
  divided: {{sql: "SELECT id, 1000 DIV n AS part, name, words FROM orders WHERE n <> 0"}}
  positive:
    sql: SELECT id, part FROM divided WHERE part > 0
    expect: [{{that: id % 13 <> 0, name: not a thirteenth}}]
  words: {{sql: "SELECT id, pos, word FROM divided LATERAL VIEW posexplode(words) AS pos, word WHERE word <> 'x'"}}
  maybe: {{sql: "SELECT id, explode_outer(words) AS word FROM orders WHERE id % 2 = 0"}}
sinks:
  divided: {{from: divided, topic: {divided}, key: name, headers: {{part: part}}}}
  positive: {{from: positive, topic: {positive}, key: id, value: {{format: avro, schema: '{avro}'}}}}
  words: {{from: words, topic: {words}, value: {{format: string, column: "concat_ws('|', id, pos, word)"}}}}
  maybe: {{from: maybe, topic_expression: "'{maybe}'", key: "CAST(word AS BINARY)"}}
dead_letters: {{topic: {dead}}}
"""
TOPICS = ("divided", "positive", "words", "maybe", "dead")


def some_orders(number: int) -> pa.Table:
    """Of every kind, in an order of their own: well, poisoned, incomplete, with and without keys and headers."""
    chance = random.Random(15)
    values: list[str | None] = []
    for identity in range(number):
        words = chance.choice([None, [], ["a"], ["x", "é", "b"], ["", "long" * 50]])
        order = {
            "id": identity,
            "n": chance.choice([-4, 0, 1, 2, 3, 2000, None]),
            "words": words,
            "name": "n" * (identity % 3),
        }
        values.append(chance.choice([json.dumps(order)] * 8 + ["poison", '{"n": 1}', None]))
    headers = [[("trace", b"%d" % identity)] if identity % 5 == 0 else None for identity in range(number)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    keys = [None if identity % 11 == 0 else f"k{identity}" for identity in range(number)]
    return pa.table(
        {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string()), "headers": pa.array(headers, kind)}
    )


def content(cluster: Cluster, topic: str) -> Counter[str]:
    """Records, without what two pipelines differ in: their names."""
    rows = read_table(cluster.bootstrap, topic, columns=["key", "value", "headers"]).to_pylist()
    for row in rows:
        row["headers"] = [each for each in row["headers"] or () if each["key"] != "dead-letter.pipeline"]
    return Counter(repr(row) for row in rows)


def forced(runner: Runner, way: Way | None) -> Runner:
    if way is not None:
        runner.routes = {name: replace(planned, way=way) for name, planned in runner.routes.items()}
    return runner


class Seen:
    """What Spark has run."""

    def __init__(self) -> None:
        self.queries: list[StreamingQuery] = []
        self.foreach_batch_calls = 0

    def query(self, name: str) -> StreamingQuery:
        """The last one of this name."""
        return [each for each in self.queries if each.name and each.name.endswith(f".{name}")][-1]

    def scans(self, name: str) -> int:
        query: Any = self.query(name)
        plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
        return int(plan.partition("== Initial Plan ==")[0].count("MicroBatchScan"))

    def rows_of_batches(self, name: str) -> set[int]:
        """Of those that have read something. Spark counts a row again in every scan."""
        return {each["numInputRows"] for each in self.query(name).recentProgress} - {0}

    def jobs_a_batch(self, name: str, spark: SparkSession) -> float:
        query = self.query(name)
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
        return len(jobs) / sum("addBatch" in each["durationMs"] for each in query.recentProgress)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    from pyspark.sql.utils import ForeachBatchFunction

    made = Seen()

    class Watched(Ending):
        def __init__(self, query: Any) -> None:
            super().__init__(query)
            made.queries.append(query)

    called = ForeachBatchFunction.call

    def call(function: Any, *arguments: Any) -> None:
        made.foreach_batch_calls += 1
        called(function, *arguments)

    monkeypatch.setattr(running, "Ending", Watched)
    monkeypatch.setattr(ForeachBatchFunction, "call", call)
    return made


def test_both_ways_write_the_same_records(
    spark: SparkSession,
    cluster: Cluster,
    new_topic: NewTopic,
    unique_topic: Callable[[str], str],
    tmp_path: Path,
    seen: Seen,
    caplog: pytest.LogCaptureFixture,
) -> None:
    orders = new_topic(partitions=2)
    began_ms = 1000 * time.time()
    write_table(cluster.bootstrap, orders, some_orders(400))
    ways: tuple[Way, ...] = ("batch by batch", "prepared", "streamed")
    written: dict[str, dict[str, Counter[str]]] = {}
    told: dict[str, Any] = {}
    for way in ways:
        topics = {name: new_topic(partitions=1) for name in TOPICS}
        file = tmp_path / f"{way}.yaml"
        names = {"name": unique_topic("plan"), "bootstrap": cluster.bootstrap, "place": tmp_path, "avro": AVRO}
        file.write_text(FILE.format(**names, way=way, orders=orders, **topics))
        runner = Runner(load_checked(str(file))[0], spark)
        assert runner.routes["orders"].way == "streamed"
        calls = seen.foreach_batch_calls
        forced(runner, way).run_once()
        batches = runner.status["orders"].report().batches
        assert seen.foreach_batch_calls - calls == (0 if way == "streamed" else batches)
        written[way] = {name: content(cluster, topic) for name, topic in topics.items()}
        report = runner.status["orders"].report()
        told[way] = (report.rows_out, report.dead_letters, report.batches, report.dead_letters_by_reason)
        assert report.latency_ms is not None
        assert report.latency_max_ms is not None
        assert 0 < report.latency_ms <= report.latency_max_ms < 1000 * time.time() - began_ms
        assert list(report.sink_seconds) == ["divided,positive,words,maybe"]
        assert report.sink_seconds["divided,positive,words,maybe"] > 0

    assert written["streamed"] == written["batch by batch"]
    assert written["prepared"] == written["batch by batch"]
    assert all(written["streamed"].values())
    assert told["streamed"] == told["batch by batch"] == told["prepared"]
    assert told["streamed"][1] == sum(written["streamed"]["dead"].values())
    assert told["streamed"][2] >= 3
    reasons = told["streamed"][3]
    assert set(reasons) == {"not JSON", "null in a column that is NOT NULL", *(
        f'"{table}" expects {name}' for table, name in (("orders", "small"), ("positive", "not a thirteenth"))
    )}  # fmt: skip
    assert sum(reasons.values()) == told["streamed"][1]
    violations = Counter(record.getMessage() for record in caplog.records if "not a seventh" in record.getMessage())
    assert violations and set(violations.values()) == {len(ways)}

    assert seen.scans("orders") == 1
    assert seen.jobs_a_batch("orders", spark) == 1


STATE = """\
name: {name}
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints
restart: {{attempts: 1, backoff: 10ms}}
sources:
  orders:
    topic: {orders}
    value: {{format: json, schema: "id BIGINT NOT NULL, at TIMESTAMP NOT NULL"}}
    watermark: {{column: at, delay: 1 minute}}
steps:
  counts:
    sql: |
      SELECT window.start AS since, count(*) AS orders, max(id) AS last FROM orders GROUP BY window(at, '1 minute')
  many: {{sql: "SELECT since, orders FROM counts WHERE since >= TIMESTAMP '2026-05-01 10:00:00' AND orders > 1"}}
  even: {{sql: SELECT id FROM orders WHERE id % 2 = 0}}
sinks:
  many: {{from: many, topic: {many}}}
  even: {{from: even, topic: {even}}}
dead_letters: {{topic: {dead}}}
"""


def test_a_checkpoint_goes_on_either_way(
    spark: SparkSession,
    cluster: Cluster,
    new_topic: NewTopic,
    unique_topic: Callable[[str], str],
    tmp_path: Path,
    seen: Seen,
) -> None:
    """Of the engine before this one, which wrote every batch with foreachBatch, and back again. Each run is killed
    between the decision and Spark's own commit: the batch is decided, and not written again. The rows in the state are
    there once, although another plan works with them. Final results of a state need one plan, one scan and one job."""
    queries = ("counts", "orders")
    topics = {name: new_topic(partitions=1) for name in ("orders", "many", "even", "dead")}
    file = tmp_path / "state.yaml"
    names = {"name": unique_topic("state"), "bootstrap": cluster.bootstrap, "place": str(tmp_path)}
    file.write_text(STATE.format(**names, **topics))
    loaded, _ = load_checked(str(file))

    def produce(minute: int, *identities: int) -> None:
        values = [json.dumps({"id": each, "at": f"2026-05-01T10:{minute:02}:30Z"}) for each in identities]
        write_table(cluster.bootstrap, topics["orders"], pa.table({"value": [*values, f"poison {minute}"]}))

    rows: set[tuple[str, int]] = set()

    def run(way: Way | None) -> None:
        runner = Runner(loaded, spark)
        assert {name: planned.way for name, planned in runner.routes.items()} == dict.fromkeys(queries, "streamed")
        calls = seen.foreach_batch_calls
        forced(runner, way).run_once()
        if way is None:
            assert seen.foreach_batch_calls == calls
            assert {seen.jobs_a_batch(name, spark) for name in queries} == {1}
            rows.update((name, each) for name in queries for each in seen.rows_of_batches(name))
        else:
            assert seen.foreach_batch_calls > calls
        for query in queries:
            commits = tmp_path / "checkpoints" / names["name"] / query / "commits"
            last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
            (commits / str(last)).unlink()

    def values(name: str) -> list[str]:
        rows = read_table(cluster.bootstrap, topics[name], value="string", columns=["value"]).to_pylist()
        return sorted(row["value"] for row in rows)

    ways: list[Way | None] = ["batch by batch", None, "batch by batch"]
    for minute, way in enumerate(ways):
        produce(2 * minute, 10 * minute, 10 * minute + 1, 10 * minute + 2)
        run(way)
    run(None)

    assert rows == {(name, 4) for name in queries}  # as many as `produce` writes: each was read by one scan
    assert values("even") == sorted(f'{{"id":{10 * minute + each}}}' for minute in range(len(ways)) for each in (0, 2))
    assert values("dead") == sorted(f"poison {2 * minute}" for minute in range(len(ways)))
    closed = [f"2026-05-01T10:{2 * minute:02}:00.000Z" for minute in range(len(ways) - 1)]
    assert [json.loads(each) for each in values("many")] == [{"since": since, "orders": 3} for since in closed]


ENDLESS = """\
name: {name}
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints
restart: {{attempts: 1, backoff: 10ms}}
sources:
  orders: {{topic: {orders}, max_records: 10}}
sinks:
  copies: {{from: orders, topic: {copies}, delivery: at-least-once, value: {{format: string, column: value}}}}
"""


def test_a_stop_falls_between_two_batches(
    spark: SparkSession, cluster: Cluster, new_topic: NewTopic, unique_topic: Callable[[str], str], tmp_path: Path
) -> None:
    """At least once, so that a batch that was cut off would be there twice."""
    topics = {name: new_topic(partitions=1) for name in ("orders", "copies")}
    file = tmp_path / "endless.yaml"
    name = unique_topic("endless")
    file.write_text(ENDLESS.format(name=name, bootstrap=cluster.bootstrap, place=tmp_path, **topics))
    loaded: Loaded = load_checked(str(file))[0]
    values = [str(number) for number in range(2000)]
    write_table(cluster.bootstrap, topics["orders"], pa.table({"value": values}))
    log = tmp_path / "checkpoints" / name / "orders"

    def numbers(folder: str) -> set[str]:
        return {each.name for each in (log / folder).glob("[0-9]*")}

    runner = Runner(loaded, spark)
    assert runner.routes["orders"].way == "streamed"
    thread = threading.Thread(target=runner.run)
    thread.start()
    wait_until(lambda: runner.status["orders"].batches >= 2 or not thread.is_alive(), "two batches", 300.0)
    runner.stop()
    thread.join()

    assert runner.status["orders"].state == "ended"
    assert runner.report().state == "stopped"
    assert len(numbers("offsets") - numbers("commits")) <= 1  # one was planned, and did not begin
    copies = (
        read_table(cluster.bootstrap, topics["copies"], value="string", columns=["value"]).column("value").to_pylist()
    )
    assert copies == values[: len(copies)]
    assert 20 <= len(copies) == 10 * len(numbers("commits")) < len(values)
