"""Makes complete descriptors: names of types are resolved, options interpreted, and the rules of the language checked.

protobuf's own descriptor pool does the first: it takes names as they are written, and gives them back resolved. A
custom option is a field of an extended `google.protobuf.FieldOptions` (or another), so it is read after the extensions
are known: the file goes into a pool without its custom options, they are read with the classes of this pool, and the
complete file goes into another pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError, EncodeError

from penstock.schemas.model import InvalidSchema
from penstock.schemas.protobuf.constants import RESERVED_FIELDS
from penstock.schemas.protobuf.reading import Draft, Option

_DESCRIPTOR = "google/protobuf/descriptor.proto"
# protoc's bound.
_MAX_MESSAGES_DEEP = 32
# Names are looked up in every part of the package.
_MAX_PACKAGE = 512


class Linker:
    """Files by name; each is added after those that it imports. `known` gives the files that come with the language."""

    def __init__(self, known: Callable[[str], pb.FileDescriptorProto | None]) -> None:
        self.files: dict[str, pb.FileDescriptorProto] = {}
        self.pool = descriptor_pool.DescriptorPool()
        self._drafts = descriptor_pool.DescriptorPool()
        self._in_drafts: set[str] = set()
        self._known = known
        self._defined_in: dict[str, str] = {}  # the files of types, by full name with a dot before it

    def add(self, draft: Draft) -> pb.FileDescriptorProto:
        """The file as it is after linking, which later files may import."""
        file = draft.file
        for imported in file.dependency:
            self._import(imported, file.name)
        custom: dict[int, list[Option]] = {}
        for option in draft.options:
            if option.path[0].startswith("("):
                custom.setdefault(id(option.owner), []).append(option)
            else:
                _merge(option, option.owner.options, _as_written, None)
        check(file)
        if custom:
            self._draft(file)
            for options in custom.values():
                self._interpret(options)
        _build(self.pool, file)
        return self._keep(file)

    def options(self, options: Any) -> Any:
        """The same options with the custom ones as fields."""
        self._import(_DESCRIPTOR, "")
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
        _build(self.pool, file)
        self._keep(file)

    def _draft(self, file: pb.FileDescriptorProto) -> None:
        """Most schemas have no custom options, so the second pool gets its files when it is needed."""
        self._import(_DESCRIPTOR, "")
        for other in self.files.values():
            if other.name not in self._in_drafts:
                _build(self._drafts, other)
                self._in_drafts.add(other.name)
        _build(self._drafts, file)
        self._in_drafts.add(file.name)

    def _keep(self, file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
        name = file.name
        from_pool = pb.FileDescriptorProto()
        self.pool.FindFileByName(name).CopyToProto(from_pool)
        linked = _with_types(file, from_pool)
        self._check_visible(linked)
        self.files[name] = linked
        for message in all_messages(linked):
            self._defined_in[f".{message.full_name}"] = name
            for enum in message.descriptor.enum_type:
                self._defined_in[f".{message.full_name}.{enum.name}"] = name
        for enum in linked.enum_type:
            self._defined_in[f".{linked.package}.{enum.name}" if linked.package else f".{enum.name}"] = name
        return linked

    def _check_visible(self, file: pb.FileDescriptorProto) -> None:
        """The pool finds what is in it; a file may use what it imports, and what that imports publicly."""
        visible = {file.name}
        waiting = list(file.dependency)
        while waiting:
            name = waiting.pop()
            if name not in visible:
                visible.add(name)
                waiting += [self.files[name].dependency[index] for index in self.files[name].public_dependency]
        for used in _used_types(file):
            if self._defined_in.get(used, file.name) not in visible:
                raise InvalidSchema(
                    f"{used[1:]:.200} is defined in {self._defined_in[used]:.200}, which is not imported"
                )

    def _interpret(self, given: list[Option]) -> None:
        """The options of one owner, which may set parts of the same message."""
        options = given[0].owner.options
        found = self._drafts.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        custom = message_factory.GetMessageClass(found)()
        for option in given:
            _merge(option, custom, self._extension(option.scope), self._drafts)
        try:
            options.MergeFromString(custom.SerializeToString(deterministic=True))
        except (ValueError, EncodeError) as error:  # half a surrogate pair; a message that lacks required fields
            raise InvalidSchema(f"the options {given[0].path[0]:.200} and more: {error}") from None

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
    """A descriptor that a client sends is linked again, because it is not checked yet."""
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


class FoundMessage(NamedTuple):
    descriptor: pb.DescriptorProto
    full_name: str


def all_messages(file: pb.FileDescriptorProto) -> Iterator[FoundMessage]:
    """Outer messages before those in them."""
    level = [FoundMessage(message, _join(file.package, message.name)) for message in file.message_type]
    for _ in range(_MAX_MESSAGES_DEEP):
        yield from level
        level = [
            FoundMessage(nested, f"{outer.full_name}.{nested.name}")
            for outer in level
            for nested in outer.descriptor.nested_type
        ]
        if not level:
            return
    raise InvalidSchema(f"messages are nested deeper than {_MAX_MESSAGES_DEEP} levels")


def check(file: pb.FileDescriptorProto) -> None:
    """What the pool lets pass and protoc does not."""
    if len(file.package) > _MAX_PACKAGE:
        raise InvalidSchema(f"the name of the package is longer than {_MAX_PACKAGE} characters")
    enums = list(file.enum_type)
    for message, _ in all_messages(file):
        _check_message(message)
        enums += message.enum_type
    for enum in enums:
        if not enum.options.allow_alias and len({value.number for value in enum.value}) < len(enum.value):
            raise InvalidSchema(f"{enum.name:.100}: two values have the same number, and allow_alias is not set")
    for extension in file.extension:
        _check_field(extension, "an extension")


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
        _check_field(field, message.name)
        if field.name in names:
            raise InvalidSchema(f"{message.name:.100}: the name {field.name:.100} is reserved")
    for extension in message.extension:
        _check_field(extension, message.name)


def _check_field(field: pb.FieldDescriptorProto, where: str) -> None:
    if field.HasField("default_value") and field.label == pb.FieldDescriptorProto.LABEL_REPEATED:
        raise InvalidSchema(f"{where:.100}: the repeated field {field.name:.100} has a default")
    if field.json_name == json_name(field.name):
        field.ClearField("json_name")  # protoc writes it, others do not; it is the same schema
    if field.number in RESERVED_FIELDS:
        raise InvalidSchema(f"{where:.100}: numbers from 19000 to 19999, as {field.name:.100} has, are protobuf's own")


def _build(pool: descriptor_pool.DescriptorPool, file: pb.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError, DecodeError) as error:
        _, _, reason = str(error).partition("descriptor pool: ")
        raise InvalidSchema(f"the schema is not a Protobuf file: {reason or error}") from None


def _merge(
    option: Option, options: Any, resolve: Callable[[str], str], pool: descriptor_pool.DescriptorPool | None
) -> None:
    text = _text(option, resolve)
    try:
        if len(option.path) == 1:
            text_format.Parse(text, options, descriptor_pool=pool)  # which refuses a second value
        else:
            options.MergeFrom(text_format.Parse(text, type(options)(), descriptor_pool=pool))
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


def _with_types(file: pb.FileDescriptorProto, from_pool: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """The file with the types that the pool has found. The rest stays: the pool writes defaults its own way."""
    result = pb.FileDescriptorProto()
    result.CopyFrom(file)
    for ours, found in zip(all_fields(result), all_fields(from_pool), strict=True):
        ours.type = found.type
        if found.type_name:
            ours.type_name = found.type_name
        if found.extendee:
            ours.extendee = found.extendee
    for ours, found in zip(_methods(result), _methods(from_pool), strict=True):
        ours.input_type, ours.output_type = found.input_type, found.output_type
    return result


def all_fields(file: pb.FileDescriptorProto) -> Iterator[pb.FieldDescriptorProto]:
    yield from file.extension
    for message, _ in all_messages(file):
        yield from message.field
        yield from message.extension


def _methods(file: pb.FileDescriptorProto) -> Iterator[pb.MethodDescriptorProto]:
    return (method for service in file.service for method in service.method)


def _used_types(file: pb.FileDescriptorProto) -> Iterator[str]:
    for field in all_fields(file):
        yield from (name for name in (field.type_name, field.extendee) if name)
    for method in _methods(file):
        yield from (method.input_type, method.output_type)


def json_name(name: str) -> str:
    """The name of a field in JSON, if nothing else is said."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _scopes(scope: str) -> Iterator[str]:
    """`a.b`, `a`, and the outermost."""
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]
    yield ""
