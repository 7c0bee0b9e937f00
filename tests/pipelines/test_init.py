"""`penstock pipeline init`: a pipeline and its tests from the records of a topic. Spark runs them in tests/spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Producer
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.operate.inference import UNCERTAIN, Inferred, infer, infer_columns, written
from penstock.pipelines.operate.scaffold import Sampled, Scaffold, scaffold
from penstock.pipelines.spec.model import TopicSource

if TYPE_CHECKING:
    from conftest import CommandLine
    from penstock.pipelines.spec.model import Pipeline
    from penstock.testing import Cluster

TEXT, WHOLE, NUMBER = Inferred("STRING"), Inferred("BIGINT"), Inferred("DOUBLE")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], WHOLE),
        ([1, 2.5], NUMBER),
        ([2**63], NUMBER),
        ([True, False], Inferred("BOOLEAN")),
        ([True, 1], TEXT),
        ([1, "a"], TEXT),
        ([None], TEXT),
        ([], TEXT),
        (["2026-05-01T12:00:00Z", "2026-05-01 12:00:00.5+02:00"], Inferred("TIMESTAMP")),
        (["2026-05-01T12:00:00Z", "soon"], TEXT),
        (["2026-13-01T12:00:00Z"], TEXT),
        ([[1], [2.5], []], Inferred("ARRAY", item=NUMBER)),
        ([[]], Inferred("ARRAY", item=TEXT)),
        ([{"a": 1}, {"b": "x"}], Inferred("STRUCT", {"a": WHOLE, "b": TEXT})),
        ([{f"user-{number}": number for number in range(200)}], Inferred("MAP", item=WHOLE)),
        ([{"a": 1, "A": 2}], Inferred("MAP", item=WHOLE)),
        ([{}], Inferred("MAP", item=TEXT)),
        ([*range(99), "12 EUR"], WHOLE),
    ],
)
def test_types(values: list[Any], kind: Inferred) -> None:
    assert infer(values) == kind


def test_fields_that_cannot_be_columns() -> None:
    columns, others = infer_columns([{"id": 1, "ID": 2, "_key": 3, "__x": 4, "": 5, "a b": 6, "new\nline": 7}])
    assert list(columns) == ["id", "a b"]
    assert others == ["ID", "_key", "__x", "", "new\nline"]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("2026-05-01T12:00:00+02:00", Inferred("TIMESTAMP"), "2026-05-01T10:00:00.000Z"),
        ("2026-05-01 12:00:00.123456", Inferred("TIMESTAMP"), "2026-05-01T12:00:00.123Z"),
        (5, NUMBER, 5),
        (5, TEXT, UNCERTAIN),
        (None, WHOLE, None),
        ([1, 2], Inferred("ARRAY", item=TEXT), UNCERTAIN),
        ({"a": 1, "b": 2}, Inferred("STRUCT", {"a": WHOLE, "b": TEXT}), {"a": 1}),
        ({"a": 1}, Inferred("MAP", item=WHOLE), {"a": 1}),
    ],
)
def test_what_is_written(value: Any, kind: Inferred, text: Any) -> None:
    assert written(value, kind) == text


def made(*values: str | bytes | None, key: bytes | None = b"k", topic: str = "shop.orders-v1") -> Scaffold:
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    records = [
        Sampled(key=key, value=value, timestamp_ms=1_700_000_000_000 + index) for index, value in enumerate(encoded)
    ]
    return scaffold(topic, records, name="orders", bootstrap="127.0.0.1:9092", to="out")


def checked(scaffolded: Scaffold, directory: Path) -> Pipeline:
    """Valid, and without a warning."""
    file = directory / "made.yaml"
    file.write_text(scaffolded.text)
    loaded, warnings = load_checked(str(file))
    assert warnings == []
    return loaded.pipeline


def test_json(tmp_path: Path) -> None:
    orders = [json.dumps({"id": number, "order": {"n": [1, 2]}, "at": "2026-05-01T12:00:00Z"}) for number in range(40)]
    pipeline = checked(made(*orders, json.dumps({"id": "x1"}), "poison {"), tmp_path)
    (source,) = pipeline.sources.values()
    assert isinstance(source, TopicSource)
    assert (list(pipeline.sources), source.topic) == (["shop_orders_v1"], ("shop.orders-v1",))
    assert source.value.schema.split("\n")[:3] == ["id BIGINT,", "`order` STRUCT<n: ARRAY<BIGINT>>,", "at TIMESTAMP"]
    good, bad = pipeline.tests
    (row, *_) = good.expect["selected"]
    assert row == {"key": "k", "value": {"id": 39, "order": {"n": [1, 2]}, "at": "2026-05-01T12:00:00.000Z"}}
    assert [letter["reason"] for letter in bad.dead_letters] == ["not JSON", "does not fit the schema"]
    assert bad.dead_letters[1]["field"] == "id"


def test_text_binary_and_keys(tmp_path: Path) -> None:
    text = checked(made("a ${line}", "true", "- x: {", key=b"\xff"), tmp_path)
    (source,) = text.sources.values()
    assert isinstance(source, TopicSource)
    assert (source.value.format, source.key) == ("string", "bytes")
    (test,) = text.tests
    assert [row["value"] for row in test.expect["selected"]] == ["- x: {", True, "a ${line}"]

    binary = made(b"\xff\x00", "text", key=None)
    assert (binary.format, binary.tests) == ("bytes", 0)
    assert checked(binary, tmp_path).sinks["selected"].key == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=15)
@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=5))
def test_whatever_records_say_the_file_is_valid(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]]
) -> None:
    scaffolded = made(*map(json.dumps, objects))
    columns, _ = infer_columns(objects)
    assert scaffolded.format == ("json" if columns else "string")
    checked(scaffolded, tmp_path_factory.mktemp("made"))


def test_the_command(
    penstock_broker: Cluster, unique_topic: Callable[[str], str], cli: CommandLine, tmp_path: Path
) -> None:
    bootstrap = penstock_broker.bootstrap
    topic = penstock_broker.create_topic(unique_topic("orders"), 3)
    file = str(tmp_path / "pipelines" / "orders.yaml")
    status, _, err = cli("pipeline", "init", topic, "-b", bootstrap, "-o", file)
    assert (status, err) == (
        1,
        f"penstock: topic {topic!r} has no records to infer a schema from: produce some first\n",
    )
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, json.dumps({"id": number, "amount": number / 2}).encode(), key=b"%d" % number)

    status, out, err = cli("pipeline", "init", topic, "-b", bootstrap, "-o", file, "-n", "11")
    assert (status, err) == (0, "")
    assert out.startswith(f"{file}: 11 records are json, 2 columns; 2 tests\n")
    assert f"  penstock topics create {topic}.selected {topic}.dead-letters --bootstrap-server {bootstrap}\n" in out
    assert cli("pipeline", "validate", file)[:2] == (0, f"{file}: valid\n")

    status, _, err = cli("pipeline", "init", topic, "-b", bootstrap, "-o", file)
    assert (status, err) == (
        1,
        f"penstock: {file} is there already: --force overwrites it, --output writes another file\n",
    )
    status, _, err = cli("pipeline", "init", f"{topic}s", "-b", bootstrap, "-o", file, "--force")
    assert status == 1
    assert f"has no topic '{topic}s'; did you mean \"{topic}\"?" in err


def test_no_spark_is_needed() -> None:
    program = "import sys; import penstock.pipelines.operate.sampling; print(*({'pyspark', 'py4j'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
