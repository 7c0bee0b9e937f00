"""Avro: the body of one record with a known schema, or framed with the id of its schema in a registry.

A reader must know the schema that the record was written with. Without a registry it is the given schema, or
`written_with` if that differs, for example after a change. With a registry each record names it. Avro's schema
resolution then fills in defaults and skips removed fields.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, Unpack, overload

from penstock.serializers.base import Context, Serde, missing
from penstock.serializers.registered import Frame, Framing, RegistryArguments
from penstock.serializers.registry_client import Registered, RegistryClient, Schema
from penstock.serializers.structures import reader

T = TypeVar("T")

AvroSchema = str | Mapping[str, Any] | Sequence[Any]
"""A schema as text, or as the value that the text parses to."""


class Avro(Serde[T]):
    @overload
    def __init__(
        self: Avro[Any],
        schema: AvroSchema | None = None,
        *,
        written_with: AvroSchema | None = None,
        **registered: Unpack[RegistryArguments],
    ) -> None: ...
    @overload
    def __init__(
        self,
        schema: AvroSchema | None,
        type: type[T],
        *,
        written_with: AvroSchema | None = None,
        **registered: Unpack[RegistryArguments],
    ) -> None: ...
    def __init__(
        self,
        schema: AvroSchema | None = None,
        type: type[T] | None = None,  # noqa: A002  # what it is
        *,
        written_with: AvroSchema | None = None,
        **registered: Unpack[RegistryArguments],
    ) -> None:
        """Values are dicts, or the dataclass `type`.

        Without a registry, `written_with` is the schema of the records that are read. With one, a schema may be left
        out: values are then read as they were written, and written with the subject's latest version.
        """
        try:
            import fastavro
        except ImportError as error:
            raise missing("fastavro", "avro", "Avro") from error
        if type is not None and not dataclasses.is_dataclass(type):
            raise TypeError(f"Avro takes a dataclass, or no type for dicts, not {type!r}")
        self.framing: Final = Framing("AVRO", registered) if "registry" in registered else None
        if self.framing is None and (schema is None or registered):
            raise TypeError("Avro takes a schema, or a registry")
        if self.framing is not None and written_with is not None:
            raise TypeError("with a registry, each record says which schema it was written with")
        self.needs_context = self.framing is not None
        self._write = fastavro.schemaless_writer
        self._read = fastavro.schemaless_reader
        self.schema: Final[Any] = None if schema is None else _parsed(fastavro, schema)
        self._writer_schema = self.schema if written_with is None else _parsed(fastavro, written_with)
        self._text = None if schema is None else Schema(schema_text(schema))
        self._type = type
        self._build = reader(Any if type is None else type)
        self._places: dict[tuple[str, bool], tuple[Registered, Any]] = {}
        self._written: dict[str | int, Any] = {}

    def encode(self, value: T) -> bytes:
        if self.framing is not None:
            raise TypeError("with a registry, the subject depends on the topic: call serialize(value, context)")
        body = io.BytesIO()
        self._write(body, self.schema, self._datum(value), strict=True)
        return body.getvalue()

    def decode(self, data: bytes) -> T:
        if self.framing is not None:
            return self.deserialize(data, Context("", False))
        return self._value(data, self._writer_schema)

    def serialize(self, value: T, context: Context, /) -> bytes | None:
        if self.framing is None or value is None:
            return super().serialize(value, context)
        place, schema = self.prepare(context.topic, is_key=context.is_key)
        body = io.BytesIO()
        # A version that is newer than the program may have more fields, if these have defaults.
        self._write(body, schema, self._datum(value), strict_allow_default=True)
        return self.framing.framed(body.getvalue(), place, context)

    def deserialize(self, data: bytes | None, context: Context, /) -> T:
        if self.framing is None or data is None:
            return super().deserialize(data, context)
        frame = self.framing.frame(data, context)
        try:
            return self._value(frame.body, self._writer(frame))
        except Exception as error:
            origin = self.framing.described(frame.written_with)
            raise ValueError(f"{origin}: {type(error).__name__}: {error}") from error

    def prepare(self, topic: str, *, is_key: bool = False) -> tuple[Registered, Any]:
        """Ask the registry now, and not for the first record: the schema of a topic's values, and its parsed form."""
        if self.framing is None:
            raise TypeError("there is no registry to ask")
        found = None if self.framing.use_latest else self._places.get((topic, is_key))
        if found is None:
            place = self.framing.place(Context(topic, is_key), self._text, name_of(self.schema))
            own = self.schema is not None and not self.framing.use_latest
            found = place, self.schema if own else self._parsed_of(place)
            self._places[topic, is_key] = found
        return found

    def _datum(self, value: T) -> Any:
        if self._type is None:
            return value
        if not isinstance(value, self._type):
            raise TypeError(f"a {type(value).__name__} is not a {self._type.__name__}: {value!r:.80}")
        return dataclasses.asdict(value)  # type: ignore[call-overload]  # a dataclass, as the constructor saw

    def _value(self, data: bytes, written_with: Any) -> T:
        body = io.BytesIO(data)
        datum = self._read(body, written_with, self.schema)
        if body.tell() != len(data):
            raise ValueError(f"{len(data) - body.tell()} bytes are left over; was it written with another schema?")
        return self._build(datum)  # type: ignore[no-any-return]

    def _writer(self, frame: Frame) -> Any:
        return self._parsed_of(frame.written_with)

    def _parsed_of(self, place: Registered) -> Any:
        assert self.framing is not None
        key = place.id or place.guid
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = parse_registered(self.framing.client, place.schema)
        return found


def schema_text(schema: AvroSchema) -> str:
    """As Confluent's serializers register it: text stays as it is, but the name of a type becomes an object."""
    text = schema.strip() if isinstance(schema, str) else json.dumps(schema)
    return text if text[:1] in ("{", "[") else f'{{"type":{text}}}'


def name_of(parsed: Any) -> str | None:
    """The full name of a record, enum or fixed, or that of a primitive type; a union has none."""
    if isinstance(parsed, dict):
        return str(parsed.get("name") or parsed.get("type"))
    return parsed if isinstance(parsed, str) else None


def parse_registered(client: RegistryClient, schema: Schema) -> Any:
    """Parsed, with the schemas that it refers to."""
    import fastavro

    named: dict[str, Any] = {}
    for _, referred in client.references_of(schema):
        fastavro.parse_schema(json.loads(referred.text), named_schemas=named)
    return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)


def _parsed(fastavro: Any, schema: AvroSchema) -> Any:
    return fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
