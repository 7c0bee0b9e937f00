"""Keys and values as people read them: JSON, text, numbers of Kafka's own topics, or bytes in hexadecimal.

What the bytes are is recognised, not configured: null, empty, JSON, text in UTF-8, else hexadecimal. Bytes that begin
as the serializers of a schema registry write them (a zero byte and an id) are decoded with the schema, if a registry
is named and knows it. Everything is bounded: a value of 10 MB is shown in part, and JSON that is nested too deeply to
be read is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.console.views.text import hex_dump, one_line, visible
from penstock.model.errors import KafkaError
from penstock.protocol.codec import MalformedMessage, decode_from
from penstock.protocol.declaration import Message, plain_values
from penstock.protocol.messages import group_records, transaction_records

Kind = Literal["null", "empty", "json", "text", "hex", "avro", "protobuf", "json-schema", "record"]

SHOWN_MAX = 256 * 1024
PRETTY_MAX = 256 * 1024
_PREVIEW_MAX = 300
_HEX_PREVIEW = 48
_DEPTH_MAX = 200

_RECORDS: Mapping[str, Mapping[int, tuple[type[Message], type[Message]]]] = {
    "__consumer_offsets": group_records.RECORD_TYPES,
    "__transaction_state": transaction_records.RECORD_TYPES,
}

SchemaDecoder = Callable[[bytes], "tuple[Kind, Any] | None"]
"""From bytes to what they are and the decoded document; None if they were not written with a schema."""


@dataclass(frozen=True, slots=True)
class Decoded:
    kind: Kind
    size: int
    text: str
    """All of it, or the beginning."""
    is_cut: bool = False
    note: str = ""

    @property
    def preview(self) -> str:
        return one_line(self.text, _PREVIEW_MAX)


def decode(data: bytes | None, schema: SchemaDecoder | None = None, *, pretty: bool = False) -> Decoded:
    if data is None:
        return Decoded("null", 0, "null")
    if not data:
        return Decoded("empty", 0, "")
    if schema is not None and data[0] == 0 and len(data) > 5:
        found = schema(data)
        if found is not None:
            return _document(found[0], len(data), found[1], pretty)
    text = _text_of(data)
    if text is None:
        return _bytes(data, pretty)
    if len(data) > SHOWN_MAX:
        return Decoded("json" if text[:1] in "{[" else "text", len(data), visible(text[:SHOWN_MAX]), True)
    if _looks_like_json(text):
        return _json(data, text, pretty)
    return Decoded("text", len(data), visible(text)) if _is_readable(text) else _bytes(data, pretty)


def _text_of(data: bytes) -> str | None:
    """The text, or the beginning of a long one; None if it is not UTF-8."""
    try:
        return data[: SHOWN_MAX + 4].decode()
    except UnicodeDecodeError as error:
        # Cut within a character, the text itself may be sound.
        return data[: error.start].decode() if len(data) > SHOWN_MAX and error.start >= SHOWN_MAX else None


def _json(data: bytes, text: str, pretty: bool) -> Decoded:
    too_deep = "JSON, nested too deeply to be laid out"
    try:
        document = json.loads(text)
    except RecursionError:
        return Decoded("text", len(data), visible(text), note=too_deep)
    except ValueError:
        return Decoded("text", len(data), visible(text))
    if not pretty:
        return Decoded("json", len(data), visible(text.strip()))
    if depth(document) > _DEPTH_MAX:
        return Decoded("json", len(data), visible(text.strip()), note=too_deep)
    return _document("json", len(data), document, pretty)


def decode_record(
    topic: str, key: bytes | None, value: bytes | None, schema: SchemaDecoder | None = None, *, pretty: bool = False
) -> tuple[Decoded, Decoded]:
    """The value of a record in Kafka's own topics is read by the type in its key."""
    types = _RECORDS.get(topic)
    if types is not None and key is not None and len(key) >= 2:
        kinds = types.get(int.from_bytes(key[:2], signed=True))
        if kinds is not None:
            return _message(kinds[0], key, 0, pretty), _message(kinds[1], value, None, pretty)
    return decode(key, schema, pretty=pretty), decode(value, schema, pretty=pretty)


def document_of(data: bytes | None, schema: SchemaDecoder | None = None) -> Any:
    """The JSON document in a value, for conditions and reports; None if it is none."""
    if not data:
        return None
    if schema is not None and data[0] == 0 and len(data) > 5:
        found = schema(data)
        return None if found is None else found[1]
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def depth(document: Any) -> int:
    """How deeply it is nested, without recursion."""
    deepest, level = 0, [document]
    while level:
        deepest += 1
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if deepest > _DEPTH_MAX:
            break
    return deepest


def _document(kind: Kind, size: int, document: Any, pretty: bool) -> Decoded:
    text = json.dumps(document, ensure_ascii=False, indent=2 if pretty else None, default=str)
    return Decoded(kind, size, visible(text[:PRETTY_MAX]), len(text) > PRETTY_MAX)


def _bytes(data: bytes, pretty: bool) -> Decoded:
    if pretty:
        shown = 16 * 1024
        return Decoded("hex", len(data), hex_dump(data, shown), len(data) > shown)
    return Decoded("hex", len(data), data[:_HEX_PREVIEW].hex(" "), len(data) > _HEX_PREVIEW)


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"') or text.strip() in ("true", "false")


def _is_readable(text: str) -> bool:
    """Numbers of a few bytes are often valid UTF-8 by chance: mostly control characters."""
    hidden = sum(not character.isprintable() and character not in "\n\r\t" for character in text[:1000])
    return hidden * 3 <= len(text[:1000])


def _message(kind: type[Message], data: bytes | None, version: int | None, pretty: bool) -> Decoded:
    if data is None:
        return Decoded("null", 0, "null")
    try:
        read = int.from_bytes(data[:2], signed=True) if version is None else version
        message, _ = decode_from(kind, data, read, 2)
    except (MalformedMessage, KafkaError, ValueError) as error:
        return Decoded("hex", len(data), data[:_HEX_PREVIEW].hex(" "), note=str(error))
    name = kind.__name__.removesuffix("Key").removesuffix("Value")
    return _document("record", len(data), {name: plain_values(message)}, pretty)
