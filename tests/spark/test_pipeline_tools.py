"""What helps to write a pipeline, on Spark: the tests of `init`, previews, dead letters that name their field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from documentation import blocks_of
from penstock import Admin
from penstock.arrow import write_table
from penstock.cli.pipeline_preview import previewed
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.fixtures import run_tests
from penstock.pipelines.engine.preview import newest, preview, table_named
from penstock.pipelines.operate.scaffold import Sampled, scaffold
from penstock.pipelines.spec.problems import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded
    from penstock.testing import Cluster

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def loaded_from(text: str, place: Path) -> Loaded:
    file = place / "pipeline.yaml"
    file.write_text(text)
    loaded, _ = load_checked(str(file))
    return loaded


def failed(loaded: Loaded, spark: SparkSession) -> dict[str, list[str]]:
    results = list(run_tests(loaded, spark))
    assert results
    return {result.name: result.differences for result in results if result.differences}


def order(number: int, **fields: Any) -> bytes:
    value = {
        "id": number,
        "amount": number if number % 2 else number / 4,
        "big": 2**62 + number,
        "at": f"2026-05-01T12:00:{number % 60:02d}.5+02:00",
        "day": f"2026-05-01 00:00:{number % 60:02d}",
        "order": {"lines": [{"sku": "a ${b}", "n": number}], "paid": number % 2 == 0},
        "by user": {f"user {each}": each for each in range(number % 3)},
        "mixed": number if number % 2 else "text",
        "note": None if number % 5 else 'he said "no": {x}',
    }
    return json.dumps({**value, **fields}).encode()


def test_the_tests_that_init_makes_pass(spark: SparkSession, tmp_path: Path) -> None:
    values = [*(order(number) for number in range(60)), order(60, id="x"), order(61, amount="12 EUR"), b"poison {"]
    records = [Sampled(key=b"k", value=value, timestamp_ms=1_770_000_000_123) for value in values]
    made = scaffold("shop.orders", records, name="shop", bootstrap="127.0.0.1:9092", to="out")
    loaded = loaded_from(made.text, tmp_path)
    assert [len(test.dead_letters) for test in loaded.pipeline.tests] == [0, 2]
    assert failed(loaded, spark) == {}


FIELDS = """\
name: fields
sources:
  orders:
    topic: orders
    value:
      format: json
      schema: "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP, who STRUCT<name: STRING, age: INT>, tags ARRAY<BIGINT>"
    expect:
      - that: who.age > 0 OR who.age IS NULL
sinks:
  out: {from: orders, topic: out}
tests:
  - name: each letter names its field
    given:
      orders:
        - {value: {id: 1, amount: "12 EUR"}}
        - {value: {id: 1, who: {name: ann, age: old}, at: never}}
        - {value: {id: x}}
        - {value: {amount: 2}}
        - {value: "[1, 2]"}
        - {value: '{"id": 1'}
        - {value: {id: 1, tags: [1, x]}}
        - {value: {id: 1, who: 5}}
        - {value: {id: 1, who: {age: 0}}}
        - {value: {id: 1, amount: 1, at: "2026-05-01T12:00:00Z", who: {name: ann}, tags: [1]}}
    expect:
      out: [{value: {id: 1, tags: [1]}}]
    dead_letters:
      - {offset: 0, reason: "JSON that does not fit the schema: amount is not DOUBLE", field: amount}
      - {offset: 1, reason: "at is not TIMESTAMP, who.age is not INT", field: "at, who.age"}
      - {offset: 2, reason: id is not BIGINT, field: id}
      - {offset: 3, reason: id is null, field: id}
      - {offset: 4, reason: "JSON that does not fit the schema: not an object"}
      - {offset: 5, reason: not JSON}
      - {offset: 6, reason: tags is not ARRAY, field: tags}
      - {offset: 7, reason: who is not STRUCT, field: who}
      - {offset: 8, reason: expects who.age, field: who.age}
"""


def test_dead_letters_name_the_field(spark: SparkSession, tmp_path: Path) -> None:
    assert failed(loaded_from(FIELDS, tmp_path), spark) == {}


@pytest.mark.timeout(600)  # every batch starts Python workers of its own
def test_the_page_shows_a_step_with_state_and_timers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = blocks_of(PAGE)
    (file,) = [text for language, text in blocks if language == "yaml" and text.startswith("name: visits")]
    (module,) = [text for language, text in blocks if language == "py"]
    (tmp_path / "visits.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))  # also takes away what the pipeline adds
    assert failed(loaded_from(file, tmp_path), spark) == {}


PREVIEWED = """\
name: {name}
sources:
  orders: {{topic: {topic}, value: {{format: json, schema: "id BIGINT NOT NULL, amount DOUBLE"}}}}
steps:
  large: {{sql: "SELECT id, amount, _offset AS at FROM orders WHERE amount > 10"}}
  totals: {{sql: "SELECT count(*) AS orders, sum(amount) AS amount FROM large"}}
sinks:
  sums: {{from: totals, topic: {name}.sums}}
"""


def test_a_preview_reads_the_newest_records_and_writes_nothing(
    spark: SparkSession,
    cluster: Cluster,
    new_topic: Callable[..., str],
    unique_topic: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = new_topic()
    values = [*(json.dumps({"id": number, "amount": number}) for number in range(30)), '{"id": 1, "amount": "x"}']
    write_table(cluster.bootstrap, topic, pa.table({"value": values}))
    loaded = loaded_from(PREVIEWED.format(name=unique_topic("preview"), topic=topic), tmp_path)
    with Admin(cluster.bootstrap) as admin:
        before = (
            {each.name for each in admin.topics.list(internal=True)},
            {each.group_id for each in admin.groups.list()},
        )

    starts = newest(loaded, "large", cluster.bootstrap, 11)
    found = preview(loaded, spark, "large", cluster.bootstrap, starts, limit=3)
    assert starts == {"orders": {topic: {"0": 20}}}
    assert [row["at"] for row in found.rows] == [20, 21, 22]
    assert found.dead_letters == [("JSON that does not fit the schema: amount is not DOUBLE", "amount", 1)]

    def session() -> SparkSession:
        return spark

    previewed(loaded, "sums", cluster.bootstrap, session, limit=10, records=None, as_json=False)
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [["orders", "amount"], ["19", "380.0"]]
    assert "1 dead letter on the way: JSON that does not fit the schema: amount is not DOUBLE" in err

    with Admin(cluster.bootstrap) as admin:
        after = (
            {each.name for each in admin.topics.list(internal=True)},
            {each.group_id for each in admin.groups.list()},
        )
    assert after == before
    assert [each.name for each in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_a_preview_of_what_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    """Is refused before Spark is asked."""
    loaded = loaded_from(PREVIEWED.format(name="x", topic="nobody-made-it"), tmp_path)
    with pytest.raises(PipelineFailed, match='has no step "larg"; did you mean "large"'):
        table_named(loaded, "larg")
    with pytest.raises(Exception, match="has no topic 'nobody-made-it'"):
        newest(loaded, "large", cluster.bootstrap, 10)
