"""`pipeline validate` asks the schema registry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.check.validate import validate
from penstock.pipelines.spec.registries import json_ddl
from penstock.serializers.registry_client import Reference, RegistryClient, Schema
from registry_server import FakeRegistry, fake_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": "User"}, {"name": "also", "type": "User"}],
}
USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as started:
        client = RegistryClient(started.url)
        client.register("User", Schema(json.dumps(USER)))
        client.register("orders-value", Schema(json.dumps(ORDER), "AVRO", (Reference("User", "User", 1),)))
        client.register("j-value", Schema('{"type":"object","properties":{"id":{"type":"integer"}}}', "JSON"))
        client.close()
        yield started


def problems(tmp_path: Path, value: str, sql: str = "SELECT id, by.name FROM orders", **more: str) -> list[str]:
    path = tmp_path / "p.yaml"
    path.write_text(
        f"name: p\nsources:\n  orders:\n    {more.get('topic', 'topic: orders')}\n    value: {value}\n"
        f"{more.get('source', '')}"
        f'steps:\n  out: {{sql: "{sql}"}}\n'
        f"sinks:\n  out: {{from: out, topic: out, value: {more.get('sink', '{format: json}')}}}\n",
        encoding="utf-8",
    )
    return [each.message for each in validate(str(path))]


def test_columns_are_those_of_the_latest_version(registry: FakeRegistry, tmp_path: Path) -> None:
    value = f"{{format: avro, registry: '{registry.url}'}}"
    assert problems(tmp_path, value) == []
    assert problems(tmp_path, value, "SELECT also.name FROM orders") == []
    (problem,) = problems(tmp_path, value, "SELECT idd FROM orders")
    assert 'no column "idd"' in problem
    named = f"{{format: json, registry: '{registry.url}', subject: j-value}}"
    assert problems(tmp_path, named, "SELECT id + 1 AS id FROM orders") == []
    evolving = {"source": "    evolution: add-columns\n"}
    assert problems(tmp_path, value, **evolving) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("{format: avro, registry: 'URL', subject: gone}", r"Subject 'gone' not found. \(40401\)"),
        ("{format: json, registry: 'URL'}", "subject orders-value version 1 is AVRO, not json"),
        ("{format: string, registry: 'URL'}", "string has no schema; a registry is for json, avro and protobuf"),
        ("{format: string, subject: x}", '"subject" is for a registry'),
        ("{format: avro, registry: 'nowhere'}", "'nowhere' is not an address"),
        ("{format: avro, registry: 'URL', registry_options: {basic.auth: x}}", "no option basic.auth"),
        (
            "{format: avro, registry: 'URL', registry_options: {basic.auth.user.info: '${secret:env:NO_SUCH}'}}",
            "the environment has no variable NO_SUCH",
        ),
    ],
)
def test_problems(registry: FakeRegistry, tmp_path: Path, value: str, problem: str) -> None:
    found = problems(tmp_path, value.replace("URL", registry.url), "SELECT 1 AS id FROM orders")
    assert len(found) == 1
    assert re.search(problem, found[0])


def test_a_registry_that_does_not_answer(tmp_path: Path) -> None:
    with fake_registry() as gone:
        url = gone.url
    (problem,) = problems(tmp_path, f"{{format: avro, registry: '{url}'}}", "SELECT 1 AS id FROM orders")
    assert problem == f"schema registry {url}: Connection refused"


def test_a_sink_needs_a_subject_that_is_known(registry: FakeRegistry, tmp_path: Path) -> None:
    value = f"{{format: avro, registry: '{registry.url}'}}"
    (problem,) = problems(tmp_path, value, sink=f"{{format: avro, registry: '{registry.url}'}}")
    assert "Subject 'out-value' not found" in problem
    schema = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
    (problem,) = problems(tmp_path, value, sink=f"{{format: json, registry: '{registry.url}', schema: x}}")
    assert "json is written with the registered schema" in problem
    before = len(registry.schemas)
    assert problems(tmp_path, value, sink=f"{{format: avro, registry: '{registry.url}', schema: '{schema}'}}") == []
    assert len(registry.schemas) == before  # a check registers nothing
    (problem,) = problems(tmp_path, value, topic="topic_pattern: x.*")
    assert 'a registry needs a "subject"' in problem


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": ["null", "number"]}, "DOUBLE"),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "BOOLEAN"),
        ({"type": "string", "format": "date"}, "DATE"),
        ({"type": "array", "items": {"type": "integer"}}, "ARRAY<BIGINT>"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "STRUCT<`a`: STRING>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "MAP<STRING, BIGINT>"),
        ({"type": ["integer", "string"]}, "STRING"),
        (True, "STRING"),
        ({"$ref": "#/x"}, "STRING"),
    ],
)
def test_columns_of_json_schemas(schema: Any, ddl: str) -> None:
    assert json_ddl({"properties": {"c": schema}}) == f"`c` {ddl}"


def test_a_json_schema_without_properties_has_no_columns() -> None:
    with pytest.raises(ValueError, match="not of an object"):
        json_ddl({"type": "string"})
