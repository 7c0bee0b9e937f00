"""Schemas from strangers: anything that is not a schema is refused with `InvalidSchema`, and soon."""

from __future__ import annotations

import base64
import json
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.schemas import InvalidSchema, ParsedSchema, SchemaType, incompatibilities, parse
from penstock.schemas.model import MAX_SCHEMA_BYTES
from property_examples import examples

FUZZ = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = list(SchemaType)


def parsed(schema_type: SchemaType, text: str) -> ParsedSchema | None:
    """Whatever the text is, the schema or None; all that can be asked of a schema has an answer."""
    try:
        schema = parse(schema_type, text)
    except InvalidSchema as error:
        assert str(error)
        assert len(str(error)) < 2000
        return None
    assert parse(schema_type, schema.canonical).canonical == schema.canonical
    assert schema.normalized().normalized().canonical == schema.normalized().canonical
    assert parse(schema_type, schema.serialized()).canonical == schema.canonical
    assert incompatibilities(schema, schema) == []
    return schema


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


DEEP = {
    SchemaType.AVRO: nested('{"type":"array","items":', '"int"', "}", 1000),
    SchemaType.JSON: nested('{"type":"array","items":', "{}", "}", 1000),
    SchemaType.PROTOBUF: nested("message A {", "", "}", 1000),
}
DEEPEST = {
    SchemaType.AVRO: nested("[", "", "]", 400_000),
    SchemaType.JSON: nested('{"not":', "{}", "}", 90_000),
    SchemaType.PROTOBUF: "message A { option (a) = " + nested("{ a: ", "1", "}", 100_000) + "; }",
}
LARGE = {
    SchemaType.AVRO: json.dumps({"type": "enum", "name": "E", "symbols": [f"S{index}" for index in range(1_000_000)]}),
    SchemaType.JSON: json.dumps({"enum": ["x" * 100] * 100_000}),
    SchemaType.PROTOBUF: "message M {" + "optional int32 a = 1;" * 500_000 + "}",
}


@pytest.mark.parametrize("schema_type", TYPES)
def test_a_schema_of_ten_megabytes_or_a_thousand_levels_is_refused(schema_type: SchemaType) -> None:
    assert len(LARGE[schema_type]) > 10_000_000
    with pytest.raises(InvalidSchema, match=f"larger than {MAX_SCHEMA_BYTES} bytes"):
        parse(schema_type, LARGE[schema_type])
    for text in (DEEP[schema_type], DEEPEST[schema_type]):
        with pytest.raises(InvalidSchema, match="nested deeper than"):
            parse(schema_type, text)
    with pytest.raises(InvalidSchema, match="more than 1000 schemas"):
        parse(schema_type, "", [(f"r{index}", "") for index in range(1001)])


