"""Serializers with a registry: subjects, registration, evolution, and errors that name the schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.serializers import Avro, Context, JsonSchema, Protobuf
from penstock.serializers.registered import read_indexes, write_indexes
from penstock.serializers.registry_client import Reference, RegistryClient, Schema
from penstock.serializers.registry_http import RegistryError
from registry_server import FakeRegistry

V1 = {"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
V2 = {**V1, "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "?"}]}
CONTEXT = Context("users", False)


@dataclass
class User:
    id: int
    name: str = "?"


def test_subjects_have_names_by_strategy(registry: FakeRegistry) -> None:
    for strategy in ("topic", "record", "topic-record"):
        Avro(V1, registry=registry.url, subject=strategy).serialize({"id": 1}, CONTEXT)
    Avro(V1, registry=registry.url).serialize({"id": 1}, Context("users", True))
    JsonSchema({"title": "J"}, registry=registry.url, subject="record").serialize(1, CONTEXT)
    by_function = Avro(V1, registry=registry.url, subject=lambda context, name: f"{context.topic}/{name}")
    by_function.serialize({"id": 1}, CONTEXT)
    names = ["users-value", "shop.User", "users-shop.User", "users-key", "J", "users/shop.User"]
    assert list(registry.subjects) == names
    with pytest.raises(ValueError, match="the schema has no name"):
        JsonSchema({}, registry=registry.url, subject="record").serialize(1, CONTEXT)
    with pytest.raises(ValueError, match="not one of topic, record"):
        Avro(V1, registry=registry.url, subject="topics")  # type: ignore[call-overload]


def test_a_record_is_read_with_the_schema_of_its_writer(registry: FakeRegistry) -> None:
    old, new = Avro(V1, registry=registry.url), Avro(V2, User, registry=registry.url)
    first = old.serialize({"id": 7}, CONTEXT)
    assert new.deserialize(first, CONTEXT) == User(7, "?")
    second = new.serialize(User(8, "Ada"), CONTEXT)
    assert second is not None
    assert second[4] == 2
    with pytest.raises(ValueError, match=r"schema id 2 \(users-value version 2\): SchemaResolutionError"):
        old.deserialize(second, CONTEXT)
    assert Avro(registry=registry.url).deserialize(second, CONTEXT) == {"id": 8, "name": "Ada"}
    assert new.deserialize(None, CONTEXT) is None
    assert new.serialize(None, CONTEXT) is None  # type: ignore[arg-type]


def test_without_auto_register_the_schema_must_be_there(registry: FakeRegistry) -> None:
    careful = Avro(V1, registry=registry.url, auto_register=False)
    with pytest.raises(RegistryError, match=r"subject users-value: .* Schema not found"):
        careful.serialize({"id": 1}, CONTEXT)
    Avro(V1, registry=registry.url).prepare("users")
    assert careful.serialize({"id": 1}, CONTEXT) == b"\0\0\0\0\x01\x02"


def test_the_latest_version_is_written(registry: FakeRegistry) -> None:
    for version in (V1, V2):
        Avro(version, registry=registry.url).prepare("users")
    latest = Avro(V1, registry=registry.url, use_latest=True)
    assert latest.serialize({"id": 1}, CONTEXT) == b"\0\0\0\0\x02\x02\x02?"
    assert Avro(registry=registry.url).serialize({"id": 1, "name": "A"}, CONTEXT) == b"\0\0\0\0\x02\x02\x02A"
    with pytest.raises(RegistryError, match="subject other-value"):
        Avro(registry=registry.url).serialize({"id": 1}, Context("other", False))


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"{}", b"\x05\0\0\0\x01"])
def test_bytes_without_an_id(registry: FakeRegistry, data: bytes) -> None:
    with pytest.raises(ValueError, match="no schema id"):
        Avro(registry=registry.url).decode(data)


def test_an_unknown_id_is_named(registry: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="no schema has the id 305419896"):
        Avro(registry=registry.url).decode(b"\0\x12\x34\x56\x78body")


def test_a_schema_of_another_format(registry: FakeRegistry) -> None:
    data = Avro(V1, registry=registry.url).serialize({"id": 1}, CONTEXT)
    with pytest.raises(ValueError, match=r"schema id 1 \(users-value version 1\) is AVRO, not JSON"):
        JsonSchema(registry=registry.url).deserialize(data, CONTEXT)


def test_references(registry: FakeRegistry) -> None:
    client = RegistryClient(registry.url)
    client.register("shop.User", Schema(json.dumps(V1)))
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.User"}]}
    client.register("orders-value", Schema(json.dumps(order), "AVRO", (Reference("shop.User", "shop.User", 1),)))
    orders = Avro(registry=client)
    data = orders.serialize({"by": {"id": 3}}, Context("orders", False))
    assert orders.deserialize(data, Context("orders", False)) == {"by": {"id": 3}}
    client.register("id.json", Schema('{"type":"integer"}', "JSON"))
    uses = Schema('{"properties":{"id":{"$ref":"id.json"}}}', "JSON", (Reference("id.json", "id.json", 1),))
    client.register("ids-value", uses)
    ids = JsonSchema(registry=client)
    with pytest.raises(ValueError, match=r"\$.id: 'x' is not of type 'integer'"):
        ids.serialize({"id": "x"}, Context("ids", False))
    assert ids.serialize({"id": 1}, Context("ids", False)) == b'\0\0\0\0\x04{"id":1}'
    client.close()


def test_json_is_validated_when_it_is_read(registry: FakeRegistry) -> None:
    anything = JsonSchema({"title": "any"}, registry=registry.url)
    strict = JsonSchema({"type": "integer"}, registry=registry.url)
    data = anything.serialize("x", CONTEXT)
    with pytest.raises(ValueError, match=r"schema id 1 \(users-value version 1\): \$: 'x' is not of type 'integer'"):
        strict.deserialize(data, CONTEXT)


def test_protobuf_messages_of_a_file(registry: FakeRegistry, shop: Any) -> None:
    lines, customers = Protobuf(shop.Order.Line, registry=registry.url), Protobuf(shop.Customer, registry=registry.url)
    data = lines.serialize(shop.Order.Line(name="x"), CONTEXT)
    assert data == b"\0\0\0\0\x02" + b"\x04\0\0" + b"\x0a\x01x"
    with pytest.raises(ValueError, match=r"the record is a shop.Order.Line, not a shop.Customer"):
        customers.deserialize(data, CONTEXT)
    with pytest.raises(ValueError, match=r"schema id 2 .*: the schema has no message at \[9\]|no message at \[9\]"):
        lines.deserialize(b"\0\0\0\0\x02\x02\x12", CONTEXT)
    with pytest.raises(ValueError, match="cut off"):
        lines.deserialize(b"\0\0\0\0\x02\x04\0", CONTEXT)
    with pytest.raises(TypeError, match="is not a Line"):
        lines.serialize(shop.Customer(), CONTEXT)


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (3, 200, 0), (64,)])
def test_message_indexes(indexes: tuple[int, ...]) -> None:
    assert read_indexes(write_indexes(indexes) + b"rest") == (indexes, b"rest")


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="a schema, or a registry"):
        Avro()
    with pytest.raises(TypeError, match="a schema, or a registry"):
        Avro(V1, auto_register=False)
    with pytest.raises(TypeError, match="which schema it was written with"):
        Avro(V1, written_with=V2, registry="http://127.0.0.1:1")
    with pytest.raises(ValueError, match="neither"):
        Avro(V1, registry="http://127.0.0.1:1", schema_id="both")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="call serialize"):
        Avro(V1, registry="http://127.0.0.1:1").encode({"id": 1})
