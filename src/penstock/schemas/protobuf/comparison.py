"""Whether one file may follow another: the differences that Confluent's registry refuses, and one more.

A field is known by its number. Fields may come, go and change their names, and enums may change at will: readers keep
what they do not know. What changes the meaning of bytes that are written already is refused. Messages wait in a queue
and each pair is compared once, so nothing here is recursive.

One difference to Confluent's: it does not notice that a number of proto3 becomes `repeated` or ceases to be, because
a single one has no label in the text. Packed numbers are lost to a reader of a single one, so it is
FIELD_NUMERIC_LABEL_CHANGED here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf import descriptor_pb2 as pb

from penstock.schemas.protobuf.constants import SCALAR_NAMES
from penstock.schemas.steps import MAX_STEPS, TooManySteps

_GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "integers"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag integers"),
    **dict.fromkeys(("fixed32", "sfixed32"), "integers of 4 bytes"),
    **dict.fromkeys(("fixed64", "sfixed64"), "integers of 8 bytes"),
    **dict.fromkeys(("string", "bytes"), "strings"),
    "float": "float",
    "double": "double",
}
_REQUIRED = pb.FieldDescriptorProto.LABEL_REQUIRED


class Message(NamedTuple):
    """A message, and its name without the package of its file."""

    descriptor: pb.DescriptorProto
    name: str
    local: bool  # of the file itself, not of one that it imports


@dataclass(frozen=True, slots=True)
class _Side:
    file: pb.FileDescriptorProto
    messages: Mapping[str, Message]  # by full name with a dot before it, as fields have it

    def map_entry(self, field: pb.FieldDescriptorProto) -> pb.DescriptorProto | None:
        message = self.messages.get(field.type_name)
        return message.descriptor if message and message.descriptor.options.map_entry else None


Files = Mapping[str, pb.FileDescriptorProto]


def compare(reader: pb.FileDescriptorProto, read: Files, writer: pb.FileDescriptorProto, written: Files) -> list[str]:
    return _Comparison(_side(writer, written), _side(reader, read)).run()


class _Comparison:
    def __init__(self, old: _Side, new: _Side) -> None:
        self._old = old
        self._new = new
        self._found: list[str] = []
        self._waiting: deque[tuple[Message, Message]] = deque()
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> list[str]:
        old, new = self._old.file, self._new.file
        if old.package != new.package:
            self._add("PACKAGE_CHANGED", "", f"the package was {old.package!r} and is {new.package!r}")
        self._messages(old.message_type, new.message_type, "", set(), (True, True))
        while self._waiting:
            if len(self._seen) > MAX_STEPS:
                raise TooManySteps
            self._message(*self._waiting.popleft())
        return self._found

    def _add(self, rule: str, path: str, detail: str) -> None:
        self._found.append(f"{rule} at #/{path}: {detail}")

    def _pair(self, old: Message, new: Message) -> None:
        key = (id(old.descriptor), id(new.descriptor))
        if key not in self._seen:
            self._seen.add(key)
            self._waiting.append((old, new))

    def _messages(
        self,
        old: Iterable[pb.DescriptorProto],
        new: Iterable[pb.DescriptorProto],
        path: str,
        groups: set[str],
        local: tuple[bool, bool],
    ) -> None:
        """A message that is gone is data that is not read any more, unless it is the body of a field."""
        kept = {message.name: message for message in new}
        for message in old:
            if message.options.map_entry:
                continue  # the field of the map says it all
            at = f"{path}.{message.name}" if path else message.name
            if message.name in kept:
                self._pair(Message(message, at, local[0]), Message(kept[message.name], at, local[1]))
            elif message.name not in groups:
                self._add("MESSAGE_REMOVED", at.replace(".", "/"), f"the message {at} is gone")

    def _message(self, old: Message, new: Message) -> None:
        path = old.name.replace(".", "/")
        self._oneofs(old.descriptor, new.descriptor, path)
        old_fields = {field.number: field for field in old.descriptor.field}
        new_fields = {field.number: field for field in new.descriptor.field}
        # A oneof that is gone with all its fields is like fields that are gone; in any other, each field counts.
        kept_oneofs = {_oneof(field, new.descriptor) for field in new.descriptor.field}
        kept_oneofs |= {_oneof(field, old.descriptor) for number, field in old_fields.items() if number in new_fields}
        for number in sorted(old_fields.keys() | new_fields.keys()):
            at = f"{path}/{number}"
            before, after = old_fields.get(number), new_fields.get(number)
            if before is None:
                if after is not None and after.label == _REQUIRED:
                    self._add("REQUIRED_FIELD_ADDED", at, f"{after.name} is required, and earlier data lacks it")
            elif after is None:
                self._removed(before, old.descriptor, kept_oneofs, at)
            else:
                self._field(before, after, at)
        groups = {field.type_name.rpartition(".")[2] for field in old.descriptor.field if _is_group(field)}
        nested = (old.descriptor.nested_type, new.descriptor.nested_type)
        self._messages(*nested, old.name, groups, (old.local, new.local))

    # Fields

    def _removed(
        self, field: pb.FieldDescriptorProto, message: pb.DescriptorProto, kept_oneofs: set[str | None], path: str
    ) -> None:
        if field.label == _REQUIRED:
            self._add("REQUIRED_FIELD_REMOVED", path, f"{field.name} was required and is gone")
        oneof = _oneof(field, message)
        if oneof is not None and oneof in kept_oneofs:
            self._add("ONEOF_FIELD_REMOVED", path, f"{field.name} was in the oneof {oneof} and is gone")

    def _field(self, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto, path: str) -> None:
        old_kind, new_kind = self._kind(self._old, old), self._kind(self._new, new)
        if old_kind != new_kind:
            self._add("FIELD_KIND_CHANGED", path, f"{new.name} was a {old_kind} field and is a {new_kind} field")
        elif old_kind == "scalar":
            self._scalar(old, new, path)
        elif old_kind == "map":
            old_entry, new_entry = self._old.map_entry(old), self._new.map_entry(new)
            assert old_entry is not None and new_entry is not None
            for before, after in zip(old_entry.field, new_entry.field, strict=False):
                self._field(before, after, path)
        else:
            self._named(old, new, path)

    def _kind(self, side: _Side, field: pb.FieldDescriptorProto) -> str:
        if field.type in {pb.FieldDescriptorProto.TYPE_MESSAGE, pb.FieldDescriptorProto.TYPE_GROUP}:
            return "map" if side.map_entry(field) is not None else "group" if _is_group(field) else "message"
        return "scalar"

    def _scalar(self, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto, path: str) -> None:
        before, after = _scalar_name(old), _scalar_name(new)
        if _GROUPS[before] != _GROUPS[after]:
            detail = f"{new.name} was {before} ({_GROUPS[before]}) and is {after} ({_GROUPS[after]})"
            self._add("FIELD_SCALAR_KIND_CHANGED", path, detail)
        elif old.label != new.label and _GROUPS[before] != "strings":
            detail = f"the number {new.name} was {_label(old)} and is {_label(new)}"
            self._add("FIELD_NUMERIC_LABEL_CHANGED", path, detail)

    def _named(self, old: pb.FieldDescriptorProto, new: pb.FieldDescriptorProto, path: str) -> None:
        before, after = self._old.messages[old.type_name], self._new.messages[new.type_name]
        if before.name != after.name:
            detail = f"{new.name} was a {before.name} and is a {after.name}"
            self._add("FIELD_NAMED_TYPE_CHANGED", path, detail)
        elif not (before.local and after.local):
            # Messages of the files themselves are compared by their names anyway.
            self._pair(before, after)

    # Oneofs

    def _oneofs(self, old: pb.DescriptorProto, new: pb.DescriptorProto, path: str) -> None:
        """Fields that could be set together before cannot be alternatives now."""
        origin = {field.number: _oneof(field, old) or field.number for field in old.field}
        members: dict[str, list[int]] = {}
        for field in new.field:
            oneof = _oneof(field, new)
            if oneof is not None and field.number in origin:
                members.setdefault(oneof, []).append(field.number)
        for oneof, numbers in members.items():
            origins = {origin[number] for number in numbers}
            if len(origins) > 1:
                single = sum(isinstance(source, int) for source in origins)
                rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if single > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                detail = f"the fields {', '.join(map(str, numbers))} of {oneof} could be set together before"
                self._add(rule, f"{path}/{oneof}", detail)


def _side(file: pb.FileDescriptorProto, files: Files) -> _Side:
    messages: dict[str, Message] = {}
    for other in files.values():
        waiting = [(message, message.name) for message in other.message_type]
        for message, name in waiting:
            full_name = f".{other.package}.{name}" if other.package else f".{name}"
            messages[full_name] = Message(message, name, other is file)
            waiting += [(nested, f"{name}.{nested.name}") for nested in message.nested_type]
    return _Side(file, messages)


def _oneof(field: pb.FieldDescriptorProto, message: pb.DescriptorProto) -> str | None:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return None
    name: str = message.oneof_decl[field.oneof_index].name
    return name


def _scalar_name(field: pb.FieldDescriptorProto) -> str:
    return "enum" if field.type == pb.FieldDescriptorProto.TYPE_ENUM else SCALAR_NAMES[field.type]


def _label(field: pb.FieldDescriptorProto) -> str:
    name: str = pb.FieldDescriptorProto.Label.Name(field.label)
    return name.removeprefix("LABEL_").lower()


def _is_group(field: pb.FieldDescriptorProto) -> bool:
    return bool(field.type == pb.FieldDescriptorProto.TYPE_GROUP)
