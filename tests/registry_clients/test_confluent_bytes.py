"""The same bytes as confluent-kafka's serializers, read by either; also with GUIDs in headers."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from penstock.serializers import Avro, Context, JsonSchema, Protobuf
from registry_server import FakeRegistry

pytest.importorskip("httpx")
pytest.importorskip("authlib")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a package that confluent-kafka's client of registries imports
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

ORDER = json.dumps(
    {
        "type": "record", "name": "Order", "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": ["null", "string"], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}},
        ],
    }
)  # fmt: skip
VALUE = {
    "id": 7,
    "customer": "Zoë",
    "price": Decimal("12.34"),
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=datetime.UTC),
    "tags": ["a", "b"],
    "counts": {"x": 1},
}


@pytest.fixture
def confluent(registry: FakeRegistry) -> Iterator[SchemaRegistryClient]:
    client = SchemaRegistryClient({"url": registry.url})
    with client:
        yield client


def theirs(topic: str = "orders", headers: Any = None) -> Any:
    return SerializationContext(topic, MessageField.VALUE, headers)


def test_avro(registry: FakeRegistry, confluent: SchemaRegistryClient) -> None:
    ours = Avro(ORDER, registry=registry.url)
    context = Context("orders", False)
    data = ours.serialize(VALUE, context)
    assert data is not None
    assert data == AvroSerializer(confluent, ORDER)(VALUE, theirs())
    assert data[:5] == b"\0\0\0\0\x01"
    assert AvroDeserializer(confluent)(data, theirs()) == VALUE
    assert ours.deserialize(data, context) == VALUE
    assert Avro(registry=registry.url).deserialize(data, context) == VALUE
    assert list(registry.subjects) == ["orders-value"]


@pytest.mark.parametrize("schema", ['"string"', '{"type": "string"}', '["null", "string"]'])
def test_avro_of_primitives(registry: FakeRegistry, confluent: SchemaRegistryClient, schema: str) -> None:
    ours = Avro(schema, registry=registry.url)
    data = ours.serialize("text", Context("orders", False))
    assert data == AvroSerializer(confluent, schema)("text", theirs())
    assert len(registry.schemas) == 1


def test_guids_in_headers(registry: FakeRegistry, confluent: SchemaRegistryClient) -> None:
    headers: list[tuple[str, bytes]] = []
    conf = {"schema.id.serializer": header_schema_id_serializer}
    data = AvroSerializer(confluent, ORDER, conf=conf)(VALUE, theirs(headers=headers))
    ours = Avro(ORDER, registry=registry.url, schema_id="header")
    context = Context("orders", False)
    assert ours.serialize(VALUE, context) == data
    assert context.headers == headers
    assert ours.deserialize(data, context) == VALUE
    assert AvroDeserializer(confluent)(data, theirs(headers=list(context.headers))) == VALUE


def test_json(registry: FakeRegistry, confluent: SchemaRegistryClient) -> None:
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
    value = {"id": 7, "name": "Zoë"}
    ours = JsonSchema(schema, registry=registry.url)
    data = ours.serialize(value, Context("orders", False))
    assert data is not None
    assert data == JSONSerializer(schema, confluent)(value, theirs())
    assert JSONDeserializer(None, schema_registry_client=confluent)(data, theirs()) == value
    assert ours.deserialize(data, Context("orders", False)) == value
    assert JsonSchema(registry=registry.url).deserialize(data, Context("orders", False)) == value


def test_protobuf(registry: FakeRegistry, confluent: SchemaRegistryClient, shop: Any) -> None:
    pytest.importorskip("google.type.date_pb2", reason="confluent-kafka's Protobuf needs googleapis-common-protos")
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    for kind in (shop.Order, shop.Order.Line, shop.Customer):
        value = kind(name="Zoë")
        topic = kind.DESCRIPTOR.name
        ours = Protobuf(kind, registry=registry.url)
        data = ours.serialize(value, Context(topic, False))
        assert data is not None
        assert data == ProtobufSerializer(kind, confluent)(value, theirs(topic))
        assert ProtobufDeserializer(kind, {}, confluent)(data, theirs(topic)) == value
        assert ours.deserialize(data, Context(topic, False)) == value
        assert Protobuf(registry=registry.url).deserialize(data, Context(topic, False)).name == "Zoë"
    assert sorted(registry.subjects) == ["Customer-value", "Line-value", "Order-value", "money.proto"]
