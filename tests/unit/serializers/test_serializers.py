"""Serializers: what is written is read back, as Java and everybody else read it, and nothing else is accepted."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import struct
import sys
import uuid
from collections.abc import Callable
from typing import Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serializers import (
    Avro,
    Bytes,
    Context,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    JsonSchema,
    MissingPackage,
    Protobuf,
    Serde,
    String,
    Uuid,
)

CONTEXT = Context("t", is_key=False)

VECTORS: list[tuple[Serde[Any], Any, str]] = [
    # What Java's serializers write.
    (Int32(), 1, "00000001"),
    (Int32(), -2, "fffffffe"),
    (Int64(), 1_000_000_007, "000000003b9aca07"),
    (Int64(), -(2**63), "8000000000000000"),
    (Float32(), 0.5, "3f000000"),
    (Float64(), -0.1, "bfb999999999999a"),
    (String(), "déjà 水", "64c3a96ac3a020e6b0b4"),
    (Uuid(), uuid.UUID("12345678-1234-5678-1234-567812345678"), b"12345678-1234-5678-1234-567812345678".hex()),
    (Bytes(), b"\x00\xff", "00ff"),
    (Json(), {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode().hex()),
]


@pytest.mark.parametrize(("serde", "value", "data"), VECTORS)
def test_vectors(serde: Serde[Any], value: Any, data: str) -> None:
    assert serde.serialize(value, CONTEXT) == bytes.fromhex(data)
    assert serde.deserialize(bytes.fromhex(data), CONTEXT) == value


@pytest.mark.parametrize("serde", [Int32(), Int64(), Float32(), Float64(), String(), Uuid(), Bytes(), Json()])
def test_null_is_none(serde: Serde[Any]) -> None:
    assert serde.serialize(None, CONTEXT) is None
    assert serde.deserialize(None, CONTEXT) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
ROUND_TRIPS: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (Int32(), st.integers(-(2**31), 2**31 - 1)),
    (Int64(), st.integers(-(2**63), 2**63 - 1)),
    (Float32(), st.floats(width=32, allow_nan=False)),
    (Float64(), st.floats(allow_nan=False)),
    (String(), st.text()),
    (Uuid(), st.uuids()),
    (Bytes(), st.binary()),
    (Json(), JSON_VALUES),
]


@settings(deadline=None)
@given(st.data())
def test_round_trips(data: st.DataObject) -> None:
    for serde, values in ROUND_TRIPS:
        value = data.draw(values)
        assert serde.decode(serde.encode(value)) == value, serde


# fastavro raises the last three where bytes are missing or out of range.
REFUSALS = (ValueError, EOFError, LookupError, ArithmeticError)


@settings(deadline=None)
@given(st.binary(max_size=40) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Bytes that are read mean something: their value is written and read back. Others are refused as wrong input."""
    for serde in (*(each for each, _ in ROUND_TRIPS), Json(Order), Avro(ORDER_SCHEMA, Flat), JsonSchema({})):
        try:
            value = serde.decode(data)
        except REFUSALS:
            continue
        written = serde.encode(value)
        assert serde.encode(serde.decode(written)) == written, serde  # not the values: NaN does not equal itself


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (Int32(), 2**31, "2147483648 is not an integer of 32 bits"),
        (Int64(), 1.5, "1.5 is not an integer of 64 bits"),
        (Int64(), "7", "'7' is not an integer of 64 bits"),
        (Float32(), 1e300, "is not a float of 32 bits"),
        (String(), b"bytes", "str"),
        (Uuid(), "1234", "not a uuid.UUID"),
        (Json(), math.nan, "JSON"),
        (Json(), object(), "no form in JSON"),
    ],
)
def test_values_that_do_not_fit(serde: Serde[Any], value: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        serde.encode(value)


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (Int32(), bytes(8), "an integer of 32 bits has 4 bytes, not 8"),
        (Float64(), b"", "has 8 bytes, not 0"),
        (String(), b"\xff", "utf-8"),
        (Uuid(), b"12", "badly formed"),
        (Json(), b"{", "Expecting"),
        (Json(), b"NaN", "NaN is not JSON"),
        (Json(), '"a"'.encode("utf-16"), "utf-8"),
    ],
)
def test_bytes_that_do_not_fit(serde: Serde[Any], data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serde.decode(data)


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Order:
    number: int
    lines: list[Line]
    price: decimal.Decimal
    at: datetime.datetime
    id: uuid.UUID
    color: Color = Color.RED
    note: Optional[str] = None  # noqa: UP045  # the old spelling is read, too
    kind: Literal["web", "shop"] = "web"
    tags: frozenset[str] = frozenset()
    where: tuple[float, float] | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    parent: Order | None = None


ORDER = Order(
    7,
    [Line("tea", 2), Line("cup")],
    decimal.Decimal("9.90"),
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    uuid.UUID(int=5),
    where=(1.0, 2.5),
    tags=frozenset({"b", "a"}),
    extra={"x": [1]},
    parent=None,
)
FULL = dataclasses.replace(ORDER, parent=ORDER, note="é")


@pytest.mark.parametrize("order", [ORDER, FULL])
def test_json_of_a_dataclass(order: Order) -> None:
    serde = Json(Order)
    assert serde.decode(serde.encode(order)) == order
    assert Json(list[Order]).decode(Json(list[Order]).encode([order])) == [order]


def test_json_of_a_dataclass_is_plain_json() -> None:
    assert Json().decode(Json(Order).encode(ORDER)) == {
        "number": 7,
        "lines": [{"item": "tea", "count": 2}, {"item": "cup", "count": 1}],
        "price": "9.90",
        "at": "2026-01-02T03:04:05+00:00",
        "id": "00000000-0000-0000-0000-000000000005",
        "color": "red",
        "note": None,
        "kind": "web",
        "tags": ["a", "b"],
        "where": [1.0, 2.5],
        "extra": {"x": [1]},
        "parent": None,
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"count": 2}', "Line.item is missing"),
        (b'{"item": 7}', "Line.item: 7 is not str"),
        (b'{"item": "a", "count": "2"}', "Line.count: '2' is not int"),
        (b'{"item": "a", "count": true}', "Line.count: True is not int"),
        (b"[]", r"\[\] is not an object, as a Line is"),
    ],
)
def test_json_that_is_another_class(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Json(Line).decode(data)


def test_fields_may_come_and_go() -> None:
    assert Json(Line).decode(b'{"item": "a", "new": 1}') == Line("a", 1)
    with pytest.raises(TypeError, match="a str is not a Line"):
        Json(Line).encode("a")  # type: ignore[arg-type]


@dataclasses.dataclass
class Unknown:
    value: complex


def test_a_class_that_json_has_no_form_for_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match=r"Unknown.value: no JSON is known for the type"):
        Json(Unknown)


