"""Avro: the verdict on two schemas agrees with what readers do with bytes."""

from __future__ import annotations

import io
import json
from typing import Any, cast

import fastavro
import pytest
from hypothesis import HealthCheck, event, given, settings

from penstock.schemas import SchemaType, incompatibilities, parse
from property_examples import examples
from schemas.avro_strategies import covering, pairs

SLOW = settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def messages(reader: object, writer: object) -> list[str]:
    return incompatibilities(parse(SchemaType.AVRO, json.dumps(reader)), parse(SchemaType.AVRO, json.dumps(writer)))


def reads(reader: Any, writer: Any, data: bytes) -> bool:
    try:
        fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    except (fastavro.read.SchemaResolutionError, KeyError, ValueError, TypeError):
        return False
    return True


@SLOW
@given(pairs())
def test_a_reader_is_compatible_if_and_only_if_it_reads_all_that_was_written(pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    found = messages(reader, writer)
    read = [reads(reader, writer, data) for data in covering(writer)]
    event("compatible" if not found else found[0].split()[0])
    assert all(read) == (not found), found


def record(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_messages_name_the_rule_and_the_place_in_the_readers_schema() -> None:
    money = record("Money", field("units", "long"))
    writer = record("Order", field("id", "long"), field("price", ["null", money]))
    other = record("Money", field("units", "int"), field("currency", "string"))
    assert messages(record("Order", field("id", "string"), field("price", ["null", other])), writer) == [
        "TYPE_MISMATCH at /fields/0/type: string does not read long",
        "MISSING_UNION_BRANCH at /fields/1/type: no branch of the union reads record Money",
        "TYPE_MISMATCH at /fields/1/type/1/fields/0/type: int does not read long",
        "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1/type/1/fields/1: the field 'currency' has no default,"
        " and the writer Money has no such field",
    ]


@pytest.mark.parametrize(
    ("reader", "writer", "rule"),
    [
        ("long", "int", ""),
        ("float", "long", ""),
        ("double", "float", ""),
        ("string", "bytes", ""),
        ("bytes", "string", ""),
        ("int", "long", "TYPE_MISMATCH"),
        ("string", "int", "TYPE_MISMATCH"),
        # A logical type is what is below it.
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "int", "logicalType": "date"}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, {"type": "bytes"}, ""),
        (["null", "long"], "int", ""),
        (["null", "long"], ["int", "null"], ""),
        ("long", ["int", "long"], ""),
        ("long", ["int", "null"], "TYPE_MISMATCH"),
        (["null", "string"], "int", "MISSING_UNION_BRANCH"),
        (record("R", field("a", "int", default=1)), record("R"), ""),
        (record("R", field("a", ["null", "int"], default=None)), record("R"), ""),
        (record("R", field("a", "int")), record("R"), "READER_FIELD_MISSING_DEFAULT_VALUE"),
        (record("R"), record("R", field("a", "int")), ""),
        (record("R", field("b", "int", aliases=["a"])), record("R", field("a", "int")), ""),
        (
            record("R", field("b", "int", aliases=["a"])),
            record("R", field("a", "int"), field("b", "int")),
            "AMBIGUOUS_ALIASES",
        ),
        (record("n.New", aliases=["Old"]), record("n.Old"), ""),
        (record("n.New", aliases=["m.Old"]), record("n.Old"), "NAME_MISMATCH"),
        (record("n.New"), record("n.Old"), "NAME_MISMATCH"),
        (record("n.Same"), record("m.Same"), ""),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "MISSING_ENUM_SYMBOLS",
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "",
        ),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 5},
            "FIXED_SIZE_MISMATCH",
        ),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, ""),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "TYPE_MISMATCH"),
        ({"type": "error", "name": "R", "fields": []}, record("R"), ""),
    ],
)
def test_rules(reader: object, writer: object, rule: str) -> None:
    assert [message.split()[0] for message in messages(reader, writer)] == ([rule] if rule else [])


def test_a_verdict_does_not_rest_on_an_assumption_that_proved_wrong() -> None:
    """While the first branch is compared, `C` counts as compatible because the branch is; then the branch is not."""
    child = record("a.C", field("back", ["null", "a.W"]))
    writer = record("a.W", field("child", child), field("v", "int"))
    reader = [record("a.W", field("child", child), field("v", "string")), record("b.W", field("child", "a.C"))]
    assert messages(reader, writer)[0].startswith("MISSING_UNION_BRANCH")


def test_recursive_schemas() -> None:
    tree = record("Tree", field("children", {"type": "array", "items": "Tree"}), field("value", "int"))
    assert messages(tree, tree) == []
    wider = record("Tree", field("children", {"type": "array", "items": "Tree"}), field("value", "long"))
    assert messages(wider, tree) == []
    assert messages(tree, wider) == ["TYPE_MISMATCH at /fields/1/type: int does not read long"]


def test_a_chain_of_names_longer_than_pythons_stack() -> None:
    def chain(last: str) -> list[Any]:
        links = [record(f"R{index}", field("f", f"R{index - 1}" if index else last)) for index in range(1500)]
        return [*links]

    assert messages(chain("long"), chain("int")) == []
    assert messages(chain("int"), chain("long"))


def test_a_type_that_is_used_in_two_to_the_fortieth_places_is_reported_a_few_times() -> None:
    def doubling(last: str) -> dict[str, Any]:
        schema: Any = last
        for index in range(40):
            again = schema if isinstance(schema, str) else schema["name"]
            schema = record(f"R{index}", field("f", schema), field("g", again))
        return cast(dict[str, Any], schema)

    assert 1 <= len(messages(doubling("int"), doubling("long"))) <= 2
