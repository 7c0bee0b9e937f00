"""Values with schema ids of a registry in Spark: read in batches, written with ids, dead letters that name the id."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.arrow import read_table, write_table
from penstock.pipelines.check.validate import load_checked
from penstock.pipelines.engine.decoding import decoded, kinds_of_errors
from penstock.pipelines.engine.encoding import records
from penstock.pipelines.engine.evolution import RegisteredColumns
from penstock.pipelines.engine.runner import Runner
from penstock.pipelines.spec.model import Decoding, Encoding, TopicSink, TopicSource
from penstock.serializers import Avro, Context, JsonSchema
from penstock.serializers.registry_client import RegistryClient, Schema
from registry_server import FakeRegistry, fake_registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.testing import Cluster

V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "by", "type": ["null", {"type": "record", "name": "By", "fields": [{"name": "n", "type": "string"}]}]},
    ],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "extra", "type": "string", "default": "-"}]}
ROW = {"id": 1, "at": 1_767_225_600_000, "tags": ["a", "b"], "counts": {"x": 2}, "by": {"n": "Ada"}}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as started:
        yield started


HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def raw(spark: SparkSession, values: list[bytes | None], headers: list[Any] | None = None) -> DataFrame:
    rows = [(str(number), value, headers and headers[number]) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, f"key STRING, value BINARY, headers {HEADERS}").selectExpr(
        "CAST(key AS BINARY) AS key",
        "value",
        "'orders' AS topic",
        "0 AS partition",
        "CAST(CAST(key AS STRING) AS BIGINT) AS offset",
        "TIMESTAMP '2026-05-01 12:00:00' AS timestamp",
        "headers",
    )


def source(registry: FakeRegistry, format: str, **more: Any) -> TopicSource:  # noqa: A002
    value = {name: more.pop(name) for name in ("schema", "message") if name in more}
    return TopicSource(topic=("orders",), value=Decoding(format=format, registry=registry.url, **value), **more)  # type: ignore[arg-type]


def read(
    spark: SparkSession, of: TopicSource, values: list[bytes | None], *columns: str, headers: list[Any] | None = None
) -> list[Any]:
    found = decoded(raw(spark, values, headers), of, ".").orderBy("_offset").select(*columns, "__error").collect()
    for row in found:
        assert row["__error"] is None or row["__error"]["kind"] in kinds_of_errors(of)
    return [[*row[:-1], row["__error"] and row["__error"]["reason"]] for row in found]


def test_avro(spark: SparkSession, registry: FakeRegistry) -> None:
    old, new = (Avro(each, registry=registry.url) for each in (V1, V2))
    context = Context("orders", False)
    values = [
        old.serialize(ROW, context),
        None,
        new.serialize({**ROW, "id": 2, "by": None, "extra": "new"}, context),
        b"\0\0\0\0\x09body",
        b"{}",
        b"\0\0\0\0\x01\x02",
    ]
    of = source(registry, "avro")
    columns = ("id", "at", "tags", "counts.x", "by.n", "extra")
    first, null, second, unknown, foreign, damaged = read(spark, of, values, *columns)
    assert first[0] == 1
    assert first[1].isoformat() == "2026-01-01T00:00:00"
    assert first[2:] == [["a", "b"], 2, "Ada", "-", None]
    assert null == [None] * 7
    assert [second[0], *second[4:]] == [2, None, "new", None]
    assert unknown[-1].endswith("no schema has the id 9")
    assert foreign[-1].startswith("no schema id")
    assert damaged[-1] == "schema id 1: at: the bytes end too early"

    # A query that began before the second version: what becomes of the new field.
    for evolution, problem in (("ignore", None), ("dead-letter", "fields that the schema lacks: extra")):
        of = source(registry, "avro", schema=json.dumps(V1), evolution=evolution)
        (found,) = read(spark, of, [values[2]], "id")
        assert (found[0] is None) == (problem is not None)
        assert problem is None or found[-1] == f"schema id 2 (orders-value version 2): {problem}"
    of = source(registry, "avro", schema=json.dumps(V1), evolution="fail")
    with pytest.raises(Exception, match="fields that the schema lacks: extra"):
        read(spark, of, [values[2]], "id")

    # A version that is registered while the query runs gives it a column.
    evolving = RegisteredColumns(source(registry, "avro", evolution="add-columns"))
    third = {**V2, "fields": [*V2["fields"], {"name": "more", "type": "int", "default": 5}]}
    Avro(third, registry=registry.url).prepare("orders")
    batch = raw(spark, values[:1])
    found = decoded(batch, evolving.source_for(batch), ".").select("id", "extra", "more").collect()
    assert [tuple(row) for row in found] == [(1, "-", 5)]


def test_sinks_write_ids(spark: SparkSession, registry: FakeRegistry) -> None:
    rows = spark.range(2).selectExpr("CAST(id AS INT) AS id", "'x' AS name")
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
    }
    avro = Encoding(format="avro", schema=json.dumps(schema), registry=registry.url)
    written = records(rows, TopicSink(source="x", topic="t", key="id", value=avro), ".").collect()
    reader = Avro(registry=registry.url)
    assert sorted(reader.decode(bytes(row.value))["id"] for row in written) == [0, 1]
    assert list(registry.subjects) == ["t-value"]

    client = RegistryClient(registry.url)
    client.register("j-value", Schema('{"type":"object","properties":{"id":{"type":"integer"}}}', "JSON"))
    client.close()
    sink = TopicSink(source="x", topic="j", value=Encoding(format="json", registry=registry.url))
    written = records(rows, sink, ".").collect()
    assert sorted(bytes(row.value) for row in written)[1] == b'\0\0\0\0\x02{"id":1,"name":"x"}'


def test_json(spark: SparkSession, registry: FakeRegistry) -> None:
    properties = {"id": {"type": "integer"}, "at": {"type": ["string", "null"], "format": "date-time"}}
    schema = {"type": "object", "properties": {**properties, "tags": {"type": "array", "items": {"type": "string"}}}}
    data = JsonSchema(schema, registry=registry.url).serialize(
        {"id": 7, "at": "2026-01-01T00:00:00Z", "tags": ["a"]}, Context("orders", False)
    )
    values = [data, b"\0\0\0\0\x07{}", b'{"id":1}', b"\0\0\0\0\x01[", None]
    of = source(registry, "json")
    found = read(spark, of, values, "id", "tags")
    assert found[0] == [7, ["a"], None]
    assert found[1][-1].endswith("no schema has the id 7")
    assert found[2][-1].startswith("no schema id")
    assert found[3][-1] == "not JSON"
    assert found[4] == [None, None, None]


def test_protobuf(spark: SparkSession, registry: FakeRegistry) -> None:
    from google.protobuf import descriptor_pb2

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p", syntax="proto3")
    file.message_type.add(name="First")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    client = RegistryClient(registry.url)
    client.register("orders-value", Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF"))
    client.close()
    of = source(registry, "protobuf", message="p.Order")
    values: list[bytes | None] = [b"\0\0\0\0\x01\x02\x02\x08\x07", b"\0\0\0\0\x05\0", b"x", None]
    found = read(spark, of, values, "id")
    assert found[0] == [7, None]
    assert found[1][-1].endswith("no schema has the id 5")
    assert found[2][-1].startswith("no schema id")
    assert found[3] == [None, None]
    guid = uuid.UUID(registry.schemas[0]["guid"]).bytes
    in_header = [("__value_schema_id", b"\x01" + guid + b"\x02\x02")]
    assert read(spark, of, [b"\x08\x07"], "id", headers=[in_header]) == [[7, None]]
    sink = TopicSink(
        source="x", topic="orders", value=Encoding(format="protobuf", registry=registry.url, message="p.Order")
    )
    (row,) = records(spark.sql("SELECT 7 AS id"), sink, ".").collect()
    assert bytes(row.value) == values[0]


def test_guids_in_headers(spark: SparkSession, registry: FakeRegistry) -> None:
    """Beside values with ids, and headers that carry something else."""
    name = "__value_schema_id"
    unknown = [(name, bytes((1, *range(16))))]
    context = Context("orders", False)
    body = Avro(V1, registry=registry.url, schema_id="header").serialize(ROW, context)
    with_id = Avro(V1, registry=registry.url).serialize({**ROW, "id": 2}, Context("orders", False))
    values: list[bytes | None] = [body, with_id, body, None, body, with_id]
    headers: list[Any] = [[("other", b"?"), *context.headers], None, unknown, context.headers, None, [(name, None)]]
    found = read(spark, source(registry, "avro"), values, "id", "by.n", headers=headers)
    assert found[:2] == [[1, "Ada", None], [2, "Ada", None]]
    assert found[2][-1].endswith("no schema has the GUID 00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert found[3] == [None, None, None]
    assert found[4][-1].startswith("no schema id")
    assert found[5] == [2, "Ada", None]

    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    context = Context("j", False)
    text = JsonSchema(schema, registry=registry.url, schema_id="header").serialize({"id": 7}, context)
    of = TopicSource(topic=("j",), value=Decoding(format="json", registry=registry.url))
    found = read(spark, of, [text, text, text, None], "id", headers=[context.headers, unknown, None, context.headers])
    assert found[0] == [7, None]
    assert "no schema has the GUID" in found[1][-1]
    assert found[2][-1].startswith("no schema id")
    assert found[3] == [None, None]


PIPELINE = """\
name: {orders}-pipeline
bootstrap: {bootstrap}
checkpoints: {place}/checkpoints
sources:
  orders:
    topic: {orders}
    value: {{format: avro, registry: "{url}"}}
    evolution: add-columns
