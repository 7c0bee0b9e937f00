"""Every verdict that docs/pipelines.md gives about an edit and a checkpoint, executed: what is safe goes on where it
was, what is not is refused before a batch runs, and a type that we refuse is one that Spark refuses, too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.arrow import write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.checkpoints import against_checkpoints, noted_here
from penstock.pipelines.engine.failures import QueryFailed
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.spec.loading import Loaded
from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing import Cluster

NewTopic = Callable[..., str]

FILE = """\
name: shop
restart: {attempts: 3, backoff: 10ms}
sources:
  orders:
    {format: json, mode: stream, path: orders, watermark: {column: at, delay: 1 minute},
     schema: "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP, also TIMESTAMP"}
  refunds:
    {format: json, mode: stream, path: refunds, watermark: {column: at, delay: 1 minute},
     schema: "id BIGINT, at TIMESTAMP"}
  returns: {format: json, mode: stream, path: returns, schema: "id BIGINT, at TIMESTAMP"}
  names: {format: json, mode: lookup, path: names, schema: "customer STRING, name STRING"}
  bills: {format: json, mode: incremental, cursor: id, path: bills, schema: "id BIGINT, no BIGINT"}
steps:
  valid: {sql: "SELECT id, customer, amount AS value, at FROM orders WHERE amount > 0"}
  totals: {sql: "SELECT customer, sum(value) AS total FROM valid GROUP BY customer", output: update}
  named: {sql: "SELECT totals.*, name FROM totals JOIN names ON totals.customer = names.customer"}
  pairs: {sql: "SELECT o.id FROM orders o JOIN refunds r ON o.id = r.id"}
sinks:
  valid: {from: valid, format: noop}
  named: {from: named, format: noop}
  pairs: {from: pairs, format: noop}
  bills: {from: bills, format: noop}
"""

SAFE = {
    "a condition": ("WHERE amount > 0", "WHERE amount > 1"),
    "a stateless step, an added column": ("SELECT id, customer,", "SELECT id, upper(customer) AS loud, customer,"),
    "a removed column": ("value, at FROM", "value FROM"),
    "a field of the schema": ('"id BIGINT, customer', '"more STRING, id BIGINT, customer'),
    "a sink": ("{from: valid, format: noop}", "{from: valid, format: json, path: valid}"),
    "a step behind the state": ("totals.*, name FROM", "totals.*, upper(name) AS name FROM"),
    "a lookup": ("path: names", "path: others"),
    "an expectation": ("  valid: {sql", "  valid: {expect: [{that: value < 9, otherwise: drop}], sql"),
    "a trigger": ("name: shop", "name: shop\ntrigger: 1 second"),
    "a watermark's delay": ("delay: 1 minute", "delay: 2 minutes"),
}
NEW = {
    "an aggregate": ("sum(value)", "max(value)"),
    "grouping": ("GROUP BY customer", "GROUP BY customer, id"),
    "a window": ("GROUP BY customer", "GROUP BY customer, window(at, '1 hour')"),
    "a part of a join": ("SELECT o.id FROM", "SELECT o.id, o.customer FROM"),
    "an expression that leads to state": ("amount AS value", "2 * amount AS value"),
    "a type that leads to state": ("amount DOUBLE", "amount DECIMAL(12,2)"),
    "a watermark's column": ("path: orders, watermark: {column: at", "path: orders, watermark: {column: also"),
    "the output mode": ("output: update", "output: complete"),
    "a removed source": (
        "SELECT o.id FROM orders o JOIN refunds r ON o.id = r.id",
        "SELECT window.start AS id FROM orders GROUP BY window(at, '1 hour')",
    ),
    "an added source": ("ON o.id = r.id", "ON o.id = r.id JOIN returns s ON o.id = s.id"),
}
REFUSED = {
    "another path": ("path: orders", "path: others"),
    "another kind": ("{format: json, mode: incremental", "{format: csv, mode: incremental"),
    "another cursor": ("cursor: id", "cursor: no"),
    "sources in another order": ("FROM orders o JOIN refunds r", "FROM refunds r JOIN orders o"),
}


def rows(place: Path, name: str, *values: dict[str, object]) -> None:
    place.mkdir(exist_ok=True)
    (place / name).write_text("".join(f"{json.dumps(each)}\n" for each in values))


def edited(place: Path, *edits: tuple[str, str]) -> Loaded:
    text = FILE
    for was, now in edits:
        assert was in text
        text = text.replace(was, now)
    (place / "shop.yaml").write_text(text)
    return load_checked(str(place / "shop.yaml"))[0]


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that has run."""
    made = tmp_path_factory.mktemp("verdicts")
    order = {"id": 1, "customer": "ann", "amount": 5.5, "at": "2026-05-01T12:00:00Z"}
    rows(made / "orders", "1.json", order)
    rows(made / "refunds", "1.json", {"id": 1, "at": "2026-05-01T12:00:00Z"})
    rows(made / "bills", "1.json", {"id": 1, "no": 1})
    for lookup in ("names", "others"):
        rows(made / lookup, "1.json", {"customer": "ann", "name": "Ann"})
    Runner(edited(made), spark).run_once()
    rows(made / "orders", "2.json", {**order, "id": 2})
    return made


