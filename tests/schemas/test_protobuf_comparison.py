"""Protobuf: which changes are refused, and that what one schema wrote is read with another that is compatible."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import message_factory, unknown_fields
from google.protobuf.message import Message
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock.schemas import SchemaType, incompatibilities, parse
from penstock.schemas.protobuf.schema import ProtobufSchema
from property_examples import examples

PROPERTY = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def schema(text: str, *references: tuple[str, str], syntax: str = "proto3") -> ProtobufSchema:
    parsed = parse(SchemaType.PROTOBUF, f'syntax = "{syntax}"; {text}', references)
    assert isinstance(parsed, ProtobufSchema)
    return parsed


def rules(old: str, new: str, syntax: str = "proto3") -> list[str]:
    found = incompatibilities(schema(new, syntax=syntax), schema(old, syntax=syntax))
    return [message.partition(":")[0] for message in found]


def message(body: str) -> str:
    return f"message M {{ {body} }} message N {{ string s = 1; }} message O {{ string s = 1; }} enum E {{ A = 0; }}"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "int32 a = 1;", []),
        ("int32 a = 1;", "", []),
        ("int32 a = 1;", "int32 renamed = 1;", []),
        ("int32 a = 1;", "int64 a = 1;", []),
        ("int32 a = 1;", "bool a = 1;", []),
        ("int32 a = 1;", "E a = 1;", []),
        ("E a = 1;", "uint64 a = 1;", []),
        ("string a = 1;", "bytes a = 1;", []),
        ("sint32 a = 1;", "sint64 a = 1;", []),
        ("fixed32 a = 1;", "sfixed32 a = 1;", []),
        ("int32 a = 1;", "optional int32 a = 1;", []),
        ("string a = 1;", "repeated string a = 1;", []),
        ("N a = 1;", "repeated N a = 1;", []),
        ("int32 a = 1;", "sint32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("int32 a = 1;", "string a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("int32 a = 1;", "fixed32 a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("float a = 1;", "double a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("fixed64 a = 1;", "double a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("string a = 1;", "N a = 1;", ["FIELD_KIND_CHANGED at #/M/1"]),
        ("N a = 1;", "O a = 1;", ["FIELD_NAMED_TYPE_CHANGED at #/M/1"]),
        ("int32 a = 1;", "repeated int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED at #/M/1"]),
        ("repeated E a = 1;", "E a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED at #/M/1"]),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", []),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", ["FIELD_SCALAR_KIND_CHANGED at #/M/1"]),
        ("map<string, N> a = 1;", "map<string, O> a = 1;", ["FIELD_NAMED_TYPE_CHANGED at #/M/1"]),
        ("map<string, N> a = 1;", "repeated N a = 1;", ["FIELD_KIND_CHANGED at #/M/1"]),
        ("message I {}", "", ["MESSAGE_REMOVED at #/M/I"]),
        ("message I { int32 a = 1; }", "message I { string a = 1; }", ["FIELD_SCALAR_KIND_CHANGED at #/M/I/1"]),
        ("enum F { X = 0; Y = 1; }", "enum F { Z = 0; }", []),
        ("enum F { X = 0; }", "", []),
        ("int32 a = 1;", "oneof o { int32 a = 1; string b = 2; }", []),
        (
            "int32 a = 1; int32 b = 2;",
            "oneof o { int32 a = 1; int32 b = 2; }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF at #/M/o"],
        ),
        (
            "int32 a = 1; oneof o { int32 b = 2; }",
            "oneof o { int32 a = 1; int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF at #/M/o"],
        ),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", ["ONEOF_FIELD_REMOVED at #/M/2"]),
        ("oneof o { int32 a = 1; int32 b = 2; }", "", []),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof renamed { int32 a = 1; int32 b = 2; }", []),
        ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", []),
        ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; string b = 2; }", []),
    ],
)  # fmt: skip
def test_rules(old: str, new: str, found: list[str]) -> None:
    assert rules(message(old), message(new)) == found


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "required int32 a = 1;", ["REQUIRED_FIELD_ADDED at #/M/1"]),
        ("required int32 a = 1;", "", ["REQUIRED_FIELD_REMOVED at #/M/1"]),
        ("optional int32 a = 1;", "required int32 a = 1;", ["FIELD_NUMERIC_LABEL_CHANGED at #/M/1"]),
        ("optional int32 a = 1 [default = 1];", "optional int32 a = 1 [default = 2];", []),
        ("optional group G = 1 { optional int32 a = 1; }", "", []),
        ("optional group G = 1 {}", "message G {} optional G g = 1;", ["FIELD_KIND_CHANGED at #/M/1"]),
    ],
)
def test_rules_of_proto2(old: str, new: str, found: list[str]) -> None:
    assert rules(f"message M {{ {old} }}", f"message M {{ {new} }}", "proto2") == found


def test_messages_and_packages() -> None:
    assert rules("message A {} message B {}", "message B {} message C {} message A {}") == []
    assert rules("message A {} message B {}", "message B {}") == ["MESSAGE_REMOVED at #/A"]
    assert rules("package a; message A {}", "package b; message A {}") == ["PACKAGE_CHANGED at #/"]
    assert rules("package a; message A { A a = 1; }", "package a; message A { .a.A a = 1; }") == []


def test_the_messages_of_references_are_compared_with_the_fields_that_use_them() -> None:
    one = ("money.proto", 'syntax = "proto3"; package m; message Money { int32 units = 1; }')
    two = ("money.proto", 'syntax = "proto3"; package m; message Money { string units = 1; }')
    moved = ("cash.proto", 'syntax = "proto3"; package other; message Money { int64 units = 1; string c = 2; }')
    order = "message Order { m.Money price = 1; }"
    first = schema(f'import "money.proto"; {order}', one)
    assert incompatibilities(schema(f'import "money.proto"; {order}', one), first) == []
    found = incompatibilities(schema(f'import "money.proto"; {order}', two), first)
    assert found == [
        "FIELD_SCALAR_KIND_CHANGED at #/Money/1: units was int32 (integers) and is string (strings)",
    ]
    renamed = schema('import "cash.proto"; message Order { other.Money price = 1; }', moved)
    assert incompatibilities(renamed, first) == []


def test_recursive_messages() -> None:
    assert (
        rules(
            "message A { A a = 1; B b = 2; } message B { A a = 1; }",
            "message A { A a = 1; B b = 2; } message B { A a = 1; }",
        )
        == []
    )


# What one schema wrote is read with another

SCALARS = [
    "int32",
    "int64",
    "uint32",
    "bool",
    "sint32",
    "sint64",
    "fixed32",
    "sfixed64",
    "float",
    "double",
    "string",
    "bytes",
    "E",
]
VALUES: dict[str, Any] = dict.fromkeys(SCALARS, 1) | {
    "string": "a",
    "bytes": b"a",
    "float": 1.0,
    "double": 1.0,
    "bool": True,
}


@st.composite
def fields(draw: st.DrawFn) -> dict[int, tuple[str, str]]:
    """Label and type by number."""
    kinds = [*SCALARS, "N", "map<string, int32>", "map<int64, N>"]
    result = {}
    for number in draw(st.sets(st.integers(1, 5), max_size=4)):
        kind = draw(st.sampled_from(kinds))
        label = "" if kind.startswith("map") else draw(st.sampled_from(["", "optional ", "repeated ", "oneof "]))
        result[number] = (label, kind)
    return result


def text_of(described: dict[int, tuple[str, str]]) -> str:
    plain = [f"{label}{kind} f{number} = {number};" for number, (label, kind) in described.items() if label != "oneof "]
    chosen = [f"{kind} f{number} = {number};" for number, (label, kind) in described.items() if label == "oneof "]
    body = " ".join(plain) + (f" oneof o {{ {' '.join(chosen)} }}" if chosen else "")
    return f"message M {{ {body} }} message N {{ int32 n = 1; }} enum E {{ A = 0; B = 1; }}"


@st.composite
def changed(draw: st.DrawFn) -> tuple[dict[int, tuple[str, str]], dict[int, tuple[str, str]]]:
    old = draw(fields())
    new = dict(old)
    for number, described in draw(fields()).items():
        what = draw(st.sampled_from(["kind", "label", "remove", "all"]))
        if what == "remove":
            new.pop(number, None)
        elif what == "all" or number not in new:
            new[number] = described
        else:
            mixed = (new[number][0], described[1]) if what == "kind" else (described[0], new[number][1])
            new[number] = ("", mixed[1]) if mixed[1].startswith("map") else mixed
    return old, new


def class_of(parsed: ProtobufSchema) -> type[Message]:
    result: type[Message] = message_factory.GetMessageClass(parsed.linker.pool.FindMessageTypeByName("M"))
    return result


def written(writer: type[Message], described: dict[int, tuple[str, str]]) -> list[Message]:
    """Messages that set every field: with each field of a oneof in turn."""
    chosen = [number for number, (label, _) in described.items() if label == "oneof "] or [0]
    messages = []
    for choice in chosen:
        value: Any = writer()
        for number, (label, kind) in described.items():
            if label == "oneof " and number != choice:
                continue
            name = f"f{number}"
            if kind.startswith("map<int64"):
                getattr(value, name)[1].n = 1
            elif kind.startswith("map"):
                getattr(value, name)["k"] = 1
            elif kind == "N":
                (getattr(value, name).add() if label == "repeated " else getattr(value, name)).n = 1
            elif label == "repeated ":
                getattr(value, name).extend([VALUES[kind]] * 2)
            else:
                setattr(value, name, VALUES[kind])
        messages.append(value)
    return messages


def lost(read: Message) -> bool:
    """A field that the reader knows, in a form that it does not know."""
    known = {field.number for field in read.DESCRIPTOR.fields}
    return any(field.field_number in known for field in unknown_fields.UnknownFieldSet(read))


@PROPERTY
@given(changed())
def test_what_is_compatible_is_read_without_loss(
    pair: tuple[dict[int, tuple[str, str]], dict[int, tuple[str, str]]],
) -> None:
    old, new = pair
    writer, reader = schema(text_of(old)), schema(text_of(new))
    found = incompatibilities(reader, writer)
    event("compatible" if not found else found[0].split()[0])
    if found:
        return
    for value in written(class_of(writer), old):
        read: Any = class_of(reader)()
        read.ParseFromString(value.SerializeToString())
        assert not lost(read)
        for field, _ in value.ListFields():
            if field.number in new:
                assert getattr(read, field.name)
