"""Avro schemas: what is one, and when two texts are the same."""

import json

import pytest

from penstock.schemas import InvalidSchema, SchemaType, parse


def canonical(schema: object, *references: tuple[str, str]) -> str:
    return parse(SchemaType.AVRO, json.dumps(schema, indent=2), references).canonical


def test_whitespace_and_the_order_of_attributes_do_not_matter_but_docs_and_defaults_do() -> None:
    field = {"default": 1, "name": "f", "type": {"type": "int"}, "doc": "how many", "unit": "kg"}
    record = {"fields": [field], "name": "n.R", "type": "record", "aliases": ["Old"]}
    assert canonical(record) == (
        '{"type":"record","name":"R","namespace":"n","fields":'
        '[{"name":"f","type":"int","doc":"how many","default":1,"unit":"kg"}],"aliases":["Old"]}'
    )
    assert canonical({"type": "string"}) == '"string"'


def test_a_reference_gives_names_and_stays_a_name() -> None:
    other = json.dumps({"type": "record", "name": "Money", "namespace": "n", "fields": [{"name": "a", "type": "long"}]})
    order = {"type": "record", "name": "Order", "namespace": "n", "fields": [{"name": "price", "type": "Money"}]}
    assert canonical(order, ("n.Money", other)) == (
        '{"type":"record","name":"Order","namespace":"n","fields":[{"name":"price","type":"Money"}]}'
    )
    with pytest.raises(InvalidSchema, match="/fields/0/type: there is no type 'Money'"):
        canonical(order)
