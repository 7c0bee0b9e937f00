"""Clients, Arrow and confluent-kafka's serializers with a real broker and a real registry."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from typing import Any

import pytest

from penstock import Admin, Avro, Consumer, JsonSchema, Producer, Protobuf, Registry
from penstock.client.errors import Undeserializable
from penstock.serializers import Context

V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
AT = {"type": "long", "logicalType": "timestamp-micros"}
V2 = {**V1, "fields": [*V1["fields"], {"name": "at", "type": ["null", AT], "default": None}]}
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


@pytest.fixture
def topic(bootstrap: str, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("registered")
    with Admin(bootstrap) as admin:
        admin.topics.create(name, partitions=1)
    return name


def test_clients_and_arrow(bootstrap: str, real_registry: str, topic: str) -> None:
    pytest.importorskip("numba")
    from penstock.arrow import BadValue, read_table

    registry = Registry(real_registry)
    old, new = Avro(V1, registry=registry), Avro(V2, registry=registry)
    by_header = Avro(V2, registry=registry, schema_id="header")
    rows = [{"id": number, "price": Decimal(number) / 100} for number in range(3)]
    with Producer(bootstrap, value=old) as producer:
        for row in rows:
            producer.send(topic, row)
    with Producer(bootstrap, value=new) as producer:
        producer.send(topic, {"id": 3, "price": Decimal("1.50"), "at": NOON})
    with Producer(bootstrap, value=by_header) as producer:
        producer.send(topic, {"id": 4, "price": Decimal("2.50"), "at": None})
    expected = [
        *({**row, "at": None} for row in rows),
        {"id": 3, "price": Decimal("1.50"), "at": NOON},
        {"id": 4, "price": Decimal("2.50"), "at": None},
    ]
    with Consumer(bootstrap, topic, value=new) as consumer:
        assert [record.value for record in islice(consumer, len(expected))] == expected
    assert {registered.id for registered in (registry.version(f"{topic}-value", n) for n in (1, 2))} == {
        old.prepare(topic)[0].id,
        new.prepare(topic)[0].id,
    }
    for reader in (Avro(registry=registry), new):  # the columns of the latest version, or of the given schema
        table = read_table(bootstrap, topic, value=reader, columns=["value"])
        assert table["value"].to_pylist() == expected
    table = read_table(bootstrap, topic, value=Avro(V1, registry=registry), columns=["value"])
    assert table["value"].to_pylist()[3] == {"id": 3, "price": Decimal("1.50")}

    with Producer(bootstrap) as producer:
        producer.send(topic, b"\0\x7f\xff\xff\xffbody")
    with pytest.raises(BadValue, match=r"offset 5: .*no schema has the id 2147483647"):
        read_table(bootstrap, topic, value=Avro(registry=registry))
    with (
        Consumer(bootstrap, topic, value=new) as consumer,
        pytest.raises(Undeserializable, match="no schema has the id 2147483647"),
    ):
        list(islice(consumer, 6))
    registry.close()


def test_the_same_bytes_as_confluents(real_registry: str, topic: str, shop: Any) -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("authlib")
    pytest.importorskip("google.type.date_pb2", reason="confluent-kafka's Protobuf needs googleapis-common-protos")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

    context = Context(topic, False)

    def theirs(name: str) -> Any:
        return SerializationContext(f"{topic}{name}", MessageField.VALUE)

    # A client remembers the answer to its registration and reads with it; another program asks for the schema.
    with SchemaRegistryClient({"url": real_registry}) as client, SchemaRegistryClient({"url": real_registry}) as other:
        value: Any = {"id": 3, "price": Decimal("1.50"), "at": NOON}
        data = AvroSerializer(client, json.dumps(V2))(value, theirs(""))
        avro = Avro(V2, registry=real_registry)
        assert avro.serialize(value, context) == data
        assert avro.deserialize(data, context) == value
        for reader in (client, other):
            assert AvroDeserializer(reader)(data, theirs("")) == value

        schema = '{"title": "J", "type": "object"}'
        data = JSONSerializer(schema, client)({"é": 1}, theirs("-json"))
        strict = JsonSchema(schema, registry=real_registry)
        assert strict.serialize({"é": 1}, Context(f"{topic}-json", False)) == data
        for reader in (client, other):
            assert JSONDeserializer(None, schema_registry_client=reader)(data, theirs("-json")) == {"é": 1}
        assert JsonSchema(registry=real_registry).deserialize(data, context) == {"é": 1}

        message = shop.Order(name="x", price=shop.Money(units=3))
        data = ProtobufSerializer(shop.Order, client)(message, theirs("-proto"))
        protobuf = Protobuf(shop.Order, registry=real_registry)
        assert protobuf.serialize(message, Context(f"{topic}-proto", False)) == data
        for reader in (client, other):
            assert ProtobufDeserializer(shop.Order, {}, reader)(data, theirs("-proto")) == message
        assert protobuf.deserialize(data, context) == message
        assert Protobuf(registry=real_registry).deserialize(data, context).price.units == 3
