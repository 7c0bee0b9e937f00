"""Generates the published JSON Schema of pipeline files from the model; editors complete and check with it.

    # yaml-language-server: $schema=pipeline.schema.json

`python -m penstock.pipelines.spec.json_schema` writes it again; a test fails if it differs from the model. It is less
strict than the parser in one way: `${name}` may stand wherever a value is needed.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import types
import typing
from functools import cache
from typing import Any

from penstock.pipelines.spec import durations, model
from penstock.pipelines.spec.binding import fields_of
from penstock.pipelines.spec.durations import Duration
from penstock.pipelines.spec.secrets import Secret

FILE = os.path.join(os.path.dirname(__file__), "pipeline.schema.json")

_PARAMETER = {"type": "string", "pattern": r"\$\{[^}]+\}"}
_SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": ["string", "number", "boolean"]},
    Secret: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
}


def schema() -> dict[str, Any]:
    """The schema of a whole file."""
    definitions: dict[str, Any] = {}
    root = _class(model.Pipeline, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock pipeline",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def published() -> dict[str, Any]:
    with open(FILE, encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
        return read


@cache
def documentation(kind: Any) -> dict[str, str]:
    """The text under each field of a class, by the field's name in files."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    field = ""
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = model.FILE_NAMES.get(statement.target.id, statement.target.id)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and field:
            texts[field] = " ".join(str(statement.value.value).split())
            field = ""
    return texts


def _class(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    texts = documentation(kind)
    for name, (field, annotation) in fields_of(kind).items():
        made = _annotation(annotation, definitions)
        properties[name] = {**made, "description": texts[name]} if name in texts else made
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(name)
    if kind is model.Pipeline:
        short = {"type": ["string", "number", "boolean"], "description": "Short for its default."}
        properties["parameters"]["additionalProperties"] = {
            "anyOf": [properties["parameters"]["additionalProperties"], short]
        }
    made = {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "additionalProperties": False,
    }
    return {**made, "required": required} if required else made


def _annotation(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return {}
    if annotation is Duration:
        return {"anyOf": [{"type": "string", "pattern": durations.PATTERN}, _PARAMETER]}
    if annotation in _SCALARS:
        plain = _SCALARS[annotation]
        return plain if "string" in plain["type"] else {"anyOf": [plain, _PARAMETER]}
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        name = annotation.__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _class(annotation, definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin is typing.Literal:
        return {"anyOf": [{"enum": [each for each in arguments if each != ""]}, _PARAMETER]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _annotation(arguments[1], definitions)}
    if origin in (tuple, list):
        items = {"type": "array", "items": _annotation(arguments[0], definitions)}
        return {"anyOf": [items, _SCALARS[str]]} if arguments[0] is str else items
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, definitions)
    return _SCALARS[str]  # a function, which files reference by name


def _union(kinds: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    made: list[dict[str, Any]] = []
    for kind in kinds:
        each = _annotation(kind, definitions)
        for option in each.get("anyOf", [each]):
            if option not in made:
                made.append(option)
    return made[0] if len(made) == 1 else {"anyOf": made}


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(text())


if __name__ == "__main__":
    main()
