"""A descriptor as .proto text, in the order in which Confluent's registry writes it.

The text has everything that the descriptor has, and reads as the same descriptor. Comments are not in descriptors;
entries of maps and oneofs of optional fields are written as what they stand for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import text_format, unknown_fields
from google.protobuf.descriptor import FieldDescriptor

from penstock.schemas.protobuf.constants import MAX_ENUM, MAX_FIELD, SCALAR_NAMES
from penstock.schemas.protobuf.linking import Linker, json_name
from penstock.schemas.protobuf.literals import c_escape, format_float
from penstock.schemas.protobuf.names import Names

_LABELS = {
    pb.FieldDescriptorProto.LABEL_OPTIONAL: "optional",
    pb.FieldDescriptorProto.LABEL_REQUIRED: "required",
    pb.FieldDescriptorProto.LABEL_REPEATED: "repeated",
}
_EDITIONS = {pb.Edition.EDITION_2023: "2023"}
# Their values are written by their names.
_WORDS = {pb.FieldDescriptorProto.TYPE_BOOL, pb.FieldDescriptorProto.TYPE_ENUM}

Lines = list[str]


def write(file: pb.FileDescriptorProto, linker: Linker, *, full_names: bool = False) -> str:
    names = Names([] if full_names else linker.files.values())
    return "\n".join([*_Writer(file, linker, names).lines(), ""])


def normalize(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """The same file with everything by its number or name. Messages stay in their order: records count them."""
    result = pb.FileDescriptorProto()
    result.CopyFrom(file)
    public = {file.dependency[index] for index in file.public_dependency}
    weak = {file.dependency[index] for index in file.weak_dependency}
    del result.dependency[:], result.public_dependency[:], result.weak_dependency[:]
    result.dependency.extend(sorted(file.dependency))
    result.public_dependency.extend(index for index, name in enumerate(result.dependency) if name in public)
    result.weak_dependency.extend(index for index, name in enumerate(result.dependency) if name in weak)
    for message in result.message_type:
        _normalize_message(message)
    for enum in result.enum_type:
        _normalize_enum(enum)
    result.extension.sort(key=_number)
    return result


def _normalize_message(message: pb.DescriptorProto) -> None:
    first: dict[int, int] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            first[field.oneof_index] = min(field.number, first.get(field.oneof_index, MAX_FIELD))
    order = sorted(range(len(message.oneof_decl)), key=lambda index: first.get(index, MAX_FIELD))
    # The oneofs that optional fields of proto3 are in stay behind the others.
    hidden = {field.oneof_index for field in message.field if field.proto3_optional}
    order.sort(key=lambda index: index in hidden)
    place = {index: position for position, index in enumerate(order)}
    oneofs = [pb.OneofDescriptorProto.FromString(message.oneof_decl[index].SerializeToString()) for index in order]
    del message.oneof_decl[:]
    message.oneof_decl.extend(oneofs)
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = place[field.oneof_index]
    message.field.sort(key=_number)
    message.extension.sort(key=_number)
    message.reserved_range.sort(key=_start)
    message.extension_range.sort(key=_start)
    names = sorted(message.reserved_name)
    del message.reserved_name[:]
    message.reserved_name.extend(names)
    for nested in message.nested_type:
        _normalize_message(nested)
    for enum in message.enum_type:
        _normalize_enum(enum)


def _normalize_enum(enum: pb.EnumDescriptorProto) -> None:
    # Of proto2, the first value is the default: it stays first.
    first = enum.value[0].name if enum.value else ""
    enum.value.sort(key=lambda value: (value.name != first, value.number, value.name))
    enum.reserved_range.sort(key=_start)
    names = sorted(enum.reserved_name)
    del enum.reserved_name[:]
    enum.reserved_name.extend(names)


def _number(field: pb.FieldDescriptorProto) -> tuple[str, int]:
    return field.extendee, field.number


def _start(reserved: Any) -> int:
    start: int = reserved.start
    return start


class _Writer:
    def __init__(self, file: pb.FileDescriptorProto, linker: Linker, names: Names) -> None:
        self._file = file
        self._linker = linker
        self._names = names

    def lines(self) -> Lines:
        file = self._file
        if file.syntax == "editions":
            lines = [f'edition = "{_EDITIONS[file.edition]}";']
        else:
            lines = [f'syntax = "{file.syntax or "proto2"}";']
        if file.package:
            lines.append(f"package {file.package};")
        lines += _section(self._imports())
        lines += _section(self._option_statements(file))
        types = [line for message in file.message_type for line in self._message(message, file.package)]
        types += [line for enum in file.enum_type for line in self._enum(enum)]
        lines += _section(types)
        lines += _section(self._extends(file.extension, file.message_type, file.package))
        lines += _section([line for service in file.service for line in self._service(service)])
        return lines

    def _imports(self) -> Lines:
        file = self._file
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        lines = [
            (
                index in public,
                f'import {"weak " if index in weak else ""}{"public " * (index in public)}"{_quoted(name)}";',
            )
            for index, name in enumerate(file.dependency)
        ]
        return [line for _, line in sorted(lines, key=lambda line: line[0])]

    # Messages

    def _message(self, message: pb.DescriptorProto, scope: str) -> Lines:
        return _block(f"message {message.name}", self._members(message, _join(scope, message.name)))

    def _members(self, message: pb.DescriptorProto, scope: str) -> Lines:
        lines = _reserved(
            [(item.start, item.end - 1) for item in message.reserved_range], message.reserved_name, MAX_FIELD
        )
        lines += self._option_statements(message)
        lines += self._fields_and_messages(message, scope)
        for item in message.extension_range:
            options = self._bracketed(self._assignments(item.options) if item.HasField("options") else [])
            lines += _statement(f"extensions {_range(item.start, item.end - 1, MAX_FIELD)}", options)
        lines += self._extends(message.extension, message.nested_type, scope)
        for enum in message.enum_type:
            lines += self._enum(enum)
        return lines

    def _fields_and_messages(self, message: pb.DescriptorProto, scope: str) -> Lines:
        """Messages come last, but every message keeps its index: maps and groups make messages, too, where they stand,
        so a message that was before such a field stays before it."""
        nested = {f".{_join(scope, inner.name)}": inner for inner in message.nested_type}
        entries = {name: inner for name, inner in nested.items() if inner.options.map_entry}
        groups = {field.type_name for field in (*message.field, *message.extension) if _is_group(field)}
        plain = deque(name for name in nested if name not in entries and name not in groups)
        position = {name: index for index, name in enumerate(nested)}
        made_before = {name: position[name] - index for index, name in enumerate(plain)}
        made = 0
        lines: Lines = []
        for fields in _by_oneof(message):
            making = sum(field.type_name in entries or _is_group(field) for field in fields)
            while making and plain and made_before[plain[0]] <= made:
                lines += self._message(nested[plain.popleft()], scope)
            made += making
            written = [line for field in fields for line in self._field(field, scope, entries, nested)]
            if _in_oneof(fields[0]):
                oneof = message.oneof_decl[fields[0].oneof_index]
                written = _block(f"oneof {oneof.name}", [*self._option_statements(oneof), *written])
            lines += written
        return lines + [line for name in plain for line in self._message(nested[name], scope)]

    def _field(
        self,
        field: pb.FieldDescriptorProto,
        scope: str,
        entries: dict[str, pb.DescriptorProto],
        nested: Mapping[str, pb.DescriptorProto],
    ) -> Lines:
        options = self._bracketed(self._field_assignments(field))
        if field.type_name in entries:
            key, value = entries[field.type_name].field
            kind = f"map<{self._type(key, scope)}, {self._type(value, scope)}>"
            return _statement(f"{kind} {field.name} = {field.number}", options)
        label = self._label(field)
        if _is_group(field):
            group = nested[field.type_name]
            head = _statement(f"{label}group {group.name} = {field.number}", options, end="")
            return [*head[:-1], *_block(head[-1], self._members(group, field.type_name[1:]))]
        return _statement(f"{label}{self._type(field, scope)} {field.name} = {field.number}", options)

    def _label(self, field: pb.FieldDescriptorProto) -> str:
        repeated = field.label == pb.FieldDescriptorProto.LABEL_REPEATED
        plain = self._file.syntax in {"proto3", "editions"}
        if _in_oneof(field) or (plain and not repeated and not field.proto3_optional):
            return ""
        return f"{_LABELS[field.label]} "

    def _type(self, field: pb.FieldDescriptorProto, scope: str) -> str:
        return self._names.relative(field.type_name, scope) if field.type_name else SCALAR_NAMES[field.type]

    def _extends(
        self, extensions: Sequence[pb.FieldDescriptorProto], nested: Iterable[pb.DescriptorProto], scope: str
    ) -> Lines:
        extended: dict[str, Lines] = {}
        by_name = {f".{_join(scope, message.name)}": message for message in nested}
        for extension in extensions:
            extended.setdefault(extension.extendee, []).extend(self._field(extension, scope, {}, by_name))
        return [
            line
            for extendee, fields in extended.items()
            for line in _block(f"extend {self._names.relative(extendee, scope)}", fields)
        ]

    # Enums and services

    def _enum(self, enum: pb.EnumDescriptorProto) -> Lines:
        reserved = [(item.start, item.end) for item in enum.reserved_range]
        lines = _reserved(reserved, enum.reserved_name, MAX_ENUM)
        lines += self._option_statements(enum)
        for value in enum.value:
            options = self._bracketed(self._assignments(value.options) if value.HasField("options") else [])
            lines += _statement(f"{value.name} = {value.number}", options)
        return _block(f"enum {enum.name}", lines)

    def _service(self, service: pb.ServiceDescriptorProto) -> Lines:
        lines = self._option_statements(service)
        scope = _join(self._file.package, service.name)
        for method in service.method:
            asked = "stream " * method.client_streaming + self._names.relative(method.input_type, scope)
            answered = "stream " * method.server_streaming + self._names.relative(method.output_type, scope)
            head = f"rpc {method.name} ({asked}) returns ({answered})"
            lines += _block(head, self._option_statements(method)) if method.HasField("options") else [f"{head};"]
        return _block(f"service {service.name}", lines)

    # Options

    def _option_statements(self, owner: Any) -> Lines:
        if not owner.HasField("options"):
            return []
        return [f"option {assignment};" for assignment in self._assignments(owner.options)]

    def _field_assignments(self, field: pb.FieldDescriptorProto) -> Lines:
        assignments = self._assignments(field.options) if field.HasField("options") else []
        if field.HasField("default_value"):
            assignments.append(f"default = {_default(field)}")
        if field.HasField("json_name") and field.json_name != json_name(field.name):
            assignments.append(f'json_name = "{_quoted(field.json_name)}"')
        return assignments

    def _assignments(self, options: Any) -> Lines:
        if len(unknown_fields.UnknownFieldSet(options)):
            options = self._linker.options(options)
        lines = []
        for field, value in options.ListFields():
            if field.full_name == "google.protobuf.MessageOptions.map_entry":
                continue
            name = f"({field.full_name})" if field.is_extension else field.name
            lines += [f"{name} = {_value(field, item)}" for item in (value if field.is_repeated else [value])]
        return lines

    def _bracketed(self, assignments: Lines) -> Lines:
        if len(assignments) < 2:
            return [f" [{assignments[0]}]"] if assignments else [""]
        last = len(assignments) - 1
        return [" [", *(f"  {line}{',' * (index < last)}" for index, line in enumerate(assignments)), "]"]


def _in_oneof(field: pb.FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _by_oneof(message: pb.DescriptorProto) -> list[list[pb.FieldDescriptorProto]]:
    """Fields, each alone or with all of its oneof."""
    result: list[list[pb.FieldDescriptorProto]] = []
    oneofs: dict[int, list[pb.FieldDescriptorProto]] = {}
    for field in message.field:
        if not _in_oneof(field):
            result.append([field])
        elif field.oneof_index in oneofs:
            oneofs[field.oneof_index].append(field)
        else:
            result.append([field])
            oneofs[field.oneof_index] = result[-1]
    return result


def _section(lines: Lines) -> Lines:
    return ["", *lines] if lines else []


def _block(head: str, lines: Lines) -> Lines:
    return [f"{head} {{", *(f"  {line}" for line in lines), "}"] if lines else [f"{head} {{}}"]


def _statement(head: str, options: Lines, end: str = ";") -> Lines:
    first, *others = options
    lines = [head + first, *others]
    return [*lines[:-1], lines[-1] + end]


def _reserved(ranges: Sequence[tuple[int, int]], names: Iterable[str], maximum: int) -> Lines:
    lines = [f"reserved {_range(start, end, maximum)};" for start, end in ranges]
    return lines + [f'reserved "{_quoted(name)}";' for name in names]


def _range(start: int, end: int, maximum: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end == maximum else end}"


def _is_group(field: pb.FieldDescriptorProto) -> bool:
    return bool(field.type == pb.FieldDescriptorProto.TYPE_GROUP)


def _default(field: pb.FieldDescriptorProto) -> str:
    if field.type == pb.FieldDescriptorProto.TYPE_STRING:
        return f'"{_quoted(field.default_value)}"'
    if field.type == pb.FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'
    return str(field.default_value)


def _value(field: FieldDescriptor, value: Any) -> str:
    if field.type == FieldDescriptor.TYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return str(named.name) if named else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{_quoted(value)}"'
    if isinstance(value, bytes):
        return f'"{c_escape(value)}"'
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, int):
        return str(value)
    text: str = text_format.MessageToString(value, as_one_line=True, as_utf8=False)
    return f"{{ {text} }}"


def _quoted(text: str) -> str:
    return c_escape(text.encode(errors="surrogatepass"))


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
