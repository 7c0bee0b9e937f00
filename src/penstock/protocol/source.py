"""Generation of Python source, shared by the two codec compilers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.protocol.declaration import Message, TypedField
from penstock.protocol.primitives import INT16_STRING, STRING, Scalar


class Source:
    """The lines of one function, with its indentation and the objects it refers to by name."""

    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = names
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str, value: Any) -> str:
        """Return a global name for an object; the same object gets the same name."""
        for known, other in self.names.items():
            if other is value and known.startswith(prefix):
                return known
        fresh = f"{prefix}_{len(self.names)}"
        self.names[fresh] = value
        return fresh

    def pack(self, format_: str) -> str:
        return self._struct(f"pack_{format_.replace('?', 't')}", struct.Struct(">" + format_).pack)

    def unpack(self, format_: str) -> str:
        return self._struct(f"unpack_{format_.replace('?', 't')}", struct.Struct(">" + format_).unpack_from)

    def _struct(self, name: str, method: Callable[..., Any]) -> str:
        self.names.setdefault(name, method)
        return name

    def function(self, name: str, title: str) -> Any:
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        return self.names[name]


def present(cls: type[Message], version: int) -> tuple[TypedField, ...]:
    """Return the fields in the body of this version."""
    return tuple(field for field in cls.__schema__.fields if version in field.versions and field.tag is None)


def tagged(cls: type[Message], version: int) -> tuple[TypedField, ...]:
    """Return the fields in the tag section of this version, in ascending order of tags."""
    fields = (field for field in cls.__schema__.fields if version in field.versions and field.tag is not None)
    return tuple(sorted(fields, key=lambda field: field.tag or 0))


def length_format(field: TypedField, flexible: bool) -> str | None:
    """Return the struct format of the length before a value; None if it is a varint."""
    if field.type is INT16_STRING:
        return "h"
    if flexible:
        return None
    return "h" if field.type is STRING and not field.is_array else "i"


def null_struct_marker(field: TypedField) -> int:
    """Return the byte that stands for a null struct; a struct that is present is preceded by a 1.

    The two kinds of field differ because Kafka writes a signed byte in one case and a varint in the other.
    """
    return -1 if field.tag is None else 0


def size_min(cls: type[Message], version: int, flexible: bool) -> int:
    """Return the minimum size of an element of this struct, against which an array's count is checked."""
    total = 1 if flexible else 0
    for field in present(cls, version):
        if isinstance(field.type, Scalar) and not field.is_array:
            total += field.type.size
        elif isinstance(field.type, type) and not field.is_array:
            total += 1 if version in field.nullable else size_min(field.type, version, flexible)
        else:
            length = length_format(field, flexible)
            total += 1 if length is None else struct.calcsize(">" + length)
    return total
