"""Several pipelines in one Spark session: one that fails ends alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.arrow import read_table, write_table
from penstock.cli.pipeline_run import ended, planned_runners
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.operate.remote import reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

# Both have a query of the same name.
FILE = """\
name: {name}
bootstrap: {bootstrap}
checkpoints: checkpoints
restart: {{attempts: 0}}
sources:
  orders: {{topic: {orders}, value: {{format: json, schema: "id BIGINT NOT NULL"}}, on_error: {on_error}}}
sinks:
  copies: {{from: orders, topic: {copies}, key: id}}
dead_letters: {{topic: {dead}}}
"""


@pytest.mark.timeout(900)
def test_one_that_fails_ends_alone(
    spark: SparkSession,
    cluster: Cluster,
    new_topic: Callable[..., str],
    unique_topic: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders, dead = new_topic(), new_topic()
    copies = {kind: new_topic() for kind in ("dead-letter", "fail")}
    pipelines = {}
    for kind, sink in copies.items():
        file = tmp_path / f"{kind}.yaml"
        place = {"bootstrap": cluster.bootstrap, "orders": orders, "copies": sink, "dead": dead}
        file.write_text(FILE.format(name=unique_topic(kind), on_error=kind, **place))
        pipelines[kind] = load_checked(str(file))[0]
    write_table(
        cluster.bootstrap, orders, pa.table({"value": [json.dumps({"id": 1}), "poison", json.dumps({"id": 2})]})
    )
    names = {kind: loaded.pipeline.name for kind, loaded in pipelines.items()}

    runners = planned_runners([(loaded, cluster.bootstrap) for loaded in pipelines.values()], lambda: spark)
    assert not ended(runners, once=True)

    def copied(kind: str) -> list[int]:
        table = read_table(cluster.bootstrap, copies[kind], value="string", columns=["value"])
        return sorted(json.loads(text)["id"] for text in table["value"].to_pylist())

    assert copied("dead-letter") == [1, 2]
    assert copied("fail") == []
    told = reports(cluster.bootstrap)
    assert {kind: told[name].state for kind, name in names.items()} == {"dead-letter": "ended", "fail": "failed"}
    said = capsys.readouterr().err
    assert f"{names['fail']} has failed; the other pipelines go on" in said
    assert "not JSON\nwhat to do: " in said
    assert f"{names['dead-letter']}.orders: first batch after" in said
    assert "2 queries planned in" in said
    assert f"Spark {spark.version} started in" in said