steps:
  all: {{sql: SELECT * FROM orders}}
  few: {{sql: "SELECT id, element_at(tags, 1) AS tag FROM orders"}}
sinks:
  all: {{from: all, topic: {all}}}
  few: {{from: few, topic: {few}, value: {{format: avro, registry: "{url}", schema: '{schema}'}}}}
dead_letters: {{topic: {dead}}}
"""


def test_a_pipeline_from_end_to_end(
    spark: SparkSession, cluster: Cluster, new_topic: Callable[..., str], registry: FakeRegistry, tmp_path: Path
) -> None:
    """Avro in and out with a registry, a version that is registered while the pipeline exists, and dead letters."""
    topics = {name: new_topic() for name in ("orders", "all", "few", "dead")}
    schema = json.dumps(
        {
            "type": "record",
            "name": "Few",
            "fields": [{"name": "id", "type": "int"}, {"name": "tag", "type": ["null", "string"]}],
        }
    )
    context = Context(topics["orders"], False)

    def produce(*values: bytes | None) -> None:
        write_table(cluster.bootstrap, topics["orders"], pa.table({"value": pa.array(values, pa.binary())}))

    def written(name: str, value: Any) -> list[Any]:
        columns = ["value", "headers"]
        rows: list[Any] = read_table(cluster.bootstrap, topics[name], value=value, columns=columns).to_pylist()
        return rows

    old, new = (Avro(each, registry=registry.url) for each in (V1, V2))
    produce(old.serialize(ROW, context), b"\0\0\0\0\x63?")
    file = tmp_path / "p.yaml"
    places = {"bootstrap": cluster.bootstrap, "place": str(tmp_path), "url": registry.url, "schema": schema}
    file.write_text(PIPELINE.format(**places, **topics), encoding="utf-8")
    loaded, _ = load_checked(str(file))
    Runner(loaded, spark).run_once()
    produce(new.serialize({**ROW, "id": 2, "tags": ["c"], "extra": "new"}, context))
    Runner(loaded, spark).run_once()

    rows = [json.loads(row["value"]) for row in written("all", "string")]
    assert [(row["id"], row.get("extra")) for row in rows] == [(1, None), (2, "new")]
    few = written("few", Avro(registry=registry.url))
    assert [row["value"] for row in few] == [{"id": 1, "tag": "a"}, {"id": 2, "tag": "c"}]
    (letter,) = written("dead", "binary")
    reasons = [each["value"].decode() for each in letter["headers"] if each["key"] == "dead-letter.reason"]
    assert reasons == [f"schema registry {registry.url}: no schema has the id 99"]
