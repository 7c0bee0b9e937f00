"""JSON that is validated against a JSON Schema when it is written and when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from penstock.serializers.base import Serde, missing
from penstock.serializers.json import Json

T = TypeVar("T")

Schema = str | Mapping[str, Any]


class JsonSchema(Serde[T]):
    @overload
    def __init__(self: JsonSchema[Any], schema: Schema) -> None: ...
    @overload
    def __init__(self, schema: Schema, type: type[T]) -> None: ...
    def __init__(self, schema: Schema, type: type[T] | None = None) -> None:  # noqa: A002  # what it is
        """`type` as for `Json`. A schema without `$schema` uses draft 2020-12."""
        try:
            from jsonschema import Draft202012Validator
            from jsonschema.validators import validator_for
        except ImportError as error:
            raise missing("jsonschema", "jsonschema", "JsonSchema") from error
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        validator = validator_for(parsed, default=Draft202012Validator)
        validator.check_schema(parsed)
        self._errors = validator(parsed).iter_errors
        self._plain: Json[Any] = Json()
        self._typed: Json[T] = Json() if type is None else Json(type)

    def encode(self, value: T) -> bytes:
        data = self._typed.encode(value)
        self._check(data)
        return data

    def decode(self, data: bytes) -> T:
        self._check(data)
        return self._typed.decode(data)

    def _check(self, data: bytes) -> None:
        for error in self._errors(self._plain.decode(data)):
            raise ValueError(f"{error.json_path}: {error.message:.200}")
