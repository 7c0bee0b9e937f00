"""Avro with a known schema: the body of one record, without a header.

A reader must know the schema that the record was written with. If it differs from the wanted schema, for example after
a change, pass both: Avro's schema resolution then fills in defaults and skips removed fields.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from penstock.serializers.base import Serde, missing
from penstock.serializers.structures import reader

T = TypeVar("T")

AvroSchema = str | Mapping[str, Any] | Sequence[Any]
"""A schema as text, or as the value that the text parses to."""


class Avro(Serde[T]):
    @overload
    def __init__(self: Avro[Any], schema: AvroSchema, *, written_with: AvroSchema | None = None) -> None: ...
    @overload
    def __init__(self, schema: AvroSchema, type: type[T], *, written_with: AvroSchema | None = None) -> None: ...
    def __init__(
        self,
        schema: AvroSchema,
        type: type[T] | None = None,  # noqa: A002  # what it is
        *,
        written_with: AvroSchema | None = None,
    ) -> None:
        """Values are dicts, or the dataclass `type`; `written_with`: the schema of the records that are read."""
        try:
            import fastavro
        except ImportError as error:
            raise missing("fastavro", "avro", "Avro") from error
        if type is not None and not dataclasses.is_dataclass(type):
            raise TypeError(f"Avro takes a dataclass, or no type for dicts, not {type!r}")
        self._write = fastavro.schemaless_writer
        self._read = fastavro.schemaless_reader
        self._schema = _parsed(fastavro, schema)
        self._writer_schema = self._schema if written_with is None else _parsed(fastavro, written_with)
        self._type = type
        self._build = reader(Any if type is None else type)

    def encode(self, value: T) -> bytes:
        datum: Any = value
        if self._type is not None:
            if not isinstance(value, self._type):
                raise TypeError(f"a {type(value).__name__} is not a {self._type.__name__}: {value!r:.80}")
            datum = dataclasses.asdict(value)  # type: ignore[call-overload]  # a dataclass, as the constructor saw
        body = io.BytesIO()
        self._write(body, self._schema, datum, strict=True)
        return body.getvalue()

    def decode(self, data: bytes) -> T:
        body = io.BytesIO(data)
        datum = self._read(body, self._writer_schema, self._schema)
        if body.tell() != len(data):
            raise ValueError(f"{len(data) - body.tell()} bytes are left over; was it written with another schema?")
        return self._build(datum)  # type: ignore[no-any-return]


def _parsed(fastavro: Any, schema: AvroSchema) -> Any:
    return fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
