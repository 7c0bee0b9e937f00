"""A pipeline that runs, seen and told from outside: list, status, stop, metrics, and a backfill beside it."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock import Admin
from penstock.arrow import read_table, write_table
from penstock.cli.pipeline_run import backfill_runner
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.metrics import PipelineMetrics
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.operate.backfill import Backfill, BackfillRefused
from penstock.pipelines.operate.remote import reports
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import CommandLine
    from penstock.testing import Cluster

NewTopic = Callable[..., str]
TIMEOUT_S = 300

FILE = """\
name: {name}
bootstrap: {bootstrap}
checkpoints: checkpoints
restart: {{attempts: 1000, backoff: 50ms, backoff_max: 100ms}}
sources:
  orders: {{topic: {orders}, value: {{format: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}}}
steps:
  passed: {{python: "{module}:passed", from: orders}}
sinks:
  copies: {{from: passed, topic: {copies}, key: id}}
dead_letters: {{topic: {dead}}}
"""

# Down as long as the file is there, and a batch takes as long as the other is there.
MODULE = """\
import os, time

def passed(rows):
    if os.path.exists({down!r}):
        raise ConnectionError("the sink is down")
    while os.path.exists({slow!r}):
        open({writing!r}, "w").close()
        time.sleep(0.01)
    return rows
"""


class Shop:
    """A pipeline, and a hand on its sink."""

    def __init__(self, cluster: Cluster, new_topic: NewTopic, place: Path, unique_topic: Callable[[str], str]) -> None:
        self.cluster = cluster
        self.name = unique_topic("shop")
        self.topics = {name: new_topic() for name in ("orders", "copies", "dead")}
        self.down, self.slow, self.writing = place / "down", place / "slow", place / "writing"
        module = unique_topic("passing").replace("-", "_")
        (place / f"{module}.py").write_text(
            MODULE.format(down=str(self.down), slow=str(self.slow), writing=str(self.writing))
        )
        self.file = place / "shop.yaml"
        self.file.write_text(FILE.format(name=self.name, bootstrap=cluster.bootstrap, module=module, **self.topics))
        self.loaded, _ = load_checked(str(self.file))

    def produce(self, *values: str) -> None:
        write_table(self.cluster.bootstrap, self.topics["orders"], pa.table({"value": values}))

    def copied(self, topic: str | None = None) -> list[int]:
        table = read_table(self.cluster.bootstrap, topic or self.topics["copies"], value="string", columns=["value"])
        return sorted(json.loads(text)["id"] for text in table["value"].to_pylist())


def order(number: int) -> str:
    return json.dumps({"id": number, "amount": 1.5})


@pytest.fixture
def shop(cluster: Cluster, new_topic: NewTopic, tmp_path: Path, unique_topic: Callable[[str], str]) -> Iterator[Shop]:
    made = Shop(cluster, new_topic, tmp_path, unique_topic)
    yield made
    made.down.unlink(missing_ok=True)
    made.slow.unlink(missing_ok=True)


@pytest.mark.timeout(900)
def test_a_pipeline_is_seen_and_stopped_between_two_batches(
    spark: SparkSession, cluster: Cluster, shop: Shop, cli: CommandLine
) -> None:
    shop.down.touch()
    shop.produce(order(1), order(2), "poison")
    with PipelineMetrics("127.0.0.1:0") as metrics:
        runner = Runner(shop.loaded, spark)
        metrics.show(runner)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            _seen(shop, runner, cli, metrics.address)
            _stopped(shop, runner, cli)
        finally:
            runner.cut()
            thread.join(TIMEOUT_S)
    assert shop.copied() == [1, 2, 3]
    wait_until(lambda: not reports(cluster.bootstrap)[shop.name].is_live, seconds=TIMEOUT_S)
    status, _, err = cli("pipeline", "stop", shop.name, "-b", cluster.bootstrap)
    assert (status, f"{shop.name} does not run: it stopped" in err) == (1, True)
    status, out, _ = cli("pipeline", "list", "-b", cluster.bootstrap)
    assert (status, [line.split()[1] for line in out.splitlines() if line.startswith(shop.name)]) == (0, ["stopped"])

    # Some of it again, beside the pipeline: 2, poison, 3. Called once more there is nothing to do.
    wanted = Backfill(name=f"{shop.name}-again", begin="offset:1", end="offset:4", suffix=".again")
    for rows in (3, 0):
        backfill = backfill_runner(shop.loaded, wanted, cluster.bootstrap, lambda: spark)
        backfill.run_once()
        assert shop.copied(shop.topics["copies"] + ".again") == [2, 3]
        assert [query.rows_in for query in backfill.report().queries] == [rows]
    wait_until(lambda: reports(cluster.bootstrap)[wanted.name].state == "ended", seconds=TIMEOUT_S)
    assert reports(cluster.bootstrap)[wanted.name].backfill_of == shop.name
    with Admin(cluster.bootstrap) as admin:
        wait_until(lambda: admin.groups.find(f"spark-{wanted.name}.orders") is not None, seconds=TIMEOUT_S)
    with pytest.raises(BackfillRefused, match="was begun with to"):
        backfill_runner(shop.loaded, dataclasses.replace(wanted, end="latest"), cluster.bootstrap, lambda: spark)

    # What was produced while it was stopped is there when it runs again, once.
    Runner(shop.loaded, spark).run_once()
    assert shop.copied() == [1, 2, 3, 4]


def _seen(shop: Shop, runner: Runner, cli: CommandLine, address: str) -> None:
    bootstrap = shop.cluster.bootstrap

    def backing_off() -> Any:
        report = reports(bootstrap).get(shop.name)
        said = report is not None and "ConnectionError: the sink is down" in (report.last_error or "")
        return report if report is not None and said and report.queries[0].failures >= 2 else None

    # Its sink is down: it tries again and again, and says so.
    report = wait_until(backing_off, seconds=TIMEOUT_S)
    where = r"\(passing_\w+\.py, line \d+\)"
    wanted = rf'query "orders": step "passed": ConnectionError: the sink is down {where}'
    assert re.fullmatch(wanted, report.last_error), report.last_error
    assert report.queries[0].restarts >= 2

    # It is up again: nothing is lost, and nothing there twice.
    shop.down.unlink()
    wait_until(lambda: runner.report().queries[0].batches, seconds=TIMEOUT_S)
    assert shop.copied() == [1, 2]
    (query,) = runner.report().queries
    assert (query.rows_in, query.rows_out, query.dead_letters) == (3, {"copies": 2}, 1)
    assert (query.failures, query.groups) == (0, (f"spark-{shop.name}.orders",))
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as page:
        lines = page.read().decode().splitlines()
    labels = f'{{pipeline="{shop.name}",query="orders"}}'
    assert f"penstock_pipeline_dead_letters_total{labels} 1.0" in lines
    assert f"penstock_pipeline_latency_seconds_count{labels} 3.0" in lines
    by_reason = labels.replace("}", ',reason="not JSON"}')
    assert f"penstock_pipeline_dead_letters_by_reason_total{by_reason} 1.0" in lines
    assert any(line.startswith("penstock_pipeline_sink_seconds_total{") and 'sink="copies"' in line for line in lines)
    wait_until(lambda: reports(bootstrap)[shop.name].queries[0].batches, seconds=TIMEOUT_S)
    status, out, err = cli("pipeline", "status", shop.name, "-b", bootstrap)
    assert (status, out.splitlines()[0].startswith(f"{shop.name}: running for")) == (0, True)
    assert "and has recovered: " in err


def _stopped(shop: Shop, runner: Runner, cli: CommandLine) -> None:
    """A stop lets the batch under way end, and begins no other."""
    shop.slow.touch()
    shop.produce(order(3))
    wait_until(shop.writing.exists, seconds=TIMEOUT_S)
    shop.produce(order(4))
    answers: list[Any] = []
    command = ("pipeline", "stop", shop.name, "--timeout", "300", "-b", shop.cluster.bootstrap)
    stopping = threading.Thread(target=lambda: answers.append(cli(*command)))
    stopping.start()
    wait_until(runner.stopping.is_set, seconds=TIMEOUT_S)
    shop.slow.unlink()
    stopping.join(TIMEOUT_S)
    assert answers == [(0, f"{shop.name}: stopped\n", "")]
