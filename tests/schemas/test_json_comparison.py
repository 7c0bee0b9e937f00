"""JSON Schema: which changes are refused, and that a compatible schema accepts what the other one accepts."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock.schemas import Policy, SchemaType, incompatibilities, parse
from property_examples import examples

Schema = Any
PROPERTY = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
LATEST = "https://json-schema.org/draft/2020-12/schema"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def rules(old: Schema, new: Schema, policy: Policy = Policy.STRICT) -> list[str]:
    reader, writer = parse(SchemaType.JSON, json.dumps(new)), parse(SchemaType.JSON, json.dumps(old))
    return [message.partition(":")[0] for message in incompatibilities(reader, writer, policy)]


def thing(**keywords: Any) -> Schema:
    return {"type": "object", "properties": {"a": {"type": "string"}}, **keywords}


def having(properties: dict[str, Schema], **keywords: Any) -> Schema:
    return {"type": "object", "properties": {"a": {"type": "string"}, **properties}, **keywords}


B = {"b": {"type": "integer"}}
B_DEFAULT = {"b": {"type": "integer", "default": 1}}
CLOSED = {"additionalProperties": False}
NUMBERS = {"additionalProperties": {"type": "number"}}
STRINGS = {"additionalProperties": {"type": "string"}}
PATTERN = {"patternProperties": {"^b": {"type": "integer"}}, "additionalProperties": False}

CONTENT_MODELS = [
    # open: anything may have been there
    (thing(), having(B), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b"),
    (thing(), having({"b": {}}), ""),
    (thing(), having({"b": True}), ""),
    (thing(), having(B, required=["b"]), "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b"),
    (
        thing(),
        having(B_DEFAULT, required=["b"]),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b",
    ),
    (having(B), thing(), ""),
    (having(B, required=["b"]), thing(), ""),
    # closed: nothing else was there
    (thing(**CLOSED), having(B, **CLOSED), ""),
    (thing(**CLOSED), having(B_DEFAULT, required=["b"], **CLOSED), ""),
    (
        thing(**CLOSED),
        having(B, required=["b"], **CLOSED),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL at #/properties/b",
    ),
    (having(B, **CLOSED), thing(**CLOSED), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/b"),
    (having({"b": False}, **CLOSED), thing(**CLOSED), ""),
    (thing(**CLOSED), thing(), ""),
    (thing(), thing(**CLOSED), "ADDITIONAL_PROPERTIES_REMOVED at #/additionalProperties"),
    (thing(**CLOSED), thing(**STRINGS), ""),
    (thing(**STRINGS), thing(), ""),
    (thing(), thing(**STRINGS), "ADDITIONAL_PROPERTIES_NARROWED at #/additionalProperties"),
    (thing(**STRINGS), thing(**NUMBERS), "TYPE_CHANGED at #/additionalProperties"),
    # partially open: what is not named has a schema
    (having(B, **NUMBERS), thing(**NUMBERS), ""),
    (thing(**NUMBERS), having({"b": {"type": "number"}}, **NUMBERS), ""),
    (thing(**NUMBERS), having(B, **NUMBERS), "TYPE_NARROWED at #/properties/b"),
    (thing(**STRINGS), having(B, **STRINGS), "TYPE_CHANGED at #/properties/b"),
    (having(B, **STRINGS), thing(**STRINGS), "TYPE_CHANGED at #/properties/b"),
    (having(B, **PATTERN), thing(**PATTERN), ""),
    (thing(**PATTERN), having(B, **PATTERN), ""),
    (thing(**PATTERN), having({"c": {"type": "string"}}, **PATTERN), ""),
    (
        having({"c": {"type": "string"}}, **PATTERN),
        thing(**PATTERN),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/properties/c",
    ),
    (
        thing(),
        thing(patternProperties={"^b": {"type": "integer"}}),
        "PATTERN_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/patternProperties/^b",
    ),
    (thing(**CLOSED), thing(**PATTERN), ""),
    (thing(**PATTERN), thing(**CLOSED), "PATTERN_PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/patternProperties/^b"),
    # since 2019-09, what is unevaluated decides where additional properties are not mentioned
    (thing(unevaluatedProperties=False), having(B, unevaluatedProperties=False), ""),
    (thing(), thing(unevaluatedProperties=False), "UNEVALUATED_PROPERTIES_REMOVED at #/unevaluatedProperties"),
    (thing(unevaluatedProperties=False), thing(), ""),
    (
        thing(),
        thing(unevaluatedProperties={"type": "string"}),
        "UNEVALUATED_PROPERTIES_NARROWED at #/unevaluatedProperties",
    ),
]

OBJECTS = [
    (thing(), thing(required=["a"]), "REQUIRED_ATTRIBUTE_ADDED at #/required/a"),
    (thing(required=["a"]), thing(), ""),
    (thing(), {"type": "object", "properties": {"a": {"type": "string", "default": ""}}, "required": ["a"]}, ""),
    (thing(), thing(maxProperties=2), "MAX_PROPERTIES_ADDED at #/maxProperties"),
    (thing(maxProperties=2), thing(maxProperties=3), ""),
    (thing(minProperties=1), thing(minProperties=2), "MIN_PROPERTIES_INCREASED at #/minProperties"),
    (thing(), thing(dependencies={"a": ["b"]}), "DEPENDENCY_ARRAY_ADDED at #/dependencies/a"),
    (thing(dependencies={"a": ["b"]}), thing(), ""),
    (
        thing(dependentRequired={"a": ["b"]}),
        thing(dependentRequired={"a": ["b", "c"]}),
        "DEPENDENCY_ARRAY_EXTENDED at #/dependencies/a",
    ),
    (
        thing(dependencies={"a": ["b"]}),
        thing(dependentRequired={"a": ["c"]}),
        "DEPENDENCY_ARRAY_CHANGED at #/dependencies/a",
    ),
    (thing(), thing(dependentSchemas={"a": {"required": ["b"]}}), "DEPENDENCY_SCHEMA_ADDED at #/dependencies/a"),
    (thing(), thing(propertyNames={"maxLength": 3}), "PROPERTY_NAMES_ADDED at #/propertyNames"),
]

VALUES = [
    (True, {"type": "string"}, "TYPE_CHANGED at #"),
    ({"type": "string"}, True, ""),
    ({"type": "string"}, {}, ""),
    (False, {"type": "string"}, ""),
    ({"type": "string"}, False, "TYPE_CHANGED at #"),
    ({"type": "string"}, {"type": "integer"}, "TYPE_CHANGED at #"),
    ({"type": "integer"}, {"type": "number"}, ""),
    ({"type": "number"}, {"type": "integer"}, "TYPE_NARROWED at #"),
    ({"type": "string"}, {"type": ["string", "null"]}, ""),
    ({"type": ["string", "null"]}, {"type": "string"}, "TYPE_CHANGED at #"),
    ({"type": ["string", "null"]}, {"type": ["null", "string", "integer"]}, ""),
    ({"type": "string"}, {"type": "string", "maxLength": 5}, "MAX_LENGTH_ADDED at #/maxLength"),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, "MAX_LENGTH_DECREASED at #/maxLength"),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 6}, ""),
    ({"type": "string", "minLength": 5}, {"type": "string", "minLength": 6}, "MIN_LENGTH_INCREASED at #/minLength"),
    ({"type": "string"}, {"type": "string", "pattern": "a"}, "PATTERN_ADDED at #/pattern"),
    ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, "PATTERN_CHANGED at #/pattern"),
    ({"type": "string", "pattern": "a"}, {"type": "string"}, ""),
    ({"type": "number", "maximum": 5}, {"type": "number", "maximum": 4.5}, "MAXIMUM_DECREASED at #/maximum"),
    ({"type": "number", "minimum": 5}, {"type": "number", "minimum": 4}, ""),
    (
        {"type": "number", "exclusiveMaximum": 5},
        {"type": "number", "exclusiveMaximum": 4},
        "EXCLUSIVE_MAXIMUM_DECREASED at #/exclusiveMaximum",
    ),
    (
        {"$schema": DRAFT_4, "type": "number", "maximum": 5},
        {"$schema": DRAFT_4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
        "EXCLUSIVE_MAXIMUM_ADDED at #/exclusiveMaximum",
    ),
    ({"type": "number", "multipleOf": 0.2}, {"type": "number", "multipleOf": 0.1}, ""),
    (
        {"type": "number", "multipleOf": 0.1},
        {"type": "number", "multipleOf": 0.3},
        "MULTIPLE_OF_EXPANDED at #/multipleOf",
    ),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}, "MULTIPLE_OF_CHANGED at #/multipleOf"),
    ({"enum": [1, "a"]}, {"enum": ["a", 1.0, 2]}, ""),
    ({"enum": [1, 2]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED at #/enum"),
    ({"enum": [1, 2]}, {"enum": [2, 3]}, "ENUM_ARRAY_CHANGED at #/enum"),
    ({"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, ""),
    ({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED at #/const"),
    ({"not": {"type": "integer"}}, {"not": {"type": "number"}}, "NOT_TYPE_EXTENDED at #/not"),
    ({"not": {"type": "number"}}, {"not": {"type": "integer"}}, ""),
    (
        {"if": {"type": "string"}, "then": {"maxLength": 3}},
        {"if": {"type": "string"}, "then": {"maxLength": 2}},
        "CONDITIONAL_CHANGED at #",
    ),
    ({"type": "string", "title": "A", "description": "d"}, {"type": "string", "title": "B", "default": "x"}, ""),
    ({"type": "object", "connect.type": "bytes"}, {"type": "string", "connect.type": "bytes"}, ""),
]

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
COMBINATIONS = [
    (STRING, {"oneOf": [STRING, INTEGER]}, ""),
    (STRING, {"anyOf": [INTEGER, STRING]}, ""),
    (STRING, {"allOf": [STRING, INTEGER]}, "TYPE_CHANGED at #"),
    ({"oneOf": [STRING]}, STRING, ""),
    ({"allOf": [STRING, {"maxLength": 3}]}, STRING, ""),
    ({"oneOf": [STRING, INTEGER]}, STRING, "TYPE_CHANGED at #"),
    ({"oneOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, ""),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, ""),
    ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING]}, "SUM_TYPE_NARROWED at #/oneOf"),
    ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, NUMBER]}, ""),
    ({"anyOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER]}, "COMBINED_TYPE_CHANGED at #"),
    ({"anyOf": [STRING, NUMBER]}, {"anyOf": [STRING, INTEGER]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED at #"),
    ({"allOf": [STRING]}, {"allOf": [STRING, {"maxLength": 3}]}, "PRODUCT_TYPE_EXTENDED at #/allOf"),
    ({"allOf": [STRING, {"maxLength": 3}]}, {"allOf": [STRING]}, ""),
    # each part needs a counterpart of its own
    (
        {"oneOf": [INTEGER, {"type": "integer", "maximum": 3}]},
        {"oneOf": [NUMBER, {"type": "boolean"}]},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED at #",
    ),
    # a part that is there twice counts once
    ({"anyOf": [STRING, STRING]}, {"anyOf": [STRING]}, ""),
    # a type with an enumeration says two things
    ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}, ""),
    (
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "enum": ["a"]},
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED at #",
    ),
]


def listing(**keywords: Any) -> Schema:
    return {"type": "array", **keywords}


ARRAYS = [
    (listing(items=INTEGER), listing(items=NUMBER), ""),
    (listing(items=NUMBER), listing(items=INTEGER), "TYPE_NARROWED at #/items"),
    (listing(), listing(items=INTEGER), "SCHEMA_ADDED at #/items"),
    (listing(items=INTEGER), listing(), ""),
    (listing(maxItems=3), listing(maxItems=2), "MAX_ITEMS_DECREASED at #/maxItems"),
    (listing(), listing(minItems=1), "MIN_ITEMS_ADDED at #/minItems"),
    (listing(), listing(uniqueItems=True), "UNIQUE_ITEMS_ADDED at #/uniqueItems"),
    (listing(uniqueItems=True), listing(), ""),
    (listing(items=[STRING]), listing(items=[STRING, INTEGER]), "ITEM_ADDED_TO_OPEN_CONTENT_MODEL at #/items/1"),
    (listing(items=[STRING, INTEGER]), listing(items=[STRING]), ""),
    (listing(items=[STRING], additionalItems=False), listing(items=[STRING, INTEGER], additionalItems=False), ""),
    (
        listing(items=[STRING, INTEGER], additionalItems=False),
        listing(items=[STRING], additionalItems=False),
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL at #/items/1",
    ),
    (listing(prefixItems=[STRING], items=False), listing(prefixItems=[STRING, INTEGER], items=False), ""),
    (
        listing(prefixItems=[STRING], items=NUMBER),
        listing(prefixItems=[STRING, INTEGER], items=NUMBER),
        "TYPE_NARROWED at #/items/1",
    ),
    (
        listing(items=[STRING]),
        listing(items=[STRING], additionalItems=False),
        "ADDITIONAL_ITEMS_REMOVED at #/additionalItems",
    ),
    (listing(), listing(contains=INTEGER), "CONTAINS_ADDED at #/contains"),
    (
        listing(contains=INTEGER, maxContains=3),
        listing(contains=INTEGER, maxContains=2),
        "MAX_CONTAINS_DECREASED at #/maxContains",
    ),
]


@pytest.mark.parametrize(("old", "new", "rule"), [*CONTENT_MODELS, *OBJECTS, *VALUES, *COMBINATIONS, *ARRAYS])
def test_rules(old: Schema, new: Schema, rule: str) -> None:
    found = rules(old, new)
    assert found[:1] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (thing(), having(B), ""),
        (thing(), having(B_DEFAULT, required=["b"]), ""),
        (thing(), having(B, required=["b"]), "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL at #/properties/b"),
        (having(B, **CLOSED), thing(**CLOSED), ""),
        (thing(), thing(**CLOSED), ""),
        (thing(), thing(**STRINGS), ""),
        ({"type": "string"}, {"type": "integer"}, "TYPE_CHANGED at #"),
    ],
)
def test_the_lenient_policy_lets_properties_come_and_go(old: Schema, new: Schema, rule: str) -> None:
    assert rules(old, new, Policy.LENIENT) == ([rule] if rule else [])


def test_references_within_and_between_schemas() -> None:
    money = json.dumps({"$id": "https://shop/money.json", "definitions": {"units": {"type": "integer"}}, **thing()})
    wider = json.dumps({"definitions": {"units": {"type": "number"}}})
    within = {"definitions": {"u": {"type": "integer"}}, "properties": {"a": {"$ref": "#/definitions/u"}}}
    anchored = {"$defs": {"u": {"$anchor": "u", "type": "number"}}, "properties": {"a": {"$ref": "#u"}}}
    by_name = {"properties": {"a": {"$ref": "money.json#/definitions/units"}}}
    by_id = {"$id": "https://shop/order.json", "properties": {"a": {"$ref": "money.json#/definitions/units"}}}
    direct = parse(SchemaType.JSON, json.dumps({"properties": {"a": {"type": "integer"}}}))
    schemas = [
        parse(SchemaType.JSON, json.dumps(within)),
        parse(SchemaType.JSON, json.dumps(by_name), [("money.json", money)]),
        parse(SchemaType.JSON, json.dumps(by_id), [("some name", money)]),
    ]
    for schema in schemas:
        assert incompatibilities(schema, direct) == incompatibilities(direct, schema) == []
    for schema in (
        parse(SchemaType.JSON, json.dumps(anchored)),
        parse(SchemaType.JSON, json.dumps(by_name), [("money.json", wider)]),
    ):
        assert incompatibilities(schema, direct) == []
        assert incompatibilities(direct, schema) == [
            "TYPE_NARROWED at #/properties/a: it was a number and is an integer"
        ]


def test_recursive_schemas() -> None:
    def tree(value: Schema) -> Schema:
        node = {"properties": {"value": value, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    assert rules(tree(INTEGER), tree(NUMBER)) == []
    assert rules(tree(NUMBER), tree(INTEGER)) == ["TYPE_NARROWED at #/properties/value"]
    chain = {f"d{i}": {"properties": {"next": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(1500)} | {"d1500": INTEGER}
    long = {"$ref": "#/$defs/d0", "$defs": chain}
    assert rules(long, long) == []
    assert rules(long, long | {"$defs": chain | {"d1500": STRING}})[0].startswith("TYPE_CHANGED")


def test_beside_a_ref_keywords_count_since_2019() -> None:
    def beside(draft: str) -> Schema:
        return {"$schema": draft, "$ref": "#/definitions/s", "maxLength": 3, "definitions": {"s": {"type": "string"}}}

    assert rules(STRING, beside(DRAFT_4)) == []
    assert rules(STRING, beside(LATEST)) != []


def test_texts_that_are_the_same_schema() -> None:
    one, two = '{"type": "object", "title": "T"}', '{"title":"T","type":"object"}'
    assert parse(SchemaType.JSON, one).canonical == '{"type":"object","title":"T"}'
    assert parse(SchemaType.JSON, one).normalized().canonical == parse(SchemaType.JSON, two).normalized().canonical
    assert parse(SchemaType.JSON, one).name == "T"


# What one schema accepts is accepted by another

NAMES = ["a", "b", "c"]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Schema:
    kinds = ["string", "integer", "number", "boolean", "null", "anything", "enum"]
    kinds += ["object", "object", "array", "anyOf"] if depth else []
    match draw(st.sampled_from(kinds)):
        case "anything":
            return {}
        case "enum":
            return {"enum": draw(st.lists(st.sampled_from([1, "x", None, True]), min_size=1, max_size=3))}
        case "string":
            limit = draw(st.sampled_from([{}, {"maxLength": 2}, {"maxLength": 3}, {"minLength": 1}]))
            return {"type": "string", **limit}
        case "integer" | "number" as kind:
            limit = draw(st.sampled_from([{}, {"maximum": 5}, {"maximum": 7}, {"exclusiveMaximum": 5}, {"minimum": 1}]))
            return {"type": kind, **limit}
        case "array":
            limit = draw(st.sampled_from([{}, {"maxItems": 2}, {"minItems": 1}]))
            return {"type": "array", "items": draw(schemas(depth - 1)), **limit}
        case "anyOf":
            return {"anyOf": draw(st.lists(schemas(depth - 1), min_size=1, max_size=3))}
        case "object":
            properties = draw(st.dictionaries(st.sampled_from(NAMES), schemas(depth - 1), max_size=2))
            for described in properties.values():
                if "type" in described and draw(st.integers(0, 4)) == 0:
                    described["default"] = instances(described)[0]
            required = [name for name in properties if draw(st.booleans())]
            additional: dict[str, Any] = draw(st.sampled_from([{}, {}, CLOSED, NUMBERS]))
            return {"type": "object", "properties": properties, "required": required, **additional}
        case kind:
            return {"type": kind}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Schema, Schema]:
    writer = draw(schemas())
    return writer, changed(draw, copy.deepcopy(writer)) if draw(st.integers(0, 5)) else draw(schemas())


def changed(draw: st.DrawFn, schema: Schema) -> Schema:
    if schema.get("type") == "object":
        properties = schema["properties"]
        name = draw(st.sampled_from(NAMES))
        match draw(st.sampled_from(["remove", "put", "change", "required", "content"])):
            case "remove":
                properties.pop(name, None)
                schema["required"] = [other for other in schema["required"] if other != name]
            case "put":
                properties[name] = draw(schemas(1))
            case "change" if name in properties:
                properties[name] = changed(draw, properties[name])
            case "required" if name in properties:
                schema["required"] = sorted({name} ^ set(schema["required"]))
            case _:
                schema.pop("additionalProperties", None)
                schema |= draw(st.sampled_from([{}, CLOSED, NUMBERS]))
        return schema
    if schema.get("type") == "array":
        return schema | {"items": changed(draw, schema["items"])}
    if "anyOf" in schema:
        return {"anyOf": draw(st.permutations([*schema["anyOf"], draw(schemas(1))]))[: draw(st.integers(1, 4))]}
    return draw(schemas(0))


ANYTHING: list[Any] = ["", "xxxx", 0, 6, 2.5, True, None, [], [1, "x"], {}, {"a": "x"}]


def instances(schema: Schema) -> list[Any]:
    """Records that the schema accepts, among them those at its limits."""
    if "anyOf" in schema:
        return [value for part in schema["anyOf"] for value in instances(part)]
    if "enum" in schema:
        return list(schema["enum"])
    match schema.get("type"):
        case None:
            return ANYTHING
        case "array":
            items = instances(schema["items"])
            candidates: list[Any] = [[], items[:1], items[:2], items[:3]]
        case "object":
            candidates = objects(schema)
        case "string":
            candidates = ["", "x", "xx", "xxx", "xxxxx"]
        case "integer" | "number":
            candidates = [-1, 0, 1, 4, 5, 6, 7, 8, 4.5, 6.5]
        case _:
            candidates = [True, None]
    return [value for value in candidates if accepts(schema, value)]


def objects(schema: Schema) -> list[Any]:
    full = {name: instances(described) for name, described in schema["properties"].items()}
    rest = [name for name in NAMES if name not in full]
    result: list[Any] = [{}]
    if all(full.values()):
        every = {name: values[0] for name, values in full.items()}
        result += [every, {name: every[name] for name in schema["required"]}]
        result += [every | {name: value} for name, values in full.items() for value in values]
        result += [every | {name: value} for name in rest for value in ANYTHING]
    return result


def accepts(schema: Schema, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def filled(schema: Schema, value: Any) -> Any:
    """A reader puts the default where a property is missing."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [filled(schema["items"], item) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    result = {name: filled(schema["properties"].get(name, {}), item) for name, item in value.items()}
    for name, described in schema["properties"].items():
        if name not in result and "default" in described:
            result[name] = described["default"]
    return result


@PROPERTY
@given(pairs())
def test_what_a_writer_accepts_a_compatible_reader_accepts(pair: tuple[Schema, Schema]) -> None:
    writer, reader = pair
    found = rules(writer, reader)
    event("compatible" if not found else found[0].split()[0])
    if found:
        return
    for value in instances(writer):
        assert accepts(reader, filled(reader, value)) or inside_any_of(reader), (value, reader)


def inside_any_of(schema: Schema) -> bool:
    """Which branch a default belongs to is not known before it is filled in."""
    return "anyOf" in json.dumps(schema) and "default" in json.dumps(schema)
