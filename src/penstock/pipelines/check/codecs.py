"""Avro and Protobuf codecs for Python tasks: bytes to rows and back, and their schemas as Spark types.

A codec is pickled into tasks as the text of its schema, which each process parses once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from penstock.pipelines.spec import registries, schemas
from penstock.pipelines.spec.model import Decoding, Encoding
from penstock.serializers.registered import PREFIX, write_indexes

_ERROR_CHARACTERS_MAX = 300

_AVRO = {
    "null": "void", "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "bytes": "binary", "string": "string", "fixed": "binary", "enum": "string",
}  # fmt: skip
_AVRO_LOGICAL = {
    "date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "uuid": "string",
    "local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz",
}  # fmt: skip


class Codec(Protocol):
    def spark_type(self) -> str:
        """A struct, as DDL."""

    def decode(self, data: bytes | None) -> tuple[Any, str | None]:
        """The row and no error, or no row and the error."""

    def encode(self, row: Any) -> bytes: ...


def codec(coding: Decoding | Encoding, directory: str) -> Codec:
    if coding.format == "avro":
        schemas.avro_schema(coding, directory)
        return AvroCodec(schemas.text(coding, directory))
    descriptor = schemas.protobuf_descriptor(coding, directory)
    return ProtobufCodec(_descriptor_set(descriptor), descriptor.full_name)


def writing_codec(coding: Encoding, directory: str) -> Codec:
    """The same for a sink: with a registry, the schema is registered, and each value starts with its id."""
    plain = codec(coding, directory)
    return Framed(plain, prefix(coding, directory)) if coding.registry else plain


def prefix(coding: Encoding, directory: str) -> bytes:
    """What every value of a sink starts with."""
    message = schemas.protobuf_descriptor(coding, directory) if coding.format == "protobuf" else None
    text = schemas.text(coding, directory) if coding.format == "avro" else ""
    schema_id, indexes = registries.place(coding, text, message)
    return PREFIX.pack(0, schema_id) + (write_indexes(indexes) if indexes else b"")


@dataclass(frozen=True)
class Framed:
    """Values that start with a schema id. To read one, see `engine.registered`."""

    codec: Codec
    prefix: bytes

    def spark_type(self) -> str:
        return self.codec.spark_type()

    def decode(self, data: bytes | None) -> tuple[Any, str | None]:
        return self.codec.decode(data if data is None else data.removeprefix(self.prefix))

    def encode(self, row: Any) -> bytes:
        return self.prefix + self.codec.encode(row)


@dataclass(frozen=True)
class AvroCodec:
    schema: str

    def spark_type(self) -> str:
        return _avro_type(_avro(self.schema), {})

    def decode(self, data: bytes | None) -> tuple[Any, str | None]:
        import fastavro

        if data is None:
            return None, None
        body = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(body, _avro(self.schema), None)
        except Exception as error:  # noqa: BLE001  # a codec fails in many ways, and each is a record's own
            return None, _error_text("Avro", error)
        if body.tell() != len(data):
            return None, f"not Avro of the schema: {len(data) - body.tell()} bytes are left over"
        return value, None

    def encode(self, row: Any) -> bytes:
        import fastavro

        body = io.BytesIO()
        fastavro.schemaless_writer(body, _avro(self.schema), row.asDict(recursive=True))
        return body.getvalue()


@dataclass(frozen=True)
class ProtobufCodec:
    descriptors: bytes
    message: str

    def spark_type(self) -> str:
        return _protobuf_type(_message_class(self.descriptors, self.message).DESCRIPTOR)

    def decode(self, data: bytes | None) -> tuple[Any, str | None]:
        from google.protobuf.message import DecodeError

        if data is None:
            return None, None
        try:
            return _row(_message_class(self.descriptors, self.message).FromString(data)), None
        except DecodeError as error:
            return None, _error_text("Protobuf", error)

    def encode(self, row: Any) -> bytes:
        message = _message_class(self.descriptors, self.message)()
        _fill(message, row.asDict(recursive=True))
        data: bytes = message.SerializeToString()
        return data


def _error_text(kind: str, error: Exception) -> str:
    return f"not {kind} of the schema: {type(error).__name__} {error}"[:_ERROR_CHARACTERS_MAX]


# -- Avro


@cache
def _avro(schema: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _avro_type(schema: Any, named: dict[str, Any]) -> str:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise schemas.SchemaInvalid("a union of several types is no column; only [null, type] is", "schema")
        return _avro_type(others[0], named)
    if isinstance(schema, str):
        return _AVRO[schema] if schema in _AVRO else _avro_type(named[schema], named)
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _avro_type(kind, named)
    if "name" in schema:
        named[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[logical]
    if kind == "record":
        fields = (f"`{each['name']}`:{_avro_type(each['type'], named)}" for each in schema["fields"])
        return f"struct<{','.join(fields)}>"
    if kind == "array":
        return f"array<{_avro_type(schema['items'], named)}>"
    if kind == "map":
        return f"map<string,{_avro_type(schema['values'], named)}>"
    return _AVRO[kind] if kind in _AVRO else _avro_type(named[kind], named)


# -- Protobuf


def _descriptor_set(descriptor: Any) -> bytes:
    """The file of a message and all files it imports."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for imported in file.dependencies:
                add(imported)
            file.CopyToProto(files.file.add())

    add(descriptor.file)
    data: bytes = files.SerializeToString()
    return data


