"""Reads .proto texts (proto2, proto3, editions) into descriptors.

A parser of our own, because the two others do not suit a server. protoc (`grpcio-tools`) reads files: imports would
need a directory for every request, it runs C++ over what strangers send, and it ties the version of `protobuf`.
`proto-schema-parser` gives a syntax tree only (names are not resolved, options not interpreted) and is as deep in
Python's stack as the text is nested. This one is a grammar over a list of tokens: linear time, no file is ever opened,
and nesting is bounded before it begins. Tests compare its descriptors with protoc's.

What is left for `linking`: names of types are as they are written, and options are a list beside the descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from penstock.schemas.protobuf.constants import MAX_ENUM, MAX_FIELD, SCALARS
from penstock.schemas.protobuf.literals import c_escape, default_number, unquote
from penstock.schemas.protobuf.tokens import END, Tokens

_LABELS = {
    "optional": pb.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": pb.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": pb.FieldDescriptorProto.LABEL_REPEATED,
}
_EDITIONS = {"2023": pb.Edition.EDITION_2023}


@dataclass(frozen=True, slots=True)
class Option:
    """`owner` is the descriptor whose `options` it sets; `path` its name, parts in parentheses with them; `value` is in
    protobuf's text format."""

    owner: Any
    scope: str
    path: tuple[str, ...]
    value: str


@dataclass(slots=True)
class Draft:
    """A file before it is linked."""

    file: pb.FileDescriptorProto
    options: list[Option] = field(default_factory=list)


def read(text: str, name: str) -> Draft:
    return _FileReader(Tokens(text.removeprefix("\ufeff")), name).read()


