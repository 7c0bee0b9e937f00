"""Names of types as short as they may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf import descriptor_pb2 as pb


class Names:
    """`files` are all that a text can name; without them, every name is written in full."""

    def __init__(self, files: Iterable[pb.FileDescriptorProto]) -> None:
        self._symbols: set[str] = set()
        for file in files:
            parts = file.package.split(".")
            self._symbols |= {".".join(parts[: count + 1]) for count in range(len(parts))}
            self._symbols |= set(_symbols(file.message_type, file.enum_type, file.package))
            self._symbols |= {_join(file.package, item.name) for item in (*file.extension, *file.service)}

    def relative(self, full_name: str, scope: str) -> str:
        """The shortest end of the name that means the same from this scope: the innermost scope that knows the first
        part of a name decides what it means."""
        target = full_name.removeprefix(".")
        parts = target.split(".")
        for count in range(1, len(parts) + 1):
            short = ".".join(parts[-count:])
            if self._meant(short, scope) == target:
                return short
        return f".{target}"

    def _meant(self, name: str, scope: str) -> str | None:
        first = name.partition(".")[0]
        while True:
            if _join(scope, first) in self._symbols:
                return _join(scope, name)
            if not scope:
                return None
            scope = scope.rpartition(".")[0]


def _symbols(
    messages: Iterable[pb.DescriptorProto], enums: Iterable[pb.EnumDescriptorProto], scope: str
) -> Iterator[str]:
    for message in messages:
        name = _join(scope, message.name)
        yield name
        for member in (*message.field, *message.oneof_decl, *message.extension):
            yield _join(name, member.name)
        yield from _symbols(message.nested_type, message.enum_type, name)
    for enum in enums:
        yield _join(scope, enum.name)
        # Values stand beside their enum, as in C.
        yield from (_join(scope, value.name) for value in enum.value)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
