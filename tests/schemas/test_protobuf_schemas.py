"""Protobuf: texts become the descriptors that protoc makes of them, and descriptors texts."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2 as pb

from penstock.schemas import InvalidSchema, SchemaType, parse
from penstock.schemas.protobuf.schema import ProtobufSchema
from schemas.protoc import compiled

MONEY = (
    'syntax = "proto3"; package shop; message Money { string currency = 1; int64 units = 2; enum Kind { CASH = 0; } }'
)
OPTIONS = """
syntax = "proto3";
package opts;
import "google/protobuf/descriptor.proto";
message Rule { string name = 1; repeated int32 levels = 2; Rule inner = 3; bytes raw = 4; double ratio = 5; }
extend google.protobuf.FileOptions { string owner = 50001; }
extend google.protobuf.MessageOptions { Rule rule = 50001; repeated string tags = 50002; }
extend google.protobuf.FieldOptions { Rule check = 50001; bool secret = 50002; Level level = 50003; }
extend google.protobuf.EnumValueOptions { string label = 50001; }
extend google.protobuf.MethodOptions { string path = 50001; }
enum Level { LOW = 0; HIGH = 1; }
"""
OTHERS = {"shop/money.proto": MONEY, "opts.proto": OPTIONS}

VALID = {
    "empty": "",
    "proto3": """
        syntax = "proto3";  // a comment
        package shop.orders;
        /* another
           comment */
        import "shop/money.proto";
        import "google/protobuf/timestamp.proto";
        option java_package = "com.shop"; option java_multiple_files = true; option optimize_for = CODE_SIZE;
        message Order {
          message Line { string sku = 1; Money price = 2; shop.Money.Kind kind = 3; .shop.Money full = 4; }
          int64 id = 1;
          optional string note = 2;
          repeated Line lines = 3;
          map<string, Line> by_sku = 4;
          oneof payment { Money cash = 5; string card_number = 6; }
          google.protobuf.Timestamp created_at = 7;
          repeated sint32 packed_by_default = 8;
          repeated fixed64 not_packed = 9 [packed = false];
          string with_json_name = 10 [json_name = "odd", deprecated = true];
          Status status = 0x0b;
          optional Status last_status = 014;
          reserved 100, 200 to 300, 1000 to max;
          reserved "old", "older";
          enum Status { option allow_alias = true; UNKNOWN = 0; OPEN = 1; STARTED = 1; CLOSED = -2; reserved 5 to 9; }
        }
        service Orders {
          rpc Get (Order) returns (Order.Line);
          rpc Watch (stream Order) returns (stream .shop.orders.Order) { option deprecated = true; }
        }
        """,
    "proto2": """
        package old;
        message Everything {
          required int32 id = 1 [default = -0x10];
          optional uint64 big = 2 [default = 18446744073709551615];
          optional string text = 3 [default = "tab\\t quote\\" \\303\\251 " 'and more'];
          optional bytes raw = 4 [default = "\\000\\xff\\n"];
          optional double ratio = 5 [default = -1.5e10];
          optional float infinite = 6 [default = inf];
          optional double nothing = 7 [default = nan];
          optional bool flag = 8 [default = true];
          optional Color color = 9 [default = GREEN];
          repeated group Result = 10 { required string url = 1; optional Everything inner = 2; }
          oneof choice { string a = 11; group Chosen = 12 { optional int32 x = 1; } }
          extensions 100 to 199, 500;
          extensions 1000 to max;
          extend Everything { optional string nested_extension = 100; }
          optional float third = 13 [default = 0.1];
          optional int64 small = 14 [default = -9223372036854775808];
          enum Color { RED = 1; GREEN = 2; }
          repeated int32 numbers = 15 [packed = true];
        }
        extend Everything { repeated Everything.Color colors = 500; }
        """,
    "options": """
        syntax = "proto3";
        package opts.user;
        import "opts.proto";
        import public "shop/money.proto";
        option (opts.owner) = "team" " a";
        message Secret {
          option (opts.rule) = { name: "all" levels: [1, 2] inner { name: 'in' ratio: -0.5 } raw: "\\001" };
          option (opts.tags) = "a"; option (.opts.tags) = "b";
          string password = 1 [
            (opts.check).name = "p", (opts.check).inner.levels = 7, (opts.secret) = true, (opts.level) = HIGH
          ];
          enum E { A = 0 [(opts.label) = "first"]; }
        }
        service S { rpc Call (Secret) returns (Secret) { option (opts.path) = "/call"; } }
        """,
    "scopes": """
        syntax = "proto3";
        package a.b;
        message Outer {
          message Inner {
            Inner again = 1; Outer outer = 2; b.Outer by_package = 3; a.b.Outer full = 4; .a.b.Outer dotted = 5;
          }
          Inner inner = 1;
          Outer.Inner named = 2;
          message message { int32 option = 1; }
          string message_free = 4;
        }
        """,
    "nested before maps": """
        syntax = "proto3";
        message M {
          message First {} map<string, First> m = 1; message Second {} map<int32, Second> n = 2; message Third {}
        }
        """,
    "edition": """
        edition = "2023";
        package e;
        option features.field_presence = IMPLICIT;
        message M {
          int32 a = 1; string b = 2 [features.field_presence = EXPLICIT]; reserved old, older; enum E { Z = 0; }
        }
        """,
    "optional that clashes": """
        syntax = "proto3"; message M { optional int32 a = 1; int32 _a = 2; optional int32 X_a = 3; }
        """,
}  # fmt: skip

INVALID = {
    "two of a number": 'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
    "two of a name": 'syntax = "proto3"; message M { int32 a = 1; int32 a = 2; }',
    "two messages": "message M {} message M {}",
    "no label": "message M { int32 a = 1; }",
    "required in proto3": 'syntax = "proto3"; message M { required int32 a = 1; }',
    "default in proto3": 'syntax = "proto3"; message M { int32 a = 1 [default = 1]; }',
    "group in proto3": 'syntax = "proto3"; message M { optional group G = 1 {} }',
    "number 0": 'syntax = "proto3"; message M { int32 a = 0; }',
    "number too large": 'syntax = "proto3"; message M { int32 a = 536870912; }',
    "number of protobuf": 'syntax = "proto3"; message M { int32 a = 19999; }',
    "reserved number": 'syntax = "proto3"; message M { reserved 1 to 5; int32 a = 3; }',
    "reserved name": 'syntax = "proto3"; message M { reserved "a"; int32 a = 3; }',
    "ranges overlap": "message M { reserved 1 to 5; extensions 5 to 9; }",
    "range backwards": "message M { reserved 5 to 1; }",
    "enum without zero": 'syntax = "proto3"; enum E { A = 1; }',
    "enum empty": "enum E {}",
    "enum alias": "enum E { A = 0; B = 0; }",
    "enum value out of range": "enum E { A = 2147483648; }",
    "unknown type": 'syntax = "proto3"; message M { Unknown u = 1; }',
    "type is a field": 'syntax = "proto3"; message M { int32 a = 1; a b = 2; }',
    "default of another type": "message M { optional int32 a = 1 [default = 1.5]; }",
    "default out of range": "message M { optional int32 a = 1 [default = 2147483648]; }",
    "default of an unknown value": "enum E { A = 0; } message M { optional E e = 1 [default = B]; }",
    "default of a message": "message M { optional M m = 1 [default = 1]; }",
    "default of repeated": "message M { repeated int32 m = 1 [default = 1]; }",
    "map with a float key": 'syntax = "proto3"; message M { map<float, int32> m = 1; }',
    "map with a message key": 'syntax = "proto3"; message M { map<M, int32> m = 1; }',
    "repeated map": 'syntax = "proto3"; message M { repeated map<int32, int32> m = 1; }',
    "map in a oneof": 'syntax = "proto3"; message M { oneof o { map<int32, int32> m = 1; } }',
    "repeated in a oneof": 'syntax = "proto3"; message M { oneof o { repeated int32 m = 1; } }',
    "empty oneof": 'syntax = "proto3"; message M { oneof o {} }',
    "import twice": 'import "shop/money.proto"; import "shop/money.proto";',
    "import unknown": 'import "nowhere.proto";',
    "package twice": "package a; package b;",
    "not imported": 'syntax = "proto3"; message M { shop.Money m = 1; }',
    "unknown option": "message M { option nothing = 1; }",
    "option of another type": "message M { option deprecated = 5; }",
    "extension not declared": "message M {} extend M { optional int32 a = 1; }",
    "extension out of range": "message M { extensions 5; } extend M { optional int32 a = 6; }",
    "syntax unknown": 'syntax = "proto5";',
    "syntax late": 'package a; syntax = "proto3";',
    "no semicolon": "message M { optional int32 a = 1 }",
    "no brace": "message M { optional int32 a = 1;",
    "string without an end": 'option java_package = "a;',
    "rpc of an enum": "enum E { A = 0; } service S { rpc R (E) returns (E); }",
    "json names clash": 'syntax = "proto3"; message M { int32 a_b = 1; int32 aB = 2; }',
    "thirty-three levels": "message A { " * 33 + "}" * 33,
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_a_text_has_the_descriptor_that_protoc_makes(name: str, tmp_path: Path) -> None:
    wanted = compiled(tmp_path, VALID[name], OTHERS)
    assert wanted is not None
    schema = parse(SchemaType.PROTOBUF, VALID[name], list(OTHERS.items()))
    assert isinstance(schema, ProtobufSchema)
    assert comparable(schema.file) == comparable(wanted)


@pytest.mark.parametrize("name", INVALID)
def test_what_protoc_refuses_is_refused(name: str, tmp_path: Path) -> None:
    assert compiled(tmp_path, INVALID[name], OTHERS) is None
    with pytest.raises(InvalidSchema):
        parse(SchemaType.PROTOBUF, INVALID[name], list(OTHERS.items()))


@pytest.mark.parametrize("name", VALID)
def test_text_and_descriptor_are_the_same_schema(name: str, tmp_path: Path) -> None:
    """Python's clients register descriptors and others ask for text, and the other way round."""
    references = list(OTHERS.items())
    schema = parse(SchemaType.PROTOBUF, VALID[name], references)
    registered = compiled(tmp_path, VALID[name], OTHERS)
    assert registered is not None
    encoded = base64.b64encode(registered.SerializeToString()).decode()
    from_descriptor = parse(SchemaType.PROTOBUF, encoded, references)
    assert from_descriptor.text == from_descriptor.canonical == schema.canonical
    again = parse(SchemaType.PROTOBUF, schema.canonical, references)
    assert again.serialized() == schema.serialized()
    assert parse(SchemaType.PROTOBUF, schema.serialized(), references).canonical == schema.canonical
    normalized = schema.normalized()
    assert isinstance(schema, ProtobufSchema)
    assert isinstance(normalized, ProtobufSchema)
    assert {name for name, _ in normalized.messages()} == {name for name, _ in schema.messages()}


def test_messages_keep_their_indexes_when_fields_are_sorted() -> None:
    members = "message A {} map<string, A> z = 9; message B {} map<string, B> y = 2; message C {}"
    text = f'syntax = "proto3"; message M {{ {members} }}'
    schema = parse(SchemaType.PROTOBUF, text)
    normalized = schema.normalized()
    assert isinstance(schema, ProtobufSchema)
    assert isinstance(normalized, ProtobufSchema)
    for name in ("M", "M.A", "M.B", "M.C"):
        assert normalized.message_indexes(name) == schema.message_indexes(name)
    assert schema.message_indexes("M.C") == (0, 4)


def test_the_same_schema_in_other_words() -> None:
    one = 'syntax="proto3"; package p; message M { M m = 1; string s = 2; } // c'
    two = 'syntax = "proto3";\npackage p;\nmessage M {\n  .p.M m = 1;\n  string s = 2;\n}\n'
    three = 'syntax = "proto3"; package p; message M { string s = 2; M m = 1; }'
    canonical = parse(SchemaType.PROTOBUF, one).canonical
    assert canonical == 'syntax = "proto3";\npackage p;\n\nmessage M {\n  M m = 1;\n  string s = 2;\n}\n'
    assert parse(SchemaType.PROTOBUF, two).canonical == canonical
    assert parse(SchemaType.PROTOBUF, three).canonical != canonical
    normal = parse(SchemaType.PROTOBUF, one).normalized().canonical
    assert parse(SchemaType.PROTOBUF, three).normalized().canonical == normal


def comparable(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """Names in JSON are optional in descriptors: protoc writes all of them, Python none that follows from the name."""
    result = pb.FileDescriptorProto()
    result.CopyFrom(file)
    waiting = list(result.message_type)
    fields = list(result.extension)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        first, *others = field.name.split("_")
        if field.json_name == first + "".join(part[:1].upper() + part[1:] for part in others):
            field.ClearField("json_name")
    return result
