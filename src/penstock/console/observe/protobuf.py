"""Protobuf messages as documents: as Protobuf's own JSON, with the names of the fields as they are in the schema.

Its JSON writes 64-bit integers as text, because JavaScript cannot hold them. Here they are numbers, so that
a filter can compare them.
"""

from __future__ import annotations

from typing import Any

_WELL_KNOWN = "google.protobuf."


def document_of(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    document = MessageToDict(message, preserving_proto_field_name=True)
    return _with_numbers(document, message.DESCRIPTOR)


def _with_numbers(document: Any, descriptor: Any) -> Any:
    if not isinstance(document, dict) or descriptor.full_name.startswith(_WELL_KNOWN):
        return document
    fields = descriptor.fields_by_name
    return {name: _field(value, fields[name]) if name in fields else value for name, value in document.items()}


def _field(value: Any, field: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_values = field.message_type.fields_by_name["value"]
        return {key: _one(each, of_values) for key, each in value.items()}
    return [_one(each, field) for each in value] if isinstance(value, list) else _one(value, field)


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _with_numbers(value, field.message_type)
    is_large = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return int(value) if is_large and isinstance(value, str) else value