def test_json_of_pydantic_and_msgspec() -> None:
    import msgspec
    import pydantic

    class Model(pydantic.BaseModel):
        number: int
        at: datetime.date

    class Struct(msgspec.Struct):
        number: int
        at: datetime.date

    for kind in (Model, Struct):
        serde: Json[Any] = Json(kind)
        value = kind(number=1, at=datetime.date(2026, 1, 2))
        assert serde.encode(value) == b'{"number":1,"at":"2026-01-02"}'
        assert serde.decode(serde.encode(value)) == value
        with pytest.raises(ValueError, match="number"):
            serde.decode(b'{"number":"x","at":"2026-01-02"}')
        with pytest.raises(TypeError, match=f"a dict is not a {kind.__name__}"):
            serde.encode({})


ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Flat:
    number: int
    at: datetime.datetime
    note: str | None = None


def test_avro_is_the_bare_body() -> None:
    serde = Avro(ORDER_SCHEMA)
    value = {"number": 1, "note": "a", "at": AT}
    # Zigzag numbers and lengths: 1 is 02, the second branch of the union 02, a string of 1 is 02.
    assert serde.encode(value)[:4] == bytes.fromhex("02 02 02 61")
    assert serde.decode(serde.encode(value)) == value
    import json

    assert Avro(json.dumps(ORDER_SCHEMA)).encode(value) == serde.encode(value)
    typed = Avro(ORDER_SCHEMA, Flat)
    assert typed.encode(Flat(1, AT, "a")) == serde.encode(value)
    assert typed.decode(serde.encode(value)) == Flat(1, AT, "a")
    with pytest.raises(ValueError, match="1 bytes are left over"):
        serde.decode(serde.encode(value) + b"x")
    with pytest.raises(TypeError, match="not a Flat"):
        typed.encode(value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="number"):
        serde.encode({"note": "a", "at": AT})


def test_avro_after_a_change_of_schema() -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}
    new = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "number", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
    }
    assert Avro(new, written_with=old).decode(Avro(old).encode({"number": 5})) == {"number": 5, "note": "-"}


def test_protobuf() -> None:
    from google.protobuf.timestamp_pb2 import Timestamp
    from google.protobuf.wrappers_pb2 import StringValue

    serde = Protobuf(StringValue)
    assert serde.encode(StringValue(value="a")) == bytes.fromhex("0a 01 61")
    assert serde.decode(bytes.fromhex("0a 01 61")) == StringValue(value="a")
    with pytest.raises(TypeError, match="a Timestamp is not a StringValue"):
        serde.encode(Timestamp())
    with pytest.raises(TypeError, match="protoc"):
        Protobuf(str)


def test_json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
        "required": ["item"],
    }
    serde = JsonSchema(schema)
    assert serde.decode(serde.encode({"item": "a", "count": 1})) == {"item": "a", "count": 1}
    wrong: list[object] = [{"item": "a", "count": 0}, {"count": 1}, []]
    for bad in wrong:
        with pytest.raises(ValueError, match=r"^\$"):
            serde.encode(bad)
    with pytest.raises(ValueError, match=r"\$\.count: 0 is less than the minimum of 1"):
        serde.decode(b'{"item": "a", "count": 0}')
    typed = JsonSchema(schema, Line)
    assert typed.decode(typed.encode(Line("a", 2))) == Line("a", 2)
    with pytest.raises(ValueError, match="minimum"):
        typed.encode(Line("a", 0))


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("fastavro", lambda: Avro("{}"), "avro"),
        ("google.protobuf.message", lambda: Protobuf(int), "protobuf"),
        ("jsonschema", lambda: JsonSchema({}), "jsonschema"),
    ],
)
def test_a_missing_package_is_named(
    package: str, make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=rf"pip install 'penstock\[{extra}\]'"):
        make()


def test_numbers_are_structs_of_the_standard_library() -> None:
    assert Int64().encode(-5) == struct.pack(">q", -5)