@pytest.mark.parametrize("edit", [*NEW, *REFUSED])
def test_what_does_not_fit_is_refused(edit: str, place: Path, spark: SparkSession) -> None:
    loaded = edited(place, NEW.get(edit) or REFUSED[edit])
    verdict = "new checkpoint" if edit in NEW else "refused"

    compared = list(against_checkpoints(loaded, noted_here))
    assert verdict in {each.verdict for each in compared}
    if "source" in edit:
        assert any(found.message.startswith("it read ") for each in compared for found in each.edits)
    with pytest.raises(PipelineFailed, match=rf": {verdict}: query "):
        Runner(loaded, spark).run_once()


def test_what_is_safe_goes_on_where_it_was(place: Path, spark: SparkSession) -> None:
    """All safe edits at once; nothing is read again."""
    for name, edit in SAFE.items():
        assert {each.verdict for each in against_checkpoints(edited(place, edit), noted_here)} == {"safe"}, name
    runner = Runner(edited(place, *SAFE.values()), spark)
    runner.run_once()

    read = {query.name: query.rows_in for query in runner.report().queries}
    assert {name: read[name] for name in ("orders", "totals", "pairs", "bills")} == {
        "orders": 1,
        "totals": 1,
        "pairs": 1,
        "bills": 0,
    }


def test_spark_refuses_the_type_that_we_refuse(spark: SparkSession, tmp_path: Path) -> None:
    """Without our check, Spark itself fails. The run ends at the first attempt, whatever `restart` allows."""
    text = """\
name: sums
restart: {attempts: 9, backoff: 10ms}
sources:
  orders: {format: json, mode: stream, path: orders, schema: "customer STRING, amount DOUBLE"}
steps:
  valid: {sql: "SELECT customer, amount AS value FROM orders"}
  totals: {sql: "SELECT customer, sum(value) AS total FROM valid GROUP BY customer"}
sinks:
  totals: {from: totals, format: noop}
"""
    file = tmp_path / "sums.yaml"
    file.write_text(text)
    rows(tmp_path / "orders", "1.json", {"customer": "ann", "amount": 5.5})
    Runner(load_checked(str(file))[0], spark).run_once()
    rows(tmp_path / "orders", "2.json", {"customer": "ann", "amount": 5.5})
    file.write_text(text.replace("DOUBLE", "DECIMAL(12,2)"))
    loaded, _ = load_checked(str(file))
    assert [each.verdict for each in against_checkpoints(loaded, noted_here)] == ["new checkpoint"]
    (tmp_path / "checkpoints" / "sums" / "totals" / "shape.json").unlink()

    with pytest.raises(
        QueryFailed, match=r'query "totals" failed: .*STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE'
    ) as failed:
        Runner(loaded, spark).run_once()

    assert failed.value.lines[:3] == (
        "query:      totals of sums, failed once",
        "batch:      1",
        "what:       continuing from its state",
    )
    assert "another name" in failed.value.lines[4]


def test_topics(
    spark: SparkSession, cluster: Cluster, new_topic: NewTopic, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    """More topics are read from their beginning; others instead, or fewer, are refused."""
    one, two = new_topic(), new_topic()
    file = tmp_path / "shop.yaml"
    name = unique_topic("pipeline")

    def reading(*topics: str) -> Runner:
        source = f"{{topic: [{', '.join(topics)}], value: {{format: string}}}}"
        sinks = "sinks: {copies: {from: orders, format: noop}}"
        file.write_text(f"name: {name}\nbootstrap: {cluster.bootstrap}\nsources: {{orders: {source}}}\n{sinks}\n")
        return Runner(load_checked(str(file))[0], spark)

    write_table(cluster.bootstrap, one, pa.table({"value": ["a", "b"]}))
    write_table(cluster.bootstrap, two, pa.table({"value": ["c", "d", "e"]}))
    reading(one).run_once()
    more = reading(one, two)
    more.run_once()

    assert [query.rows_in for query in more.report().queries] == [3]
    with pytest.raises(PipelineFailed, match=": new checkpoint: "):
        reading(one).run_once()
    with pytest.raises(PipelineFailed, match=": refused: "):
        reading(new_topic()).run_once()
