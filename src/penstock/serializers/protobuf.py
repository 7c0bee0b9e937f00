"""Protobuf: messages of a generated class, in their own serialization, or framed with a schema id of a registry.

The schema that is registered is the file of the message, as a descriptor; files that it imports are registered first,
each under its own name, as Confluent's serializer does. Without a class, messages are read with classes made from the
registered schema.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from penstock.serializers.base import Context, Serde, missing
from penstock.serializers.registered import Frame, Framing, RegistryArguments, write_indexes
from penstock.serializers.registry_client import Reference, Registered, RegistryClient, Schema
from penstock.serializers.registry_http import RegistryError

if TYPE_CHECKING:
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")

_WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every registry and every reader has."""


class Protobuf(Serde[M]):
    @overload
    def __init__(self: Protobuf[Any], **registered: Unpack[RegistryArguments]) -> None: ...
    @overload
    def __init__(self, message_class: type[M], **registered: Unpack[RegistryArguments]) -> None: ...
    def __init__(self, message_class: type[M] | None = None, **registered: Unpack[RegistryArguments]) -> None:
        try:
            from google.protobuf.message import Message
        except ImportError as error:
            raise missing("protobuf", "protobuf", "Protobuf") from error
        self._framing = Framing("PROTOBUF", registered) if "registry" in registered else None
        if (message_class is not None or self._framing is None) and not (
            isinstance(message_class, type) and issubclass(message_class, Message)
        ):
            raise TypeError(f"Protobuf takes a class that protoc made, not {message_class!r}")
        self.needs_context = self._framing is not None
        self._class = message_class
        self._places: dict[tuple[str, bool], Registered] = {}
        self._classes: dict[tuple[str | int, tuple[int, ...]], Any] = {}
        if message_class is not None:
            self._indexes = write_indexes(indexes_of(message_class.DESCRIPTOR))
            if self._framing is None:
                self.decode = message_class.FromString
                return
        self.decode = self._decode_framed

    def encode(self, value: M) -> bytes:
        if self._framing is not None:
            raise TypeError("with a registry, the subject depends on the topic: call serialize(value, context)")
        return self._body(value)

    def serialize(self, value: M, context: Context, /) -> bytes | None:
        if self._framing is None or value is None:
            return super().serialize(value, context)
        body = self._body(value)
        return self._framing.framed(body, self.prepare(context.topic, is_key=context.is_key), context, self._indexes)

    def deserialize(self, data: bytes | None, context: Context, /) -> M:
        if self._framing is None or data is None:
            return super().deserialize(data, context)
        frame = self._framing.frame(data, context)
        try:
            return self._class_of(frame).FromString(frame.body)  # type: ignore[no-any-return]
        except RegistryError:
            raise
        except Exception as error:
            origin = self._framing.described(frame.written_with)
            raise ValueError(f"{origin}: {type(error).__name__}: {error}") from error

    def prepare(self, topic: str, *, is_key: bool = False) -> Registered:
        """Ask the registry now, and not for the first record: the schema of a topic's values."""
        if self._framing is None or self._class is None:
            raise TypeError("writing needs a registry and a class that protoc made")
        place = None if self._framing.use_latest else self._places.get((topic, is_key))
        if place is None:
            descriptor = self._class.DESCRIPTOR
            client = self._framing.client
            ask = client.register if self._framing.auto_register else client.lookup
            schema = None
            if not self._framing.use_latest:
                schema = schema_of(descriptor.file, partial(ask, normalize=self._framing.normalize))
            place = self._framing.place(Context(topic, is_key), schema, descriptor.full_name)
            self._places[topic, is_key] = place
        return place

    def _decode_framed(self, data: bytes) -> M:
        return self.deserialize(data, Context("", False))

    def _body(self, value: M) -> bytes:
        if self._class is None or not isinstance(value, self._class):
            wanted = "message of a known class" if self._class is None else self._class.__name__
            raise TypeError(f"a {type(value).__name__} is not a {wanted}: {value!r:.80}")
        data: bytes = value.SerializeToString()
        return data

    def _class_of(self, frame: Frame) -> Any:
        """The given class, if the record's message has its name; without one, a class of the registered schema."""
        assert self._framing is not None
        key = (frame.key, frame.message_indexes)
        found = self._classes.get(key)
        if found is None:
            registered = registered_class(self._framing.client, frame.written_with.schema, frame.message_indexes)
            if self._class is not None and registered.DESCRIPTOR.name != self._class.DESCRIPTOR.name:
                raise ValueError(
                    f"the record is a {registered.DESCRIPTOR.full_name}, not a {self._class.DESCRIPTOR.full_name}"
                )
            found = self._classes[key] = self._class or registered
        return found


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """The place of a message in its file: the index of each message around it, and its own."""
    around = descriptor.containing_type
    if around is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    names = [each.name for each in around.nested_types]
    return (*indexes_of(around), names.index(descriptor.name))


def schema_of(file: Any, place: Callable[[str, Schema], Registered]) -> Schema:
    """The schema of a file; `place` registers or finds those of its imports, under their own names."""
    references = [
        Reference(imported.name, imported.name, place(imported.name, schema_of(imported, place)).version)
        for imported in file.dependencies
        if not imported.name.startswith(_WELL_KNOWN)
    ]
    return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", tuple(references))


def registered_class(client: RegistryClient, schema: Schema, indexes: tuple[int, ...]) -> Any:
    """A class for the message at this place of a registered file."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name, referred in client.references_of(schema):
        _add(pool, _file(referred, name), added)
    file = _file(schema, "schema.proto")
    _add(pool, file, added)
    messages, names, found = file.message_type, [file.package] if file.package else [], None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message at {list(indexes)}")
        found = messages[index]
        names.append(found.name)
        messages = found.nested_type
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))


def _file(schema: Schema, name: str) -> Any:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (ValueError, DecodeError):
        raise ValueError(
            "the registry gives the text of a .proto file, and no descriptor (format=serialized)"
        ) from None
    file.name = name
    return file


def _add(pool: Any, file: Any, added: set[str]) -> None:
    """Add a file to a pool, and before it the well-known files that it imports."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    for name in file.dependency:
        if name not in added and name.startswith(_WELL_KNOWN):
            known = descriptor_pb2.FileDescriptorProto()
            _import(name)
            descriptor_pool.Default().FindFileByName(name).CopyToProto(known)
            _add(pool, known, added)
    if file.name not in added:
        added.add(file.name)
        pool.Add(file)


def _import(name: str) -> None:
    """Well-known files are in the default pool once their modules are imported."""
    from importlib import import_module

    import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