class _FileReader:
    def __init__(self, tokens: Tokens, name: str) -> None:
        self._tokens = tokens
        self._draft = Draft(pb.FileDescriptorProto(name=name))
        self._proto3 = False

    def read(self) -> Draft:
        self._syntax()
        while self._tokens.next.kind != END:
            self._declaration()
        return self._draft

    def _syntax(self) -> None:
        tokens = self._tokens
        file = self._draft.file
        if tokens.skip("syntax"):
            tokens.expect("=")
            syntax = self._string()
            if syntax not in {"proto2", "proto3"}:
                raise tokens.error(f"the syntax is proto2 or proto3, not {syntax!r:.50}")
            if syntax == "proto3":
                file.syntax = syntax
                self._proto3 = True
        elif tokens.skip("edition"):
            tokens.expect("=")
            edition = self._string()
            if edition not in _EDITIONS:
                raise tokens.error(f"editions are {', '.join(_EDITIONS)}, not {edition!r:.50}")
            file.syntax = "editions"
            file.edition = _EDITIONS[edition]
        else:
            return
        tokens.expect(";")

    def _declaration(self) -> None:
        tokens, file = self._tokens, self._draft.file
        word = tokens.take_kind("identifier") if tokens.next.kind == "identifier" else tokens.take().text
        match word:
            case ";":
                pass
            case "package":
                if file.package:
                    raise tokens.error("the package is there twice")
                file.package = self._dotted()
                tokens.expect(";")
            case "import":
                self._import()
            case "option":
                self._option(file, file.package)
            case "message":
                self._message(file.message_type.add(), file.package)
            case "enum":
                self._enum(file.enum_type.add(), file.package)
            case "extend":
                self._extend(file.extension, file.message_type, file.package)
            case "service":
                self._service()
            case _:
                raise tokens.error(f"after {word!r:.50}: expected a message, an enum or another declaration")

    def _import(self) -> None:
        tokens, file = self._tokens, self._draft.file
        public = tokens.skip("public")
        weak = not public and tokens.skip("weak")
        imported = self._string()
        tokens.expect(";")
        if imported in file.dependency:
            raise tokens.error(f"{imported!r:.100} is imported twice")
        if public:
            file.public_dependency.append(len(file.dependency))
        if weak:
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(imported)

    # Messages

    def _message(self, message: pb.DescriptorProto, scope: str) -> None:
        message.name = self._tokens.take_kind("identifier")
        self._message_body(message, _join(scope, message.name))

    def _message_body(self, message: pb.DescriptorProto, scope: str) -> None:
        tokens = self._tokens
        tokens.expect("{")
        while not tokens.skip("}"):
            self._member(message, scope)
        _add_synthetic_oneofs(message)

    def _member(self, message: pb.DescriptorProto, scope: str) -> None:
        tokens = self._tokens
        if tokens.skip(";"):
            return
        # Every word may also be the name of a type: `message.Type field = 1;`, or of a type called `option`.
        keyword = tokens.next.text
        handler = {
            "message": lambda: self._message(message.nested_type.add(), scope),
            "enum": lambda: self._enum(message.enum_type.add(), scope),
            "extend": lambda: self._extend(message.extension, message.nested_type, scope),
            "oneof": lambda: self._oneof(message, scope),
            "option": lambda: self._option(message, scope),
            "reserved": lambda: self._reserved(message, MAX_FIELD, exclusive=1),
            "extensions": lambda: self._extensions(message, scope),
        }.get(keyword)
        if handler is None:
            self._field(message.field.add(), message.nested_type, scope)
        else:
            tokens.take()
            handler()

    def _field(
        self, result: pb.FieldDescriptorProto, nested: Any, scope: str, *, in_oneof: bool = False, extendee: str = ""
    ) -> None:
        tokens = self._tokens
        label = None if in_oneof else _LABELS.get(tokens.next.text)
        if label is not None:
            tokens.take()
        elif not (self._proto3 or in_oneof or self._draft.file.syntax == "editions" or tokens.next.text == "map"):
            raise tokens.error("a field of proto2 is optional, required or repeated: expected one of these")
        if self._proto3 and label == pb.FieldDescriptorProto.LABEL_REQUIRED:
            raise tokens.error("proto3 has no required fields")
        result.label = label or pb.FieldDescriptorProto.LABEL_OPTIONAL
        if extendee:
            result.extendee = extendee
        if tokens.skip("group"):
            self._group(result, nested, scope)
            return
        kind = self._type_name()
        if kind == "map" and tokens.skip("<"):
            if label is not None or in_oneof or extendee:
                raise tokens.error("a map is neither optional, required, repeated, an extension nor in a oneof")
            self._map(result, nested)
        else:
            _set_type(result, kind)
            result.name = tokens.take_kind("identifier")
            if self._proto3 and label == pb.FieldDescriptorProto.LABEL_OPTIONAL:
                result.proto3_optional = True
        self._end_of_field(result, scope)

    def _end_of_field(self, result: pb.FieldDescriptorProto, scope: str) -> None:
        tokens = self._tokens
        tokens.expect("=")
        result.number = self._number(1, MAX_FIELD)
        self._field_options(result, scope)
        tokens.expect(";")

    def _map(self, result: pb.FieldDescriptorProto, nested: Any) -> None:
        tokens = self._tokens
        key = self._type_name()
        tokens.expect(",")
        value = self._type_name()
        tokens.expect(">")
        result.name = tokens.take_kind("identifier")
        entry = nested.add(name=_camel(result.name) + "Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate([("key", key), ("value", value)], start=1):
            part = entry.field.add(name=name, number=number, label=pb.FieldDescriptorProto.LABEL_OPTIONAL)
            _set_type(part, kind)
        if SCALARS.get(key) in {None, SCALARS["double"], SCALARS["float"], SCALARS["bytes"]}:
            raise tokens.error(f"the key of a map is an integer, a bool or a string, not {key:.100}")
        result.label = pb.FieldDescriptorProto.LABEL_REPEATED
        result.type_name = entry.name

    def _group(self, result: pb.FieldDescriptorProto, nested: Any, scope: str) -> None:
        tokens = self._tokens
        if self._proto3 or self._draft.file.syntax == "editions":
            raise tokens.error("only proto2 has groups")
        name = tokens.take_kind("identifier")
        if not name[0].isupper():
            raise tokens.error(f"the name of a group begins with a capital letter, not {name:.50}")
        result.name = name.lower()
        result.type = pb.FieldDescriptorProto.TYPE_GROUP
        result.type_name = name
        tokens.expect("=")
        result.number = self._number(1, MAX_FIELD)
        self._field_options(result, scope)
        self._message_body(nested.add(name=name), _join(scope, name))

    def _oneof(self, message: pb.DescriptorProto, scope: str) -> None:
        tokens = self._tokens
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=tokens.take_kind("identifier"))
        tokens.expect("{")
        before = len(message.field)
        while not tokens.skip("}"):
            if tokens.skip("option"):
                self._option(oneof, scope)
            elif not tokens.skip(";"):
                member = message.field.add()
                self._field(member, message.nested_type, scope, in_oneof=True)
                member.oneof_index = index
        if len(message.field) == before:
            raise tokens.error(f"the oneof {oneof.name:.50} has no field")

    def _extend(self, extensions: Any, nested: Any, scope: str) -> None:
        tokens = self._tokens
        extendee = self._type_name()
        tokens.expect("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                self._field(extensions.add(), nested, scope, extendee=extendee)

    def _reserved(self, owner: Any, maximum: int, *, exclusive: int) -> None:
        """`exclusive` is 1 where the end of a range is not part of it in descriptors: for messages, not for enums."""
        tokens = self._tokens
        while True:
            if tokens.next.kind == "string":
                owner.reserved_name.append(self._string())
            elif tokens.next.kind == "identifier" and self._draft.file.syntax == "editions":
                owner.reserved_name.append(tokens.take().text)
            else:
                start, end = self._range(1 if exclusive else -MAX_ENUM - 1, maximum)
                owner.reserved_range.add(start=start, end=end + exclusive)
            if not tokens.skip(","):
                break
        tokens.expect(";")

    def _extensions(self, message: pb.DescriptorProto, scope: str) -> None:
        tokens = self._tokens
        added = []
        while True:
            start, end = self._range(1, MAX_FIELD)
            added.append(message.extension_range.add(start=start, end=end + 1))
            if not tokens.skip(","):
                break
        if tokens.next.text == "[":
            before = len(self._draft.options)
            self._bracketed(added[0], scope)
            given = self._draft.options[before:]
            self._draft.options += [
                Option(other, option.scope, option.path, option.value) for other in added[1:] for option in given
            ]
        tokens.expect(";")

    def _range(self, minimum: int, maximum: int) -> tuple[int, int]:
        start = end = self._number(minimum, maximum)
        if self._tokens.skip("to"):
            end = maximum if self._tokens.skip("max") else self._number(minimum, maximum)
        if end < start:
            raise self._tokens.error(f"the range ends at {end}, before it begins")
        return start, end

    # Enums and services

    def _enum(self, enum: pb.EnumDescriptorProto, scope: str) -> None:
        tokens = self._tokens
        enum.name = tokens.take_kind("identifier")
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip("option"):
                self._option(enum, scope)
            elif tokens.skip("reserved"):
                self._reserved(enum, MAX_ENUM, exclusive=0)
            elif not tokens.skip(";"):
                value = enum.value.add(name=tokens.take_kind("identifier"))
                tokens.expect("=")
                value.number = self._number(-MAX_ENUM - 1, MAX_ENUM)
                self._bracketed(value, scope)
                tokens.expect(";")

    def _service(self) -> None:
        tokens, scope = self._tokens, self._draft.file.package
        service = self._draft.file.service.add(name=tokens.take_kind("identifier"))
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip("option"):
                self._option(service, scope)
            elif tokens.skip("rpc"):
                self._method(service.method.add(), scope)
            else:
                tokens.expect(";")

    def _method(self, method: pb.MethodDescriptorProto, scope: str) -> None:
        tokens = self._tokens
        method.name = tokens.take_kind("identifier")
        method.input_type, client_streaming = self._message_type()
        tokens.expect("returns")
        method.output_type, server_streaming = self._message_type()
        if client_streaming:
            method.client_streaming = True
        if server_streaming:
            method.server_streaming = True
        if not tokens.skip("{"):
            tokens.expect(";")
            return
        method.options.SetInParent()
        while not tokens.skip("}"):
            if tokens.skip("option"):
                self._option(method, scope)
            else:
                tokens.expect(";")
        tokens.skip(";")

    def _message_type(self) -> tuple[str, bool]:
        tokens = self._tokens
        tokens.expect("(")
        stream = tokens.skip("stream")
        name = self._type_name()
        tokens.expect(")")
        return name, stream

    # Options

    def _option(self, owner: Any, scope: str) -> None:
        self._assignment(owner, scope)
        self._tokens.expect(";")

    def _bracketed(self, owner: Any, scope: str) -> None:
        tokens = self._tokens
        if not tokens.skip("["):
            return
        while True:
            self._assignment(owner, scope)
            if not tokens.skip(","):
                break
        tokens.expect("]")

    def _field_options(self, result: pb.FieldDescriptorProto, scope: str) -> None:
        tokens = self._tokens
        if not tokens.skip("["):
            return
        while True:
            if tokens.next.text == "default":
                tokens.take()
                tokens.expect("=")
                self._default(result)
            elif tokens.next.text == "json_name":
                tokens.take()
                tokens.expect("=")
                result.json_name = self._string()
            else:
                self._assignment(result, scope)
            if not tokens.skip(","):
                break
        tokens.expect("]")

    def _default(self, result: pb.FieldDescriptorProto) -> None:
        tokens = self._tokens
        if self._proto3:
            raise tokens.error("proto3 has no defaults of its own")
        if tokens.next.kind == "string":
            raw = self._bytes()
            if result.type == pb.FieldDescriptorProto.TYPE_BYTES:
                result.default_value = c_escape(raw)
            elif result.type == pb.FieldDescriptorProto.TYPE_STRING:
                result.default_value = self._decoded(raw)
            else:
                raise tokens.error(f"the default of {result.name:.50} is not a string")
            return
        sign = "-" if tokens.skip("-") else ""
        result.default_value = default_number(tokens, sign, result)

    def _assignment(self, owner: Any, scope: str) -> None:
        tokens = self._tokens
        path = [self._option_part()]
        while tokens.skip("."):
            path.append(self._option_part())
        tokens.expect("=")
        self._draft.options.append(Option(owner, scope, tuple(path), self._constant()))

    def _option_part(self) -> str:
        tokens = self._tokens
        if not tokens.skip("("):
            return tokens.take_kind("identifier")
        name = self._type_name()
        tokens.expect(")")
        return f"({name})"

    def _constant(self) -> str:
        tokens = self._tokens
        if tokens.next.text == "{" and tokens.next.kind == "symbol":
            return self._aggregate()
        if tokens.next.kind == "string":
            return f'"{c_escape(self._bytes())}"'
        sign = "-" if tokens.skip("-") else ""
        if tokens.next.kind not in {"identifier", "integer", "float"}:
            raise tokens.error("expected the value of an option")
        return sign + tokens.take().text

    def _aggregate(self) -> str:
        """A message in text format, as it is, but for comments."""
        tokens = self._tokens
        words: list[str] = []
        depth = 0
        while True:
            token = tokens.take()
            if token.kind == END:
                raise tokens.error("the value of an option has no end")
            depth += token.kind == "symbol" and token.text == "{"
            depth -= token.kind == "symbol" and token.text == "}"
            # A sign belongs to its number, and dots and slashes to their names.
            glued = token.text in {"-", ".", "/"} or (words and words[-1] in {"-", ".", "/"})
            words.append(token.text if glued or not words else f" {token.text}")
            if depth == 0:
                return "".join(words)

    # Words

    def _number(self, minimum: int, maximum: int) -> int:
        number = self._tokens.integer()
        if not minimum <= number <= maximum:
            raise self._tokens.error(f"{number if abs(number) < 2**64 else 'the number'} is out of range")
        return number

    def _dotted(self) -> str:
        parts = [self._tokens.take_kind("identifier")]
        while self._tokens.skip("."):
            parts.append(self._tokens.take_kind("identifier"))
        return ".".join(parts)

    def _type_name(self) -> str:
        return ("." if self._tokens.skip(".") else "") + self._dotted()

    def _bytes(self) -> bytes:
        parts = [unquote(self._tokens.take_kind("string"), self._tokens)]
        while self._tokens.next.kind == "string":
            parts.append(unquote(self._tokens.take().text, self._tokens))
        return b"".join(parts)

    def _string(self) -> str:
        return self._decoded(self._bytes())

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._tokens.error("a string that is not UTF-8") from None


def _set_type(result: pb.FieldDescriptorProto, kind: str) -> None:
    if kind in SCALARS:
        result.type = SCALARS[kind]
    else:
        result.type_name = kind


def _add_synthetic_oneofs(message: pb.DescriptorProto) -> None:
    """In proto3, an optional field is alone in a oneof that is not visible. These stand after the others."""
    names = {field.name for field in message.field} | {oneof.name for oneof in message.oneof_decl}
    for optional in message.field:
        if optional.proto3_optional:
            name = f"_{optional.name}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            optional.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
