"""Compiles the decoder of one message in one version.

The generated function reads from a buffer and returns the message and the position after it. One Struct unpacks
fixed-size fields, and the length byte of the variable field that follows, directly into the new object:

    message.node_id, size = unpack_iB(buffer, position)
    position += 5
    if size > 127:
        size, position = uvarint_rest(buffer, position, size)
    ...

Reading past the end with a Struct or an index raises an exception, which `penstock.protocol.codec` turns into
MalformedMessage. A slice does not raise, so every length is checked before it is used; and every array count is checked
against the remaining bytes before anything is allocated for it. `left[0]` is how many elements the message may still
have, in all its arrays and unknown tags together: an element of a few bytes costs microseconds and a hundred bytes of
memory.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NoReturn

from penstock.protocol.declaration import Decoder, Message, TypedField
from penstock.protocol.primitives import (
    BYTES,
    RECORDS,
    STRING,
    STRING_SIZE_MAX,
    UNPACK_ARRAY,
    UUID,
    MalformedMessage,
    Scalar,
    read_tag,
    read_unknown_tags,
    unpack_uuids,
    uvarint_rest,
)
from penstock.protocol.source import Source, length_format, null_struct_marker, present, size_min, tagged


def _refuse_size(name: str, size: int, left: int) -> NoReturn:
    if size < 0:
        raise MalformedMessage(f"{name} has length {size}")
    raise MalformedMessage(f"{name} has length {size}, but only {left} bytes are left")


def _refuse_string(name: str, size: int) -> NoReturn:
    raise MalformedMessage(f"{name} has length {size}, more than the {STRING_SIZE_MAX} of a string")


def _refuse_struct(name: str, marker: int) -> NoReturn:
    raise MalformedMessage(f"{name} starts with {marker}, which means neither a struct nor null")


def _refuse_elements() -> NoReturn:
    raise MalformedMessage("it has more elements than are read of one message")


def _refuse_tag_size(tag: int) -> NoReturn:
    raise MalformedMessage(f"the value of tag {tag} is not as long as it says")


class _DecoderCompiler:
    def __init__(self, cls: type[Message], version: int, flexible: bool) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.source = Source(
            cls=cls,
            new=object.__new__,
            uvarint_rest=uvarint_rest,
            read_tag=read_tag,
            read_unknown_tags=read_unknown_tags,
            unpack_uuids=unpack_uuids,
            refuse_size=_refuse_size,
            refuse_string=_refuse_string,
            refuse_struct=_refuse_struct,
            refuse_tag_size=_refuse_tag_size,
            refuse_elements=_refuse_elements,
        )
        # Fixed-size values not yet read: their formats and their assignment targets.
        self.formats: list[str] = []
        self.targets: list[str] = []

    def compile(self) -> Decoder:
        source = self.source
        with source.block("def decode(buffer, position, end, left):"):
            source.line("message = new(cls)")
            for field in self.cls.__schema__.fields:
                if self.version not in field.versions:
                    source.line(f"message.{field.name} = {self._default(field)}")
            for field in present(self.cls, self.version):
                self._value(field, f"message.{field.name}")
            if self.flexible:
                self._tag_section()
            else:
                self._flush()
                source.line("message.unknown_tags = None")
            source.line("return message, position")
        decoder: Decoder = source.function("decode", f"decode {self.cls.__name__} v{self.version}")
        return decoder

    def _default(self, field: TypedField) -> str:
        if isinstance(field.default, type):
            return f"{self.source.name(field.default.__name__, field.default)}()"
        return repr(field.default)

    def _value(self, field: TypedField, target: str) -> None:
        """Read one value, or, if it is fixed-size, queue it for the next unpack."""
        nullable = self.version in field.nullable
        if field.is_array:
            self._array(field, target, nullable)
        elif isinstance(field.type, Scalar):
            self.formats.append(field.type.format)
            self.targets.append(target)
        elif isinstance(field.type, type):
            self._struct(field, field.type, target, nullable)
        else:
            self._variable(field, target, nullable)

    def _struct(self, field: TypedField, struct_type: type[Message], target: str, nullable: bool) -> None:
        decode = self._nested(struct_type)
        if not nullable:
            self._flush()
            self.source.line(f"{target}, position = {decode}(buffer, position, end, left)")
            return
        self.formats.append("b")
        self.targets.append("marker")
        self._flush()
        with self.source.block("if marker == 1:"):
            self.source.line(f"{target}, position = {decode}(buffer, position, end, left)")
        with self.source.block(f"elif marker == {null_struct_marker(field)}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"refuse_struct({field.name!r}, marker)")

    def _variable(self, field: TypedField, target: str, nullable: bool) -> None:
        source = self.source
        self._size(field)
        with source.block("if 0 <= size <= end - position:"):
            source.line("stop = position + size")
            if field.type is BYTES:
                source.line(f"{target} = bytes(buffer[position:stop])")
            elif field.type is RECORDS:
                source.line(f"{target} = buffer[position:stop]")
            else:
                source.line(f'{target} = str(buffer[position:stop], "utf-8")')
            source.line("position = stop")
        self._otherwise_null_or_refused(field, target, nullable)

    def _array(self, field: TypedField, target: str, nullable: bool) -> None:
        source = self.source
        self._size(field)
        with source.block(f"if 0 <= size <= (end - position) // {self._element_size_min(field)}:"):
            self._count("size")
            if isinstance(field.type, Scalar):
                unpack = "unpack_uuids"
                if field.type is not UUID:
                    unpack = source.name(f"unpack_{field.type.name}s", UNPACK_ARRAY[field.type.name])
                source.line(f"{target} = {unpack}(buffer, position, size)")
                source.line(f"position += {field.type.size} * size")
            else:
                source.line(f"{target} = elements = []")
                with source.block("for _ in range(size):"):
                    if isinstance(field.type, type):
                        source.line(f"element, position = {self._nested(field.type)}(buffer, position, end, left)")
                    else:
                        self._variable(field._replace(is_array=False), "element", False)
                    source.line("elements.append(element)")
        self._otherwise_null_or_refused(field, target, nullable)

    def _otherwise_null_or_refused(self, field: TypedField, target: str, nullable: bool) -> None:
        if nullable:
            with self.source.block("elif size == -1:"):
                self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"refuse_size({field.name!r}, size, end - position)")

    def _count(self, elements: str) -> None:
        self.source.line(f"left[0] -= {elements}")
        with self.source.block("if left[0] < 0:"):
            self.source.line("refuse_elements()")

    def _element_size_min(self, field: TypedField) -> int:
        if isinstance(field.type, Scalar):
            return field.type.size
        if isinstance(field.type, type):
            return max(1, size_min(field.type, self.version, self.flexible))
        length = length_format(field._replace(is_array=False), self.flexible)
        return 1 if length is None else struct.calcsize(">" + length)

    def _size(self, field: TypedField) -> None:
        """Read the queued values and a length into `size`; -1 is null."""
        length = length_format(field, self.flexible)
        self.formats.append(length or "B")
        self.targets.append("size")
        self._flush()
        if length is None:
            with self.source.block("if size > 127:"):
                self.source.line("size, position = uvarint_rest(buffer, position, size)")
                if field.type is STRING and not field.is_array:
                    with self.source.block(f"if size > {STRING_SIZE_MAX + 1}:"):
                        self.source.line(f"refuse_string({field.name!r}, size - 1)")
            self.source.line("size -= 1")

    def _flush(self) -> None:
        if self.formats == ["B"]:
            self.source.line(f"{self.targets[0]} = buffer[position]")
            self.source.line("position += 1")
        elif self.formats:
            format_ = "".join(self.formats)
            comma = "," if len(self.targets) == 1 else ""
            self.source.line(f"{', '.join(self.targets)}{comma} = {self.source.unpack(format_)}(buffer, position)")
            self.source.line(f"position += {struct.calcsize('>' + format_)}")
        self.formats, self.targets = [], []

    def _tag_section(self) -> None:
        source = self.source
        fields = tagged(self.cls, self.version)
        self.formats.append("B")
        self.targets.append("count")
        self._flush()
        source.line("message.unknown_tags = None")
        for field in fields:
            source.line(f"message.{field.name} = {self._default(field)}")
        with source.block("if count:"):
            with source.block("if count > 127:"):
                source.line("count, position = uvarint_rest(buffer, position, count)")
            self._count("count")
            if fields:
                self._known_tags(fields)
            else:
                source.line("message.unknown_tags, position = read_unknown_tags(buffer, position, end, count)")

    def _known_tags(self, fields: tuple[TypedField, ...]) -> None:
        source = self.source
        source.line("tag, unknown = -1, {}")
        with source.block("for _ in range(count):"):
            source.line("tag, position, tag_stop = read_tag(buffer, position, end, tag)")
            for number, field in enumerate(fields):
                with source.block(f"{'el' if number else ''}if tag == {field.tag}:"):
                    self._value(field, f"message.{field.name}")
                    self._flush()
            with source.block("else:"):
                source.line("unknown[tag] = bytes(buffer[position:tag_stop])")
                source.line("position = tag_stop")
            with source.block("if position != tag_stop:"):
                source.line("refuse_tag_size(tag)")
        with source.block("if unknown:"):
            source.line("message.unknown_tags = unknown")

    def _nested(self, struct_type: type[Message]) -> str:
        return self.source.name(
            f"decode_{struct_type.__name__}", struct_decoder(struct_type, self.version, self.flexible)
        )


@cache
def struct_decoder(cls: type[Message], version: int, flexible: bool) -> Decoder:
    """Return the decoder of a struct inside a message of this version, compiled once."""
    return _DecoderCompiler(cls, version, flexible).compile()


def holds_records(cls: type[Message]) -> bool:
    """Whether the message contains record batches anywhere, so that its buffer must outlive the decoding."""
    return any(
        field.type is RECORDS or (isinstance(field.type, type) and holds_records(field.type))
        for field in cls.__schema__.fields
    )
