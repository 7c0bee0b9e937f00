"""JSON that is validated against a JSON Schema when it is written and when it is read.

With a registry, values are framed with the id of the schema. They are read with the given schema or, if none is given,
with the one they were written with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

from penstock.serializers.base import Context, Serde, missing
from penstock.serializers.json import Json
from penstock.serializers.registered import Framing, RegistryArguments
from penstock.serializers.registry_client import Registered, RegistryClient, Schema
from penstock.serializers.registry_http import RegistryError

T = TypeVar("T")

JsonSchemaText = str | Mapping[str, Any]
_Check = Callable[[bytes], None]


class JsonSchema(Serde[T]):
    @overload
    def __init__(
        self: JsonSchema[Any], schema: JsonSchemaText | None = None, **registered: Unpack[RegistryArguments]
    ) -> None: ...
    @overload
    def __init__(
        self, schema: JsonSchemaText | None, type: type[T], **registered: Unpack[RegistryArguments]
    ) -> None: ...
    def __init__(
        self,
        schema: JsonSchemaText | None = None,
        type: type[T] | None = None,  # noqa: A002  # what it is
        **registered: Unpack[RegistryArguments],
    ) -> None:
        """`type` as for `Json`. A schema without `$schema` uses draft 2020-12."""
        try:
            import jsonschema  # noqa: F401  # said here, and not at the first value
        except ImportError as error:
            raise missing("jsonschema", "jsonschema", "JsonSchema") from error
        self._framing = Framing("JSON", registered) if "registry" in registered else None
        if self._framing is None and (schema is None or registered):
            raise TypeError("JsonSchema takes a schema, or a registry")
        self.needs_context = self._framing is not None
        self._text: Schema | None = None
        self._title: str | None = None
        self._own: _Check | None = None
        if schema is not None:
            parsed = json.loads(schema) if isinstance(schema, str) else schema
            self._own = _checker(parsed, {})
            self._text = Schema(schema if isinstance(schema, str) else json.dumps(schema), "JSON")
            self._title = parsed.get("title") if isinstance(parsed, Mapping) else None
        self._typed: Json[T] = Json() if type is None else Json(type)
        self._places: dict[tuple[str, bool], Registered] = {}
        self._checks: dict[str | int, _Check] = {}

    def encode(self, value: T) -> bytes:
        if self._framing is not None or self._own is None:
            raise TypeError("with a registry, the subject depends on the topic: call serialize(value, context)")
        data = self._typed.encode(value)
        self._own(data)
        return data

    def decode(self, data: bytes) -> T:
        if self._framing is not None or self._own is None:
            return self.deserialize(data, Context("", False))
        self._own(data)
        return self._typed.decode(data)

    def serialize(self, value: T, context: Context, /) -> bytes | None:
        if self._framing is None or value is None:
            return super().serialize(value, context)
        place = self.prepare(context.topic, is_key=context.is_key)
        data = self._typed.encode(value)
        self._check_of(place)(data) if self._own is None or self._framing.use_latest else self._own(data)
        return self._framing.framed(data, place, context)

    def deserialize(self, data: bytes | None, context: Context, /) -> T:
        if self._framing is None or data is None:
            return super().deserialize(data, context)
        frame = self._framing.frame(data, context)
        try:
            (self._own or self._check_of(frame.written_with))(frame.body)
            return self._typed.decode(frame.body)
        except RegistryError:
            raise
        except Exception as error:
            raise ValueError(f"{self._framing.described(frame.written_with)}: {error}") from error

    def prepare(self, topic: str, *, is_key: bool = False) -> Registered:
        """Ask the registry now, and not for the first record: the schema of a topic's values."""
        if self._framing is None:
            raise TypeError("there is no registry to ask")
        place = None if self._framing.use_latest else self._places.get((topic, is_key))
        if place is None:
            place = self._framing.place(Context(topic, is_key), self._text, self._title)
            self._places[topic, is_key] = place
        return place

    def _check_of(self, place: Registered) -> _Check:
        assert self._framing is not None
        key = place.id or place.guid
        found = self._checks.get(key)
        if found is None:
            found = self._checks[key] = registered_check(self._framing.client, place.schema)
        return found


def registered_check(client: RegistryClient, schema: Schema) -> _Check:
    """Raises ValueError for JSON that is not valid for a registered schema."""
    referred = {name: json.loads(each.text) for name, each in client.references_of(schema)}
    return _checker(json.loads(schema.text), referred)


def _checker(schema: Any, referred: Mapping[str, Any]) -> _Check:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    registry: Any = Registry().with_resources(
        (name, DRAFT202012.create_resource(each)) for name, each in referred.items()
    )
    errors = kind(schema, registry=registry).iter_errors if referred else kind(schema).iter_errors
    plain: Json[Any] = Json()

    def check(data: bytes) -> None:
        for error in errors(plain.decode(data)):
            raise ValueError(f"{error.json_path}: {error.message:.200}")

    return check
