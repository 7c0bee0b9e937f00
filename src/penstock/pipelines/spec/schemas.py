"""Reads the schemas of values: DDL for JSON, Avro schemas, descriptor sets of Protobuf; in the file or beside it."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from penstock.client.errors import ClientError
from penstock.pipelines.spec import registries, sql
from penstock.pipelines.spec.model import Decoding, Encoding, Source, TopicSource
from penstock.pipelines.spec.problems import nearest


class SchemaInvalid(ValueError):
    """`where`: the field with the error; `index`: the position in its text."""

    def __init__(self, message: str, where: str, index: int | None = None) -> None:
        super().__init__(message)
        self.where = where
        self.index = index


def columns_of(source: Source, directory: str) -> tuple[str, ...] | None:
    """Names of the columns of a source's values; None if only Spark knows them."""
    if isinstance(source, TopicSource):
        return columns_of_values(source.value, directory)
    return tuple(_ddl(source.schema, "schema")) if source.schema else None


def columns_of_values(coding: Decoding, directory: str) -> tuple[str, ...]:
    if coding.format in ("bytes", "string"):
        return ("value",)
    if coding.format == "json":
        return tuple(json_columns(coding, directory))
    if coding.format == "avro":
        return tuple(each["name"] for each in avro_schema(coding, directory)["fields"])
    return tuple(each.name for each in protobuf_descriptor(coding, directory).fields)


def types_of_values(coding: Decoding, directory: str) -> dict[str, str]:
    """The type of each column, in the terms of its format; only useful to detect changes."""
    if coding.format == "json":
        return sql.column_types(text(coding, directory))
    if coding.format == "avro":
        return {each["name"]: json.dumps(each["type"]) for each in avro_schema(coding, directory)["fields"]}
    if coding.format == "protobuf":
        fields = protobuf_descriptor(coding, directory).fields
        return {each.name: f"{'repeated ' * each.is_repeated}{each.type}" for each in fields}
    return {}


def json_columns(coding: Decoding, directory: str) -> dict[str, bool]:
    """Name of each column, and whether it may be NULL."""
    return _ddl(text(coding, directory), "schema" if coding.schema else "schema_file")


def text(coding: Decoding | Encoding, directory: str) -> str:
    if coding.schema and coding.schema_file:
        raise SchemaInvalid('"schema" and "schema_file" say the same; keep one', "schema_file")
    if coding.schema:
        return coding.schema
    if not coding.schema_file and coding.registry:
        return registered_text(coding)
    if not coding.schema_file:
        raise SchemaInvalid(f'{coding.format} needs a "schema", or a "schema_file" beside this file', "")
    return _file(coding, directory).decode("utf-8")


def avro_schema(coding: Decoding | Encoding, directory: str) -> dict[str, Any]:
    """Parsed, of a record."""
    where = "schema" if coding.schema else "schema_file" if coding.schema_file or not coding.registry else "subject"
    parsed = _avro(text(coding, directory), where)
    if parsed.get("type") != "record":
        raise SchemaInvalid("the schema must be of a record, so that its fields can be columns", where)
    return parsed


def registered_text(coding: Decoding | Encoding, *, newest: bool = False) -> str:
    """The schema of the subject's latest version, in the terms of its format: for json, columns as DDL.

    It is asked once, so that a query keeps its columns; `newest` asks again.
    """
    try:
        return registries.text(coding, newest=newest)
    except (registries.RegistryError, ClientError, ValueError) as error:
        where = "registry" if isinstance(error, registries.RegistryError) and not error.status else "subject"
        raise SchemaInvalid(str(error), where) from None


def registered_columns(coding: Decoding | Encoding) -> bool:
    """Whether the registry determines the columns."""
    return bool(coding.registry and not coding.schema and not coding.schema_file)


def protobuf_descriptor(coding: Decoding | Encoding, directory: str) -> Any:
    if registered_columns(coding):
        try:
            return registries.descriptor(coding)
        except (registries.RegistryError, ClientError, ValueError, KeyError) as error:
            raise SchemaInvalid(str(error), "subject") from None
    if coding.schema:
        raise SchemaInvalid('protobuf needs a "schema_file", made by protoc --descriptor_set_out', "schema")
    if not coding.schema_file or not coding.message:
        raise SchemaInvalid('protobuf needs "schema_file" (of protoc --descriptor_set_out) and "message"', "")
    return _message(_file(coding, directory), coding.message)


def check(coding: Decoding | Encoding, directory: str) -> None:
    """SchemaInvalid if it cannot be used."""
    if coding.format in ("bytes", "string", "json") and coding.message:
        raise SchemaInvalid('"message" is for protobuf', "message")
    _check_registry(coding)
    if isinstance(coding, Decoding):
        if coding.format in ("bytes", "string"):
            for name in ("schema", "schema_file"):
                if getattr(coding, name):
                    raise SchemaInvalid(f'{coding.format} has no schema; did you mean "format: json"?', name)
        columns_of_values(coding, directory)
    elif coding.format == "avro":
        avro_schema(coding, directory)
    elif coding.format == "protobuf":
        protobuf_descriptor(coding, directory)
    elif coding.registry:
        registered_text(coding)


def _check_registry(coding: Decoding | Encoding) -> None:
    if not coding.registry:
        for name in ("subject", "registry_options"):
            if getattr(coding, name):
                raise SchemaInvalid(f'"{name}" is for a registry; say "registry: http://..."', name)
    elif coding.format in ("bytes", "string"):
        raise SchemaInvalid(f"{coding.format} has no schema; a registry is for json, avro and protobuf", "registry")
    elif not coding.subject:
        raise SchemaInvalid('which topic is not known, so a registry needs a "subject"', "")
    elif isinstance(coding, Encoding) and coding.format == "json" and (coding.schema or coding.schema_file):
        raise SchemaInvalid("json is written with the registered schema of the subject; register it there", "schema")


def _file(coding: Decoding | Encoding, directory: str) -> bytes:
    try:
        with open(os.path.join(directory, coding.schema_file), "rb") as file:
            return file.read()
    except OSError as error:
        raise SchemaInvalid(f"{coding.schema_file}: {error.strerror}", "schema_file") from None


@cache
def _ddl(columns: str, where: str) -> dict[str, bool]:
    try:
        return sql.parse_columns(columns)
    except sql.SqlInvalid as error:
        raise SchemaInvalid(str(error), where, error.index) from None


@cache
def _avro(schema: str, where: str) -> dict[str, Any]:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        raw = json.loads(schema)
        parsed = fastavro.parse_schema(raw)
    except json.JSONDecodeError as error:
        raise SchemaInvalid(f"an Avro schema is JSON: {error.msg}", where, error.pos) from None
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise SchemaInvalid(f"not an Avro schema: {error}", where) from None
    return parsed if isinstance(parsed, dict) else {}


@cache
def _message(descriptors: bytes, name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
    except (DecodeError, TypeError):
        raise SchemaInvalid("not a descriptor set; make one with protoc --descriptor_set_out", "schema_file") from None
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        there = [f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type]
        raise SchemaInvalid(f'no message "{name}" in the descriptor set; {nearest(name, there)}', "message") from None