@cache
def _message_class(descriptors: bytes, name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _protobuf_type(descriptor: Any, above: tuple[str, ...] = ()) -> str:
    if descriptor.full_name in above:
        raise schemas.SchemaInvalid(f'message "{descriptor.full_name}" contains itself, which no column can', "message")
    fields = (f"`{each.name}`:{_field_type(each, (*above, descriptor.full_name))}" for each in descriptor.fields)
    return f"struct<{','.join(fields)}>"


def _field_type(field: Any, above: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{_single_type(key, above)},{_single_type(value, above)}>"
    single = _single_type(field, above)
    return f"array<{single}>" if field.is_repeated else single


def _single_type(field: Any, above: tuple[str, ...]) -> str:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return _protobuf_type(field.message_type, above)
    if field.type == field.TYPE_BYTES:
        return "binary"
    return {
        field.CPPTYPE_INT32: "int",
        field.CPPTYPE_INT64: "bigint",
        field.CPPTYPE_UINT32: "bigint",
        field.CPPTYPE_UINT64: "decimal(20,0)",
        field.CPPTYPE_DOUBLE: "double",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_BOOL: "boolean",
        field.CPPTYPE_ENUM: "string",
        field.CPPTYPE_STRING: "string",
    }[field.cpp_type]


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        return {key: _single(each, value) for key, each in getattr(message, field.name).items()}
    if field.is_repeated:
        return [_single(each, field) for each in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(getattr(message, field.name), field)


def _single(value: Any, field: Any) -> Any:
    from decimal import Decimal

    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return _row(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return Decimal(value) if field.cpp_type == field.CPPTYPE_UINT64 else value


def _fill(message: Any, row: Mapping[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if _is_map(field):
            kind = field.message_type.fields_by_name["value"]
            for key, each in value.items():
                if kind.cpp_type == kind.CPPTYPE_MESSAGE:
                    _fill(getattr(message, field.name)[key], each)
                else:
                    getattr(message, field.name)[key] = _scalar(each, kind)
        elif field.is_repeated:
            for each in value:
                if field.cpp_type == field.CPPTYPE_MESSAGE:
                    _fill(getattr(message, field.name).add(), each)
                else:
                    getattr(message, field.name).append(_scalar(each, field))
        elif field.cpp_type == field.CPPTYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
            _fill(getattr(message, field.name), value)
        else:
            setattr(message, field.name, _scalar(value, field))


def _scalar(value: Any, field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM:
        named = field.enum_type.values_by_name.get(str(value))
        return named.number if named is not None else int(value)
    if field.cpp_type in (field.CPPTYPE_UINT64, field.CPPTYPE_INT64):
        return int(value)
    return bytes(value) if field.type == field.TYPE_BYTES else value
