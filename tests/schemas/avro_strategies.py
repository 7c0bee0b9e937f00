"""Pairs of Avro schemas, the second a change of the first, and values that together use all of a schema."""

from __future__ import annotations

import copy
import struct
from typing import Any

from hypothesis import strategies as st

Schema = Any

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_DEFAULTS: dict[str, object] = {
    "null": None, "boolean": True, "int": 1, "long": 2, "float": 0.5, "double": 0.25, "bytes": "b", "string": "s",
}  # fmt: skip


class Counter:
    def __init__(self) -> None:
        self.next = 0

    def name(self) -> str:
        self.next += 1
        return f"T{self.next}"


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Schema:
    return _schema(draw, Counter(), depth, in_union=False)


def _schema(draw: st.DrawFn, names: Counter, depth: int, *, in_union: bool) -> Schema:
    kinds = ["primitive", "primitive", "enum", "fixed"]
    if depth:
        kinds += ["record", "record", "record", "array", "map"]
        if not in_union:
            kinds.append("union")
    match draw(st.sampled_from(kinds)):
        case "enum":
            return {"type": "enum", "name": names.name(), "symbols": draw(_symbols())}
        case "fixed":
            return {"type": "fixed", "name": names.name(), "size": draw(st.integers(1, 3))}
        case "array":
            return {"type": "array", "items": _schema(draw, names, depth - 1, in_union=False)}
        case "map":
            return {"type": "map", "values": _schema(draw, names, depth - 1, in_union=False)}
        case "union":
            return _union(draw, names, depth)
        case "record":
            return _record(draw, names, depth)
    return draw(st.sampled_from(PRIMITIVES))


def _symbols() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=4, unique=True)


def _union(draw: st.DrawFn, names: Counter, depth: int) -> Schema:
    branches: dict[str, Schema] = {}
    for _ in range(draw(st.integers(1, 3))):
        branch = _schema(draw, names, depth - 1, in_union=True)
        kind = branch if isinstance(branch, str) else branch["type"]
        branches.setdefault(kind, branch)
    return list(branches.values())


def _record(draw: st.DrawFn, names: Counter, depth: int) -> Schema:
    record: Schema = {"type": "record", "name": names.name(), "fields": []}
    for index in range(draw(st.integers(0, 3))):
        kind = draw(st.integers(0, 9))
        # Now and then a list of itself: recursive, and a value of it has an end.
        schema = (
            {"type": "array", "items": record["name"]} if kind == 0 else _schema(draw, names, depth - 1, in_union=False)
        )
        record["fields"].append(_with_default(draw, {"name": f"f{index}", "type": schema}))
    return record


def _with_default(draw: st.DrawFn, field: Schema) -> Schema:
    kind = field["type"]
    if draw(st.booleans()):
        if isinstance(kind, str) and kind in _DEFAULTS:
            field["default"] = _DEFAULTS[kind]
        elif isinstance(kind, dict) and kind["type"] == "array":
            field["default"] = []
        elif isinstance(kind, dict) and kind["type"] == "enum":
            field["default"] = kind["symbols"][0]
    return field


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Schema, Schema]:
    """A writer's schema and a reader's: the same with a few changes, of which some are compatible and some are not."""
    writer = draw(schemas())
    reader = copy.deepcopy(writer)
    for _ in range(draw(st.integers(0, 3))):
        reader = _change(draw, reader)
    return (writer, reader) if draw(st.booleans()) else (reader, writer)


def _change(draw: st.DrawFn, schema: Schema) -> Schema:
    """One change, somewhere in the schema."""
    names = Counter()
    names.next = 100 + draw(st.integers(0, 10**6)) * 10
    match schema:
        case str():
            return draw(st.sampled_from([*PRIMITIVES, ["null", schema] if schema != "null" else ["null"]]))
        case list():
            if draw(st.booleans()) and len(schema) > 1:
                return draw(st.permutations(schema))[1:]
            index = draw(st.integers(0, len(schema) - 1))
            changed = _change(draw, schema[index])
            return (
                schema
                if isinstance(changed, list) or _clashes(changed, schema, index)
                else _put(schema, index, changed)
            )
    if draw(st.integers(0, 7)) == 0:
        return _schema(draw, names, 1, in_union=False)
    match schema["type"]:
        case "array":
            return schema | {"items": _change(draw, schema["items"])}
        case "map":
            return schema | {"values": _change(draw, schema["values"])}
        case "fixed":
            return draw(st.sampled_from([schema | {"size": 4}, schema | {"name": "Other"}]))
        case "enum":
            changed = {"type": "enum", "name": schema["name"], "symbols": draw(_symbols())}
            return changed | ({"default": changed["symbols"][0]} if draw(st.booleans()) else {})
        case "record":
            return _change_record(draw, schema, names)
    return schema