@pytest.mark.parametrize(
    ("schema_type", "text", "why"),
    [
        (SchemaType.AVRO, "", "not JSON"),
        (SchemaType.AVRO, "string", "not JSON"),
        (SchemaType.AVRO, "NaN", "not JSON"),
        (SchemaType.AVRO, "1e999", "neither a name"),
        (SchemaType.AVRO, "9" * 5000, "not JSON"),
        (SchemaType.AVRO, '"Unknown"', "no type 'Unknown'"),
        (SchemaType.AVRO, '{"type":"thing"}', "no type 'thing'"),
        (SchemaType.AVRO, '{"type":{"type":"int"}}', "is not a name"),
        (SchemaType.AVRO, '{"type":"record","name":"R"}', "'fields' is missing"),
        (SchemaType.AVRO, '{"type":"record","name":"R","fields":{}}', "/fields: not a list"),
        (SchemaType.AVRO, '{"type":"record","name":"R","fields":[1]}', "/fields/0: 1 is not an object"),
        (SchemaType.AVRO, '{"type":"record","name":"a b","fields":[]}', "'a b' is not an Avro name"),
        (SchemaType.AVRO, '{"type":"record","name":"int","fields":[]}', "'int' is defined already"),
        (SchemaType.AVRO, '["int","int"]', "int twice"),
        (SchemaType.AVRO, '["int",["string"]]', "a union in a union"),
        (SchemaType.AVRO, '{"type":"fixed","name":"F","size":-1}', "not a number of bytes"),
        (SchemaType.AVRO, '{"type":"enum","name":"E","symbols":["A","A"]}', "twice"),
        (SchemaType.AVRO, '{"type":"string","x":"\\ud800"}', "UTF-8"),
        (
            SchemaType.AVRO,
            '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":"1"}]}',
            "/fields/0/default: the default '1' does not fit",
        ),
        (
            SchemaType.AVRO,  # a default that is part of itself
            '{"type":"record","name":"R","fields":[{"name":"f","type":"R","default":{}}]}',
            "does not fit",
        ),
        (SchemaType.JSON, "[]", "an object or a boolean"),
        (SchemaType.JSON, '{"type":"thing"}', "no type 'thing'"),
        (SchemaType.JSON, '{"properties":[]}', "#/properties: .. is not an object"),
        (SchemaType.JSON, '{"properties":{"a":1}}', "#/properties/a: a schema is an object or a boolean"),
        (SchemaType.JSON, '{"allOf":{}}', "not a list of schemas"),
        (SchemaType.JSON, '{"required":"a"}', "not a list of strings"),
        (SchemaType.JSON, '{"maximum":"1"}', "not a number"),
        (SchemaType.JSON, '{"$ref":"#"}', "leads to itself"),
        (SchemaType.JSON, '{"$ref":"#/definitions/a"}', "leads nowhere"),
        (SchemaType.JSON, '{"$ref":"file:///etc/passwd"}', "leads to no schema"),
        (SchemaType.JSON, '{"$id":"http://a/","$ref":"http://["}', "not a URI"),
        (SchemaType.JSON, '{"$ref":"other.json"}', "leads to no schema"),
        (
            SchemaType.JSON,
            '{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/b"},"b":{"$ref":"#/definitions/a"}}}',
            "leads to itself",
        ),
        (SchemaType.PROTOBUF, "AAAA", "FileDescriptorProto|not a Protobuf"),
        (SchemaType.PROTOBUF, "A", "neither a .proto text nor base64"),
        (SchemaType.PROTOBUF, '{"type":"string"}', "line 1"),
        (SchemaType.PROTOBUF, 'import "/etc/passwd";', "'/etc/passwd' is not among the references"),
        (SchemaType.PROTOBUF, 'import "../secret.proto";', "is not among the references"),
        (SchemaType.PROTOBUF, 'syntax = "proto4";', "proto2 or proto3"),
        (SchemaType.PROTOBUF, "message M { optional Unknown a = 1; }", "Unknown"),
        (SchemaType.PROTOBUF, "message M { optional int32 a = 1; optional int32 b = 1; }", "the same number"),
        (SchemaType.PROTOBUF, "message M { optional int32 a = 19000; }", "19000 to 19999"),
        (SchemaType.PROTOBUF, "message M { optional int32 a = 0; }", "out of range"),
        (SchemaType.PROTOBUF, "message M { reserved 1; optional int32 a = 1; }", "reserved"),
        (SchemaType.PROTOBUF, "message M {", "found the end"),
        (SchemaType.PROTOBUF, "/* message", "not part of"),
        (SchemaType.PROTOBUF, "message M { option (unknown) = 1; }", "'unknown' is not defined"),
        (SchemaType.PROTOBUF, "message M { option unknown = 1; }", "an option that is not one"),
    ],
)
def test_refusals(schema_type: SchemaType, text: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        parse(schema_type, text)


def test_an_import_of_itself_or_of_a_later_file_is_not_found() -> None:
    with pytest.raises(InvalidSchema, match=r"'schema.proto' is not among the references"):
        parse(SchemaType.PROTOBUF, 'import "schema.proto";')
    first = ("a.proto", 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }')
    second = ("b.proto", 'syntax = "proto3"; import "a.proto"; message B { A a = 1; }')
    with pytest.raises(InvalidSchema, match=r"the reference a.proto: .*'b.proto' is not among the references"):
        parse(SchemaType.PROTOBUF, 'import "a.proto";', [first, second])


_BRACKETS = ["{", "}", "[", "]", ":", ",", "1", "null"]
WORDS = {
    SchemaType.AVRO: [
        *('"type"', '"record"', '"name"', '"fields"', '"enum"', '"symbols"', '"default"', '"null"', '"int"', '"R"'),
        *('"array"', '"items"', '"aliases"', '"logicalType"', "-1.5", '"\\ud800"', *_BRACKETS),
    ],
    SchemaType.JSON: [
        *('"type"', '"object"', '"properties"', '"$ref"', '"#"', '"#/a"', '"oneOf"', '"enum"', '"required"', '"$id"'),
        *('"items"', '"string"', "true", "1e400", *_BRACKETS),
    ],
    SchemaType.PROTOBUF: [
        *("message", "M", "{", "}", "int32", "a", "=", "1", ";", "optional", "repeated", "oneof", "map", "<", ">", ","),
        *("enum", "option", "(", ")", "[", "]", "default", "reserved", "to", "max", "extend", "group", "G", "import"),
        *("package", ".", "-", "service", "rpc", "returns", "syntax", '"proto3"', "0x1", "1e5", "inf", "json_name"),
        *("deprecated", "true", '"x"'),
    ],
}


@pytest.mark.parametrize("schema_type", TYPES)
@FUZZ
@given(data=st.data())
def test_words_in_any_order(schema_type: SchemaType, data: st.DataObject) -> None:
    parsed(schema_type, " ".join(data.draw(st.lists(st.sampled_from(WORDS[schema_type]), max_size=30))))


@pytest.mark.parametrize("schema_type", TYPES)
@FUZZ
@given(text=st.text(st.sampled_from(string.printable + "\0\ud800é")))
def test_any_text(schema_type: SchemaType, text: str) -> None:
    parsed(schema_type, text)


_KEYS = st.sampled_from(
    [
        *(
            "type",
            "name",
            "namespace",
            "fields",
            "items",
            "values",
            "symbols",
            "size",
            "default",
            "aliases",
            "order",
            "doc",
        ),
        *(
            "properties",
            "patternProperties",
            "additionalProperties",
            "required",
            "allOf",
            "oneOf",
            "not",
            "$ref",
            "$id",
        ),
        *(
            "enum",
            "const",
            "definitions",
            "prefixItems",
            "dependencies",
            "minimum",
            "exclusiveMaximum",
            "pattern",
            "if",
        ),
    ]
)
_ATOMS = st.sampled_from(
    [
        "record",
        "enum",
        "fixed",
        "array",
        "map",
        "int",
        "string",
        "object",
        "null",
        "number",
        "R",
        "#",
        "#/items",
        "^a",
        "a.b",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _ATOMS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("schema_type", [SchemaType.AVRO, SchemaType.JSON])
@FUZZ
@given(value=_JSON)
def test_any_json(schema_type: SchemaType, value: Any) -> None:
    parsed(schema_type, json.dumps(value))


@FUZZ
@given(data=st.binary(max_size=60))
def test_any_bytes_as_a_descriptor(data: bytes) -> None:
    parsed(SchemaType.PROTOBUF, base64.b64encode(data).decode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # every property is looked for by every pattern
        (
            {"properties": {f"p{index}": {} for index in range(2000)}},
            {"patternProperties": {f"^p{index}": {"type": "string"} for index in range(2000)}},
        ),
        # every part is compared with every part
        (
            {"allOf": [{"type": "string", "maxLength": index} for index in range(1000)]},
            {"allOf": [{"type": "string", "maxLength": index + 1} for index in range(1000)]},
        ),
    ],
)
def test_a_comparison_that_takes_too_long_is_given_up(old: object, new: object) -> None:
    reader, writer = parse(SchemaType.JSON, json.dumps(new)), parse(SchemaType.JSON, json.dumps(old))
    assert incompatibilities(reader, writer) == ["TOO_LARGE: the schemas cannot be compared in 1000000 steps"]
