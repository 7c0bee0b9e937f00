"""Avro and Protobuf: bytes to rows and back, and what is said of bytes that are neither."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from penstock.pipelines.check.codecs import codec
from penstock.pipelines.spec.model import Decoding, Encoding
from penstock.pipelines.spec.schemas import SchemaInvalid, columns_of_values

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "lines", "type": {"type": "map", "values": {"type": "record", "name": "Line", "fields": [
                {"name": "count", "type": "int"}]}}},
            {"name": "last", "type": ["null", "Line"]},
        ],
    }
)  # fmt: skip


class FakeRow:
    """As much of a row of Spark as codecs see."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def asDict(self, recursive: bool) -> dict[str, Any]:  # noqa: N802
        return self._values


def test_avro() -> None:
    coding = codec(Decoding(format="avro", schema=AVRO), ".")
    row = {
        "id": 7,
        "at": datetime(2026, 5, 1, 12, tzinfo=UTC),
        "note": None,
        "tags": ["a", "b"],
        "lines": {"x": {"count": 3}},
        "last": {"count": 4},
    }

    data = coding.encode(FakeRow(row))

    assert coding.decode(data) == (row, None)
    assert coding.decode(None) == (None, None)
    assert coding.decode(data + b"!")[1] == "not Avro of the schema: 1 bytes are left over"
    assert str(coding.decode(b"\xff")[1]).startswith("not Avro of the schema: ")
    assert coding.spark_type() == (
        "struct<`id`:bigint,`at`:timestamp,`note`:string,`tags`:array<string>,"
        "`lines`:map<string,struct<`count`:int>>,`last`:struct<`count`:int>>"
    )


def descriptors() -> bytes:
    """What protoc --descriptor_set_out makes of a small file."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    status = file.enum_type.add(name="Status")
    for number, name in enumerate(("NEW", "PAID")):
        status.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_UINT64, label=one)
    order.field.add(name="status", number=2, type=field.TYPE_ENUM, label=one, type_name=".shop.Status")
    order.field.add(name="lines", number=3, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Line")
    order.field.add(name="first", number=4, type=field.TYPE_MESSAGE, label=one, type_name=".shop.Line")
    order.field.add(name="data", number=5, type=field.TYPE_BYTES, label=one)
    file.message_type.add(name="Line").field.add(name="count", number=1, type=field.TYPE_INT32, label=one)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="below", number=1, type=field.TYPE_MESSAGE, label=many, type_name=".shop.Tree")
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def test_protobuf(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(descriptors())
    coding = codec(Encoding(format="protobuf", schema_file="shop.desc", message="shop.Order"), str(tmp_path))
    row = {"id": 2**63, "status": "PAID", "lines": [{"count": 1}, {"count": 2}], "first": None, "data": b"\x00\x01"}

    data = coding.encode(FakeRow(row))

    assert coding.decode(data) == (row, None)
    assert str(coding.decode(b"\xff\xff")[1]).startswith("not Protobuf of the schema: ")
    assert coding.spark_type() == (
        "struct<`id`:decimal(20,0),`status`:string,`lines`:array<struct<`count`:int>>,`first`:struct<`count`:int>,"
        "`data`:binary>"
    )
    decoding = Decoding(format="protobuf", schema_file="shop.desc", message="shop.Order")
    assert columns_of_values(decoding, str(tmp_path)) == ("id", "status", "lines", "first", "data")


@pytest.mark.parametrize(
    ("coding", "message"),
    [
        (Decoding(format="protobuf", schema_file="shop.desc", message="shop.Oder"), 'did you mean "shop.Order"'),
        (Decoding(format="protobuf", schema_file="other", message="shop.Order"), "No such file"),
        (Decoding(format="protobuf", schema_file="bad.desc", message="shop.Order"), "not a descriptor set"),
        (Decoding(format="protobuf", message="shop.Order"), 'needs "schema_file"'),
        (Decoding(format="protobuf", schema_file="shop.desc", message="shop.Tree"), "contains itself"),
        (Decoding(format="avro", schema='{"type": "recod"}'), "not an Avro schema"),
        (Decoding(format="avro", schema='"string"'), "must be of a record"),
        (
            Decoding(
                format="avro",
                schema='{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            ),
            "a union of several types",
        ),
    ],
)
def test_schemas_that_cannot_be_used(coding: Decoding, message: str, tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(descriptors())
    (tmp_path / "bad.desc").write_bytes(b"\xff\xff\xff")

    with pytest.raises(SchemaInvalid, match=message):
        codec(coding, str(tmp_path)).spark_type()