def _change_record(draw: st.DrawFn, schema: Schema, names: Counter) -> Schema:
    fields = list(schema["fields"])
    match draw(st.sampled_from(["add", "remove", "change", "change", "reorder", "alias", "rename"])):
        case "add":
            added = {"name": f"n{len(fields)}", "type": _schema(draw, names, 1, in_union=False)}
            fields.append(_with_default(draw, added))
        case "remove" if fields:
            fields.pop(draw(st.integers(0, len(fields) - 1)))
        case "change" if fields:
            index = draw(st.integers(0, len(fields) - 1))
            field = {key: value for key, value in fields[index].items() if key != "default"}
            fields[index] = _with_default(draw, field | {"type": _change(draw, field["type"])})
        case "reorder" if fields:
            fields = draw(st.permutations(fields))
        case "alias" if fields:
            index = draw(st.integers(0, len(fields) - 1))
            old = fields[index]["name"]
            fields[index] = fields[index] | {"name": f"renamed{index}", "aliases": [old]}
        case "rename" if "itself" not in schema and not _uses(schema, schema["name"]):
            new = {"name": f"{schema['name']}b"}
            return schema | new | ({"aliases": [schema["name"]]} if draw(st.booleans()) else {})
    return schema | {"fields": fields}


def _uses(schema: Schema, name: str) -> bool:
    return any(f["type"] == {"type": "array", "items": name} for f in schema["fields"])


def _clashes(changed: Schema, branches: list[Schema], index: int) -> bool:
    kinds = [branch if isinstance(branch, str) else branch["type"] for branch in branches]
    kind = changed if isinstance(changed, str) else changed["type"]
    return kind in kinds[:index] + kinds[index + 1 :]


def _put(branches: list[Schema], index: int, branch: Schema) -> list[Schema]:
    return [*branches[:index], branch, *branches[index + 1 :]]


def _integer(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


_ENCODED: dict[str, list[bytes]] = {
    "null": [b""],
    "boolean": [b"\x01"],
    "int": [_integer(7), _integer(-(2**31))],
    "long": [_integer(2**40)],
    "float": [struct.pack("<f", 0.5)],
    "double": [struct.pack("<d", 2.5)],
    "bytes": [_integer(2) + b"ab"],
    "string": [_integer(2) + b"ab"],
}


def covering(schema: Schema, known: dict[str, Schema] | None = None, depth: int = 6) -> list[bytes]:
    """Encoded values that together use every branch, symbol and field of the schema."""
    known = {} if known is None else known
    if isinstance(schema, str) and schema not in known:
        return _ENCODED[schema]
    if isinstance(schema, str):
        schema = known[schema]
    if isinstance(schema, list):
        return [_integer(i) + value for i, branch in enumerate(schema) for value in covering(branch, known, depth)]
    if "name" in schema:
        known[schema["name"]] = schema
    match schema["type"]:
        case "enum":
            return [_integer(index) for index in range(len(schema["symbols"]))]
        case "fixed":
            return [b"x" * schema["size"]]
        case "array":
            values = covering(schema["items"], known, depth - 1) if depth > 0 else []
            return [(_integer(len(values)) + b"".join(values) if values else b"") + b"\0"]
        case "map":
            values = covering(schema["values"], known, depth - 1)
            return [_integer(len(values)) + b"".join(_integer(1) + b"k" + value for value in values) + b"\0"]
    columns = [covering(field["type"], known, depth - 1) for field in schema["fields"]]
    rows = max((len(values) for values in columns), default=1)
    return [b"".join(values[row % len(values)] for values in columns) for row in range(rows)]
