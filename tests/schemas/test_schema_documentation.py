"""The page on compatibility: its tables and examples are true."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from documentation import blocks_of
from penstock.schemas import ParsedSchema, SchemaType, incompatibilities, parse

PAGE = Path(__file__).parents[2] / "docs" / "schema-compatibility.md"
SECTIONS = {"Avro": SchemaType.AVRO, "Protobuf": SchemaType.PROTOBUF, "JSON Schema": SchemaType.JSON}


def rows() -> list[tuple[SchemaType, str, str, str, str, str]]:
    result = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        schema_type = SECTIONS.get(section.partition("\n")[0])
        if schema_type is not None:
            for line in section.splitlines():
                cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
                if line.startswith("|") and len(cells) == 5 and cells[0] not in {"change", "---"}:
                    change, before, after, backward, forward = cells
                    result.append((schema_type, change, before, after, backward, forward))
    return result


def schema(schema_type: SchemaType, cell: str) -> ParsedSchema:
    match schema_type:
        case SchemaType.AVRO:
            return parse(schema_type, f'{{"type": "record", "name": "R", "fields": [{cell}]}}')
        case SchemaType.PROTOBUF:
            return parse(schema_type, f'syntax = "proto3"; message M {{ {cell} }}')
        case SchemaType.JSON:
            return parse(schema_type, cell)


def verdict(reader: ParsedSchema, writer: ParsedSchema) -> str:
    found = incompatibilities(reader, writer)
    return found[0].split()[0] if found else "yes"


def test_every_format_has_a_table() -> None:
    assert {schema_type for schema_type, *_ in rows()} == set(SchemaType)
    assert len(rows()) > 40


@pytest.mark.parametrize(("schema_type", "change", "before", "after", "backward", "forward"), rows())
def test_the_tables_are_true(
    schema_type: SchemaType, change: str, before: str, after: str, backward: str, forward: str
) -> None:
    old, new = schema(schema_type, before), schema(schema_type, after)
    assert (verdict(new, old), verdict(old, new)) == (backward, forward), change


def test_the_program_prints_what_the_page_says() -> None:
    (_, program), (_, printed) = blocks_of(PAGE)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(program, str(PAGE), "exec"), {})
    assert output.getvalue() == printed


def test_every_rule_that_a_table_names_is_a_rule_of_the_sources() -> None:
    sources = Path(__file__).parents[2] / "src" / "penstock" / "schemas"
    code = "".join(path.read_text(encoding="utf-8") for path in sources.rglob("*.py"))
    for rule in re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGE.read_text(encoding="utf-8")):
        # Some names are put together: MAX_LENGTH and _DECREASED.
        stem = rule.rpartition("_")[0]
        assert rule in code or stem in code or rule.removeprefix("OPTIONAL_PROPERTY") in code, rule
