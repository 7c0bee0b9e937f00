"""Asks schema registries for the schemas of values.

A registry is asked once in a process for the latest version of a subject: checks and plans, which need it in many
places, agree, and a running query keeps its columns. A failure is remembered for some seconds, so that a check of a
pipeline does not wait for a dead registry many times.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any, Final

from penstock.client.registry import Registry
from penstock.pipelines.spec.model import Decoding, Encoding
from penstock.serializers.avro import parse_registered
from penstock.serializers.protobuf import indexes_of, registered_class, schema_of
from penstock.serializers.registry_client import Registered, Schema
from penstock.serializers.registry_http import RegistryError as RegistryError

TYPES: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
_FAILURE_S: Final = 10.0
_JSON_TYPES: Final = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_JSON_FORMATS: Final = {"date-time": "TIMESTAMP", "date": "DATE"}

Address = tuple[str, tuple[tuple[str, str], ...]]
"""A registry with its options, whose secrets are references: it may be pickled and shown."""

_latest: dict[tuple[Address, str], Registered] = {}
_failures: dict[tuple[Address, str], tuple[float, Exception]] = {}


def address_of(coding: Decoding | Encoding) -> Address:
    options = {name: str(value) for name, value in coding.registry_options.items()}
    return coding.registry, tuple(sorted(options.items()))


@cache
def client_at(address: Address) -> Registry:
    url, options = address
    return Registry(url, dict(options))


def latest(coding: Decoding | Encoding, *, newest: bool = False) -> Registered:
    """The subject's latest version when it was asked first; RegistryError or ClientError if there is none."""
    key = (address_of(coding), coding.subject)
    failed = _failures.get(key)
    if failed is not None and time.monotonic() - failed[0] < _FAILURE_S:
        raise failed[1]
    if newest or key not in _latest:
        try:
            found = client_at(key[0]).latest(coding.subject, max_age=0)
        except Exception as error:
            _failures[key] = time.monotonic(), error
            raise
        _latest[key] = found
    found = _latest[key]
    if found.schema.type != TYPES[coding.format]:
        raise ValueError(
            f"subject {coding.subject} version {found.version} is {found.schema.type}, not {coding.format}"
        )
    return found


def text(coding: Decoding | Encoding, *, newest: bool = False) -> str:
    """The latest schema as a pipeline's file would say it: Avro in one piece, JSON Schema as columns in DDL."""
    found = latest(coding, newest=newest)
    if coding.format == "json":
        return json_ddl(json.loads(found.schema.text))
    if found.schema.references:
        parsed = parse_registered(client_at(address_of(coding)), found.schema)
        return json.dumps(_inlined(parsed, parsed.get("__named_schemas", {}), set()))
    return found.schema.text


def descriptor(coding: Decoding | Encoding) -> Any:
    """Of the Protobuf message, the file's first one unless it is named; KeyError if there is none."""
    client = client_at(address_of(coding))
    first = registered_class(client, latest(coding).schema, (0,)).DESCRIPTOR
    if not coding.message:
        return first
    try:
        return first.file.pool.FindMessageTypeByName(coding.message)
    except KeyError:
        raise ValueError(f'subject {coding.subject} has no message "{coding.message}"') from None


def place(coding: Encoding, text: str, message: Any = None) -> tuple[int, tuple[int, ...]]:
    """The id that a sink's records carry, and the place of a Protobuf message. A schema of the file is registered."""
    indexes = indexes_of(message) if message is not None else ()
    if coding.format == "avro" and (coding.schema or coding.schema_file):
        return client_at(address_of(coding)).register(coding.subject, Schema(text)).id, indexes
    if coding.format == "protobuf" and coding.schema_file:
        client = client_at(address_of(coding))
        return client.register(coding.subject, schema_of(message.file, client.register)).id, indexes
    return latest(coding).id, indexes


def _inlined(schema: Any, named: dict[str, Any], seen: set[str]) -> Any:
    """With each named type in the place of its first use, so that the schema stands alone."""
    if isinstance(schema, list):
        return [_inlined(each, named, seen) for each in schema]
    if isinstance(schema, str):
        return _inlined(named[schema], named, seen) if schema in named and schema not in seen else schema
    if "name" in schema:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    made = {name: each for name, each in schema.items() if not name.startswith("__")}
    for name in ("items", "values", "type"):
        if isinstance(made.get(name), (dict, list)) or (name != "type" and name in made):
            made[name] = _inlined(made[name], named, seen)
    if "fields" in made:
        made["fields"] = [{**each, "type": _inlined(each["type"], named, seen)} for each in made["fields"]]
    return made


def json_ddl(schema: Any) -> str:
    """Columns for the properties of a JSON Schema; ValueError if it is not of an object."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict) or not schema["properties"]:
        raise ValueError('the JSON Schema is not of an object with properties; say "schema: id BIGINT, ..."')
    return ", ".join(f"`{name}` {_json_type(each, 0)}" for name, each in schema["properties"].items())


def _json_type(schema: Any, depth: int) -> str:
    """STRING, which takes any JSON as text, for everything that is not certain."""
    if not isinstance(schema, dict) or depth > 20:
        return "STRING"
    kinds = schema.get("type")
    names = [each for each in (kinds if isinstance(kinds, list) else [kinds]) if each != "null"]
    for name in ("anyOf", "oneOf"):
        others = [each for each in schema.get(name, ()) if each != {"type": "null"}]
        if not any(names) and len(others) == 1:
            return _json_type(others[0], depth + 1)
    kind = names[0] if len(names) == 1 else None
    if kind == "string":
        return _JSON_FORMATS.get(schema.get("format", ""), "STRING")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"ARRAY<{_json_type(schema['items'], depth + 1)}>"
    if kind == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
        inside = (f"`{name}`: {_json_type(each, depth + 1)}" for name, each in schema["properties"].items())
        return f"STRUCT<{', '.join(inside)}>"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"MAP<STRING, {_json_type(schema['additionalProperties'], depth + 1)}>"
    return _JSON_TYPES.get(str(kind), "STRING")
