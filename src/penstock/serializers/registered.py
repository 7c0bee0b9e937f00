"""What the serializers have in common when they use a schema registry: subjects, ids, and the bytes that carry them.

A value is framed as Confluent's serializers do it: a zero byte, the schema's id in four bytes, the body. For Protobuf,
the place of the message in its file stands between them. With `schema_id="header"` the body is alone, and the header
`__key_schema_id` or `__value_schema_id` carries a one and the schema's GUID, which is the same in every registry. Both
forms are always read.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from penstock.serializers.base import Context
from penstock.serializers.registry_client import Registered, RegistryClient, Schema, SchemaType, registry_of
from penstock.serializers.registry_http import RegistryError

PREFIX: Final = struct.Struct(">bI")
_BY_ID, _BY_GUID = 0, 1
_GUID_BYTES: Final = 16
HEADERS: Final = {True: "__key_schema_id", False: "__value_schema_id"}

SubjectName = Callable[[Context, str | None], str]
"""A subject for the context of a record and the name of its type."""


class RegistryArguments(TypedDict, total=False):
    """The arguments of serializers that belong to the registry."""

    registry: str | RegistryClient
    """Its address, or a client with options."""
    subject: Literal["topic", "record", "topic-record"] | SubjectName
    """How subjects are named: `TOPIC-value` (or `-key`), the type's full name, `TOPIC-NAME`, or a function."""
    auto_register: bool
    """Register the schema before the first value is written; otherwise it must be registered. Default: True."""
    use_latest: bool
    """Write with the latest version of the subject instead of the given schema. Default: False."""
    normalize: bool
    """Let the registry normalize schemas before it compares them. Default: False."""
    schema_id: Literal["prefix", "header"]
    """Where the id is written. Default: "prefix"."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A value that was read: what it was written with, and its body."""

    written_with: Registered
    body: bytes
    message_indexes: tuple[int, ...] = ()

    @property
    def key(self) -> str | int:
        """Identifies the schema."""
        return self.written_with.id or self.written_with.guid


class Framing:
    """One serializer's use of a registry."""

    def __init__(self, kind: SchemaType, arguments: RegistryArguments) -> None:
        self.client = registry_of(arguments["registry"])
        self.use_latest = arguments.get("use_latest", False)
        self.auto_register = arguments.get("auto_register", True) and not self.use_latest
        self.normalize = arguments.get("normalize", False)
        self._kind = kind
        self._subject = _strategy(arguments.get("subject", "topic"))
        self._schema_id = arguments.get("schema_id", "prefix")
        if self._schema_id not in ("prefix", "header"):
            raise ValueError(f'schema_id={self._schema_id!r} is neither "prefix" nor "header"')

    def place(self, context: Context, schema: Schema | None, name: str | None) -> Registered:
        """The schema that values of this context are written with."""
        subject = self._subject(context, name)
        try:
            if self.use_latest or schema is None:
                found = self.client.latest(subject)
            elif self.auto_register:
                found = self.client.register(subject, schema, normalize=self.normalize)
            else:
                found = self.client.lookup(subject, schema, normalize=self.normalize)
        except RegistryError as error:
            raise RegistryError(f"subject {subject}: {error}", error.status, error.code) from error
        if found.schema.type != self._kind:
            raise ValueError(f"subject {subject} version {found.version} is {found.schema.type}, not {self._kind}")
        if self._schema_id == "header" and not found.guid:
            raise ValueError(f"subject {subject}: this registry gives schemas no GUID, which headers need")
        return found

    def framed(self, body: bytes, place: Registered, context: Context, indexes: bytes = b"") -> bytes:
        if self._schema_id == "prefix":
            return PREFIX.pack(_BY_ID, place.id) + indexes + body
        header = bytes((_BY_GUID,)) + uuid.UUID(place.guid).bytes + indexes
        context.headers.append((HEADERS[context.is_key], header))
        return body

    def frame(self, data: bytes, context: Context) -> Frame:
        """ValueError for bytes without a frame, RegistryError for an unknown id."""
        name = HEADERS[context.is_key]
        for key, carried in reversed(context.headers):
            if key == name and carried is not None:
                written_with, rest = self._identified(carried)
                indexes, _ = self._indexes(rest)
                return Frame(written_with, data, indexes)
        written_with, rest = self._identified(data)
        indexes, body = self._indexes(rest)
        return Frame(written_with, body, indexes)

    def described(self, written_with: Registered) -> str:
        if written_with.id:
            return self.client.name_of(written_with.id)
        return f"schema GUID {written_with.guid}"

    def _identified(self, data: bytes) -> tuple[Registered, bytes]:
        if len(data) >= PREFIX.size and data[0] == _BY_ID:
            found, rest = self.client.by_id(PREFIX.unpack_from(data)[1]), data[PREFIX.size :]
        elif len(data) > _GUID_BYTES and data[0] == _BY_GUID:
            guid = str(uuid.UUID(bytes=bytes(data[1 : 1 + _GUID_BYTES])))
            found, rest = self.client.by_guid(guid), data[1 + _GUID_BYTES :]
        else:
            raise ValueError("no schema id: a value starts with a zero byte and the id of its schema")
        if found.schema.type != self._kind:
            raise ValueError(f"{self.described(found)} is {found.schema.type}, not {self._kind}")
        return found, rest

    def _indexes(self, data: bytes) -> tuple[tuple[int, ...], bytes]:
        return read_indexes(data) if self._kind == "PROTOBUF" else ((), data)


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """The place of a message in its file: zigzag varints; a single zero stands for the first message."""
    if indexes == (0,):
        return b"\0"
    return b"".join(_varint(each << 1) for each in (len(indexes), *indexes))


def read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    count, position = _read_varint(data, 0)
    if count == 0:
        return (0,), data[position:]
    if not 0 < count <= len(data):
        raise ValueError(f"{count} message indexes in {len(data)} bytes")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes), data[position:]


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for place in range(position, min(len(data), position + 5)):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return (value >> 1) ^ -(value & 1), place + 1
        shift += 7
    raise ValueError("message indexes are cut off")


def _strategy(given: str | SubjectName) -> SubjectName:
    if callable(given):
        return given
    if given not in _STRATEGIES:
        raise ValueError(f"subject={given!r} is not one of {', '.join(_STRATEGIES)}, nor a function")
    return _STRATEGIES[given]


def _by_topic(context: Context, name: str | None) -> str:
    return f"{context.topic}-{'key' if context.is_key else 'value'}"


def _by_record(context: Context, name: str | None) -> str:
    if not name:
        raise ValueError('the schema has no name, which subject="record" and "topic-record" need')
    return name


_STRATEGIES: Final[dict[str, SubjectName]] = {
    "topic": _by_topic,
    "record": _by_record,
    "topic-record": lambda context, name: f"{context.topic}-{_by_record(context, name)}",
}
