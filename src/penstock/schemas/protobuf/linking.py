"""Makes complete descriptors: names of types are resolved, options interpreted, and the rules of the language checked.

protobuf's own descriptor pool does the first: it takes names as they are written, and gives them back resolved. A
custom option is a field of an extended `google.protobuf.FieldOptions` (or another), so it is read after the extensions
are known: every file goes into a pool without its custom options, they are read with the classes of this pool, and
the complete file goes into a second pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from penstock.schemas.model import InvalidSchema
from penstock.schemas.protobuf.constants import RESERVED_FIELDS
from penstock.schemas.protobuf.reading import Draft, Option

_DESCRIPTOR = "google/protobuf/descriptor.proto"
# protoc's bound.
_MAX_MESSAGES_DEEP = 32


class Linker:
    """Files by name; each is added after those that it imports. `known` gives the files that come with the language."""

    def __init__(self, known: Callable[[str], pb.FileDescriptorProto | None]) -> None:
        self.files: dict[str, pb.FileDescriptorProto] = {}
        self.pool = descriptor_pool.DescriptorPool()
        self._drafts = descriptor_pool.DescriptorPool()
        self._known = known
        self._import(_DESCRIPTOR, "")

    def add(self, draft: Draft) -> pb.FileDescriptorProto:
        """The file as it is after linking, which later files may import."""
        file = draft.file
        check(file)
        for imported in file.dependency:
            self._import(imported, file.name)
        custom = []
        for option in draft.options:
            if option.path[0].startswith("("):
                custom.append(option)
            else:
                _merge(option.owner.options, _text(option, _as_written), None)
        _build(self._drafts, file)
        for option in custom:
            self._interpret(option)
        _build(self.pool, file)
        return self._keep(file.name)

    def options(self, options: Any) -> Any:
        """The same options with the custom ones as fields."""
        found = self.pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        return message_factory.GetMessageClass(found).FromString(options.SerializeToString())

    def _import(self, name: str, importer: str) -> None:
        if name in self.files:
            return
        file = self._known(name)
        if file is None:
            raise InvalidSchema(f"{importer:.100}: the import {name!r:.200} is not among the references of the schema")
        for imported in file.dependency:
            self._import(imported, name)
        _build(self._drafts, file)
        _build(self.pool, file)
        self._keep(name)

    def _keep(self, name: str) -> pb.FileDescriptorProto:
        linked = pb.FileDescriptorProto()
        self.pool.FindFileByName(name).CopyToProto(linked)
        self.files[name] = linked
        return linked

    def _interpret(self, option: Option) -> None:
        options = option.owner.options
        found = self._drafts.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        given = message_factory.GetMessageClass(found)()
        _merge(given, _text(option, self._extension(option.scope)), self._drafts)
        try:
            options.MergeFromString(given.SerializeToString())
        except ValueError as error:  # half a surrogate pair; a message that lacks required fields
            raise InvalidSchema(f"the option {'.'.join(option.path):.200}: {error}") from None

    def _extension(self, scope: str) -> Callable[[str], str]:
        def resolve(part: str) -> str:
            if not part.startswith("("):
                return part
            name = part[1:-1]
            scopes = [""] if name.startswith(".") else _scopes(scope)
            for outer in scopes:
                full = f"{outer}.{name}".lstrip(".")
                try:
                    self._drafts.FindExtensionByName(full)
                except KeyError:
                    continue
                return f"[{full}]"
            raise InvalidSchema(f"the option {name!r:.200} is not defined in the schema, nor in what it imports")

        return resolve


def decode(data: bytes, name: str) -> Draft:
    """A descriptor that a client sends is linked again: nobody has checked it."""
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(data)
    except DecodeError as error:
        raise InvalidSchema(f"the schema is not a serialized FileDescriptorProto: {error}") from None
    file.ClearField("source_code_info")
    file.name = name
    if file.syntax == "proto2":
        file.ClearField("syntax")
    return Draft(file)


def check(file: pb.FileDescriptorProto) -> None:
    """What the pool lets pass and protoc does not."""
    level = list(file.message_type)
    for _ in range(_MAX_MESSAGES_DEEP):
        for message in level:
            _check_message(message)
        level = [nested for message in level for nested in message.nested_type]
        if not level:
            break
    else:
        raise InvalidSchema(f"messages are nested deeper than {_MAX_MESSAGES_DEEP} levels")
    for extension in file.extension:
        _check_number(extension, "an extension")


def _check_message(message: pb.DescriptorProto) -> None:
    ranges = sorted((item.start, item.end) for item in (*message.reserved_range, *message.extension_range))
    for (_, end), (start, _) in pairwise(ranges):
        if start < end:
            raise InvalidSchema(f"{message.name:.100}: reserved and extension ranges overlap at {start}")
    names = set(message.reserved_name)
    taken = {field.number: field.name for field in message.field}
    if len(taken) < len(message.field):
        raise InvalidSchema(f"{message.name:.100}: two fields have the same number")
    numbers = sorted(taken)
    position = 0
    for start, end in ranges:
        while position < len(numbers) and numbers[position] < start:
            position += 1
        if position < len(numbers) and numbers[position] < end:
            number = numbers[position]
            raise InvalidSchema(f"{message.name:.100}: the number {number} of {taken[number]:.100} is reserved")
    for field in message.field:
        _check_number(field, message.name)
        if field.name in names:
            raise InvalidSchema(f"{message.name:.100}: the name {field.name:.100} is reserved")
    for extension in message.extension:
        _check_number(extension, message.name)


def _check_number(field: pb.FieldDescriptorProto, where: str) -> None:
    if field.number in RESERVED_FIELDS:
        raise InvalidSchema(f"{where:.100}: numbers from 19000 to 19999, as {field.name:.100} has, are protobuf's own")


def _build(pool: descriptor_pool.DescriptorPool, file: pb.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, DecodeError) as error:
        _, _, reason = str(error).partition("descriptor pool: ")
        raise InvalidSchema(f"the schema is not a Protobuf file: {reason or error}") from None


def _merge(options: Any, text: str, pool: descriptor_pool.DescriptorPool | None) -> None:
    try:
        text_format.Parse(text, options, descriptor_pool=pool)
    except (text_format.ParseError, UnicodeDecodeError, ValueError) as error:
        raise InvalidSchema(f"an option that is not one: {error}") from None


def _text(option: Option, resolve: Callable[[str], str]) -> str:
    """`(a).b = 1` as text format: `[a] { b: 1 }`."""
    *outer, last = [resolve(part) for part in option.path]
    opening = "".join(f"{part} {{ " for part in outer)
    colon = "" if option.value.startswith("{") else ":"
    return f"{opening}{last}{colon} {option.value}{' }' * len(outer)}"


def _as_written(part: str) -> str:
    return part if not part.startswith("(") else f"[{part[1:-1].removeprefix('.')}]"


def _scopes(scope: str) -> Iterator[str]:
    """`a.b`, `a`, and the outermost."""
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]
    yield ""
