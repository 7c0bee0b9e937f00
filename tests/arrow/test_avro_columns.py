"""Avro to Arrow by the compiled interpreter: the same values as fastavro reads, for any schema and any bytes."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow import avro_kernel
from penstock.arrow.avro_columns import AvroColumns
from penstock.arrow.avro_program import Unreadable
from property_examples import examples


def encoded(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return body.getvalue()


def read(reader: Any, bodies: list[tuple[Any, bytes]]) -> tuple[Any, dict[int, str]]:
    """`bodies`: each with the schema of its writer."""
    columns = AvroColumns(fastavro.parse_schema(reader))
    programs: dict[str, int] = {}
    for writer, _ in bodies:
        text = json.dumps(writer)
        if text not in programs:
            programs[text] = columns.compile(fastavro.parse_schema(json.loads(text)))
    lengths = np.array([len(body) for _, body in bodies], np.int64)
    ends = np.cumsum(lengths)
    buffer = np.frombuffer(b"".join(body for _, body in bodies) + b"?", np.uint8)
    chosen = np.array([programs[json.dumps(writer)] for writer, _ in bodies], np.int64)
    array, reasons = columns.decode(buffer, ends - lengths, ends, chosen)
    array.validate(full=True)
    return array, reasons


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


# -- Every type.

EVERYTHING = record(
    field("i", "int"),
    field("l", "long"),
    field("f", "float"),
    field("d", "double"),
    field("b", "boolean"),
    field("s", "string"),
    field("y", "bytes"),
    field("x", {"type": "fixed", "name": "X", "size": 3}),
    field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    field("nothing", "null"),
    field("date", {"type": "int", "logicalType": "date"}),
    field("time_ms", {"type": "int", "logicalType": "time-millis"}),
    field("time_us", {"type": "long", "logicalType": "time-micros"}),
    field("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    field("at_us", {"type": "long", "logicalType": "timestamp-micros"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    field("small", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
    field("large", {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 45, "scale": 5}),
    field("uuid", {"type": "string", "logicalType": "uuid"}),
    field("uuid16", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
    field("maybe", ["null", "E"]),
    field("inside", ["null", record(field("a", {"type": "array", "items": "long"}), field("n", "R2"), name="R1")]),
    field("either", ["null", "string", "long"]),
    field("deep", {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}}),
)
EVERYTHING["fields"][21]["type"][1]["fields"][1]["type"] = record(field("q", ["int", "null"]), name="R2")
ROW: dict[str, Any] = {
    "i": -(2**31),
    "l": 2**63 - 1,
    "f": 0.5,
    "d": -1e300,
    "b": True,
    "s": "Zoë 🎉",
    "y": b"\0\xff",
    "x": b"abc",
    "e": "B",
    "nothing": None,
    "date": datetime.date(1969, 12, 31),
    "time_ms": datetime.time(23, 59, 59, 999000),
    "time_us": datetime.time(1, 2, 3, 4),
    "at_ms": datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=datetime.UTC),
    "at_us": datetime.datetime(1900, 1, 1, 0, 0, 0, 7, tzinfo=datetime.UTC),
    "local": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "small": Decimal("-1234.56"),
    "large": Decimal("1234567890123456789012345678901234567890.12345"),
    "uuid": uuid.UUID(int=2**128 - 3),
    "uuid16": bytes.fromhex("0123456789abcdef0123456789abcdef"),
    "maybe": "A",
    "inside": {"a": [1, -2], "n": {"q": 5}},
    "either": 7,
    "deep": [{"k": [1, None]}, {}],
}
NULLS = {**ROW, "maybe": None, "inside": None, "either": None, "deep": [], "small": Decimal(0), "e": "A", "b": False}


def test_every_type() -> None:
    schema = fastavro.parse_schema(EVERYTHING)
    rows = [ROW, NULLS, {**ROW, "either": "text"}, NULLS, ROW]
    array, reasons = read(EVERYTHING, [(EVERYTHING, encoded(schema, row)) for row in rows])
    assert reasons == {}
    either = [(None, 7), None, ("text", None), None, (None, 7)]
    for got, row, members in zip(array.to_pylist(), rows, either, strict=True):
        deep = [list(each.items()) for each in row["deep"]]
        union = None if members is None else {"member0": members[0], "member1": members[1]}
        texts = {"uuid": str(row["uuid"]), "uuid16": "01234567-89ab-cdef-0123-456789abcdef"}
        assert got == {**row, **texts, "either": union, "deep": deep}


# -- Any schema and any value, against fastavro.

SCALARS = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "null": st.none(),
}


@st.composite
def typed(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(st.sampled_from([*SCALARS, "array", "map", "record", "nullable"] if depth else list(SCALARS)))
    if kind in SCALARS:
        return kind, SCALARS[kind]
    if kind == "record":
        fields = draw(st.lists(typed(depth - 1), max_size=3))
        name = f"R{draw(st.integers(0, 2**62))}"
        strategies = {f"f{index}": each for index, (_, each) in enumerate(fields)}
        made = record(*(field(f"f{index}", each) for index, (each, _) in enumerate(fields)), name=name)
        return made, st.fixed_dictionaries(strategies)
    inside, values = draw(typed(depth - 1))
    if kind == "array":
        return {"type": "array", "items": inside}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inside}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    if inside == "null" or isinstance(inside, list):
        return inside, values
    return ["null", inside], st.none() | values


def as_arrow(schema: Any, value: Any) -> Any:
    """What `to_pylist` gives: maps as pairs."""
    if isinstance(schema, list):
        return None if value is None else as_arrow(schema[1], value)
    if isinstance(schema, str) or value is None:
        return value
    if schema["type"] == "array":
        return [as_arrow(schema["items"], each) for each in value]
    if schema["type"] == "map":
        return [(key, as_arrow(schema["values"], each)) for key, each in value.items()]
    return {each["name"]: as_arrow(each["type"], value[each["name"]]) for each in schema["fields"]}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_value(data: st.DataObject) -> None:
    kind, values = data.draw(typed())
    schema = record(field("v", kind), field("end", "int"), name="Top")
    rows = [{"v": each, "end": 7} for each in data.draw(st.lists(values, max_size=4))]
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    array, reasons = read(schema, [(schema, encoded(parsed, row)) for row in rows])
    assert reasons == {}
    assert array.to_pylist() == [as_arrow(schema, row) for row in rows]


damage = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


def changed(body: bytes, changes: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(body)
    for place, byte in changes:
        if place < len(damaged):
            damaged[place] = byte
    return bytes(damaged)


@settings(max_examples=150, deadline=None)
@given(damage, st.integers(0, 400))
def test_any_bytes(changes: list[tuple[int, int]], end: int) -> None:
    """Damaged rows are refused, or are what fastavro reads, too; rows beside them are whole."""
    schema = fastavro.parse_schema(EVERYTHING)
    good = encoded(schema, ROW)
    damaged = changed(good[:end], changes)
    array, reasons = read(EVERYTHING, [(EVERYTHING, each) for each in (good, damaged, good)])
    assert set(reasons) <= {1}
    assert array[0] == array[2]
    if damaged == good:
        assert array[1] == array[0]
    else:
        assert array[1].is_valid == (1 not in reasons)


class Checked:
    """Memory that notices who leaves it."""

    def __init__(self, array: Any, kind: Any = None) -> None:
        flat = array.reshape(-1)
        self.array = flat if kind is None else flat.view(kind)

    def __getitem__(self, position: int) -> Any:
        assert 0 <= position < len(self.array), f"read at {position} of {len(self.array)}"
        return self.array[position]

    def __setitem__(self, position: int, value: Any) -> None:
        assert 0 <= position < len(self.array), f"write at {position} of {len(self.array)}"
        self.array[position] = value


def copy_checked(target: Checked, to: int, source: Checked, position: int, size: int) -> None:
    for index in range(size):
        target[to + index] = source[position + index]


@pytest.fixture(scope="module")
def slow_kernel() -> Iterator[None]:
    """The kernel as Python runs it: where compiled code would leave its memory, this raises."""
    patch = pytest.MonkeyPatch()
    patch.setattr(avro_kernel, "pointer_to", Checked)
    patch.setattr(avro_kernel, "pointer_as", Checked)
    patch.setattr(avro_kernel, "copy_bytes", copy_checked)
    for name in ("_number", "_is_utf8", "_fits", "_reverse"):
        patch.setattr(avro_kernel, name, getattr(avro_kernel, name).py_func)
    patch.setattr(avro_kernel, "run", avro_kernel.run.py_func)
    yield
    patch.undo()


@pytest.mark.usefixtures("slow_kernel")
@settings(max_examples=examples(60), deadline=None)
@given(damage, st.integers(0, 400))
def test_damage_never_leads_outside_the_memory(changes: list[tuple[int, int]], end: int) -> None:
    good = encoded(fastavro.parse_schema(EVERYTHING), ROW)
    damaged = changed(good[:end], changes)
    _, reasons = read(EVERYTHING, [(EVERYTHING, each) for each in (good, damaged, good)])
    assert set(reasons) <= {1}


@pytest.mark.parametrize(
    ("kind", "unit", "day"), [("int", "time-millis", 86_400_000), ("long", "time-micros", 86_400_000_000)]
)
def test_a_time_outside_of_a_day_is_refused(kind: str, unit: str, day: int) -> None:
    schema = record(field("at", {"type": kind, "logicalType": unit}))
    plain = fastavro.parse_schema(record(field("at", kind)))
    values = [0, day - 1, day, -1]
    array, reasons = read(schema, [(schema, encoded(plain, {"at": value})) for value in values])
    assert [row.is_valid for row in array] == [True, True, False, False]
    assert all("a time of day outside of a day" in str(reasons[row]) for row in (2, 3))


# -- Schema resolution.

V1 = record(field("id", "int"), field("name", "string"), field("gone", {"type": "array", "items": ["null", "long"]}))
V2 = record(
    field("name", "bytes"),
    field("id", "double"),
    field("new", ["null", "string"], default=None),
    field("list", {"type": "array", "items": "int"}, default=[1, 2]),
    field("raw", "bytes", default="ÿ\0"),
    field("of", {"type": "map", "values": record(field("k", "long", default=3), name="K")}, default={"a": {}}),
    field("text", ["string", "null"], default="x"),
)


def test_each_row_is_read_with_its_writers_schema() -> None:
    old = encoded(fastavro.parse_schema(V1), {"id": 7, "name": "Ada", "gone": [1, None]})
    new = {"name": b"Bob", "id": 1.5, "new": "n", "list": [], "raw": b"", "of": {}, "text": None}
    bodies = [(V1, old), (V2, encoded(fastavro.parse_schema(V2), new)), (V1, old)]
    array, reasons = read(V2, bodies)
    assert reasons == {}
    first = {"name": b"Ada", "id": 7.0, "new": None, "list": [1, 2], "raw": b"\xff\0", "of": [("a", {"k": 3})]}
    assert array.to_pylist() == [{**first, "text": "x"}, {**new, "of": []}, {**first, "text": "x"}]


PAIRS: list[tuple[Any, Any, Any]] = [
    ("int", "long", 5),
    ("int", "float", 5),
    ("long", "double", -5),
    ("float", "double", 0.25),
    ("string", "bytes", "é"),
    ("bytes", "string", "é".encode()),
    ("int", ["null", "long"], 3),
    (["null", "int"], ["null", "long"], None),
    (["int", "string"], "long", 3),
    (["null", "int"], "int", 3),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["X", "A"], "default": "X"},
        "B",
    ),
    (record(field("a", "int"), name="N"), record(field("b", "int", aliases=["a"]), name="M", aliases=["N"]), {"a": 1}),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime.datetime(2026, 1, 1, 0, 0, 1, 5000, tzinfo=datetime.UTC),
    ),
]


@pytest.mark.parametrize(("writer", "reader", "value"), PAIRS)
def test_resolution(writer: Any, reader: Any, value: Any) -> None:
    written, wanted = record(field("v", writer)), record(field("v", reader))
    body = encoded(fastavro.parse_schema(written), {"v": value})
    array, reasons = read(wanted, [(written, body)])
    assert reasons == {}
    wanted_value = fastavro.schemaless_reader(
        io.BytesIO(body), fastavro.parse_schema(written), fastavro.parse_schema(wanted)
    )
    assert array.to_pylist() == [wanted_value]


UNREADABLE: list[tuple[Any, Any, str]] = [
    ("string", "int", "v: string is not int"),
    ("long", "int", "v: long is not int"),
    ("null", "int", "v: null is not int"),
    ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, r"v\[\]: string is not int"),
    ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, "v: F is not F"),
    (record(name="N"), record(field("b", "int"), name="N"), "v.b: the writer has no such field"),
    (record(name="N"), record(name="M"), "v: N is not M"),
    (record(name="N"), record(field("b", "int", default="x"), name="N"), "v.b: the default 'x'"),
    (record(field("x", {"type": "array", "items": "N"}), name="N"), record(name="N"), "contains itself"),
]


@pytest.mark.parametrize(("writer", "reader", "problem"), UNREADABLE)
def test_schemas_that_do_not_resolve(writer: Any, reader: Any, problem: str) -> None:
    columns = AvroColumns(fastavro.parse_schema(record(field("v", reader)), _ignore_default_error=True))
    with pytest.raises(Unreadable, match=problem):
        columns.compile(fastavro.parse_schema(record(field("v", writer))))


def test_schemas_without_columns() -> None:
    with pytest.raises(Unreadable, match=r"next: R contains itself"):
        AvroColumns(fastavro.parse_schema(record(field("next", ["null", "R"]))))
    with pytest.raises(Unreadable, match="decimals of 99 digits"):
        AvroColumns({"type": "bytes", "logicalType": "decimal", "precision": 99})


def test_schemas_that_grow_without_end_are_refused() -> None:
    kinds: Any = "int"
    for level in range(30):
        again = f"R{level - 1}" if level else "int"
        kinds = record(field("a", kinds), field("b", again), name=f"R{level}")
    parsed = fastavro.parse_schema(kinds)
    with pytest.raises(Unreadable, match="more than 10000 columns"):
        AvroColumns(parsed)
    small = AvroColumns(fastavro.parse_schema(record(name="R29")))
    with pytest.raises(Unreadable, match="too large"):
        small.compile(parsed)


BAD: list[tuple[Any, bytes, str]] = [
    ("string", b"\x04\xc3\x28", "v: text that is not UTF-8"),
    ("string", b"\x02\xc3", "v: text that is not UTF-8"),
    ("string", b"\x06\xed\xa0\x80", "v: text that is not UTF-8"),
    ("string", b"\x08\xf4\x90\x80\x80", "v: text that is not UTF-8"),
    ("string", b"\x06ab", "v: a length that leaves the record"),
    ("string", b"\x01", "v: a length that leaves the record"),
    ("int", b"\x80\x80\x80\x80\x10", "v: an int of more than 32 bits"),
    ("long", b"\xff" * 10 + b"\x01", "v: a number of more than 64 bits"),
    ("long", b"\x80", "v: the bytes end too early"),
    ("double", b"1234567", "v: the bytes end too early"),
    ("boolean", b"\x02", "v: a boolean that is neither 0 nor 1"),
    (["null", "int"], b"\x04\x02", "v: a branch of a union"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "v: a symbol"),
    ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", "v: more items than the record can hold"),
    ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f", "v: more items than the record can hold"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x22" + b"\x01" * 17, "v: a decimal"),
    ("int", b"\x02\x02", "bytes are left over"),
]


@pytest.mark.parametrize(("schema", "body", "reason"), BAD)
def test_malformed_bytes(schema: Any, body: bytes, reason: str) -> None:
    whole = record(field("v", schema))
    array, reasons = read(whole, [(whole, body)])
    assert reasons[0].startswith(reason)
    assert array.to_pylist() == [None]


@pytest.mark.parametrize("precision", [4, 38, 40, 76])
@pytest.mark.parametrize("fixed", [False, True])
def test_decimals_have_the_digits_of_their_precision(precision: int, fixed: bool) -> None:
    size = 40
    kind: dict[str, Any] = {"type": "fixed", "name": "F", "size": size} if fixed else {"type": "bytes"}
    schema = record(field("v", {**kind, "logicalType": "decimal", "precision": precision}))
    largest = 10**precision - 1

    def body(value: int) -> bytes:
        data = value.to_bytes(size if fixed else value.bit_length() // 8 + 1, "big", signed=True)
        return data if fixed else bytes((2 * len(data),)) + data

    values = [0, -1, largest, -largest, largest + 1, -largest - 1]
    array, reasons = read(schema, [(schema, body(each)) for each in values])
    assert [None if row is None else int(row["v"]) for row in array.to_pylist()] == [*values[:4], None, None]
    assert reasons == dict.fromkeys((4, 5), "v: a decimal with more digits than its precision")


def test_no_rows() -> None:
    array, reasons = read(EVERYTHING, [])
    assert (len(array), reasons) == (0, {})
