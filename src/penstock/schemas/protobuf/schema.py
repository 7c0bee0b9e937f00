"""A parsed Protobuf schema: a file, the files that it imports, and its text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from functools import cached_property

from google.protobuf import descriptor_pb2 as pb

from penstock.schemas.model import InvalidSchema, ParsedSchema, SchemaType, is_base64
from penstock.schemas.protobuf.comparison import compare
from penstock.schemas.protobuf.known import known
from penstock.schemas.protobuf.linking import Linker, decode
from penstock.schemas.protobuf.reading import Draft, read
from penstock.schemas.protobuf.writing import normalize, write

_NAME = "schema.proto"


class ProtobufSchema(ParsedSchema):
    schema_type = SchemaType.PROTOBUF

    def __init__(self, text: str, references: Sequence[tuple[str, str]], file: pb.FileDescriptorProto, linker: Linker):
        self.file = file
        self.linker = linker
        super().__init__(text, references)

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]]) -> ProtobufSchema:
        linker = Linker(known)
        for name, part in references:
            try:
                # Its own import of a file that comes with the language may have brought it already.
                if name not in linker.files:
                    linker.add(_draft(part, name)[0])
            except InvalidSchema as error:
                raise InvalidSchema(f"the reference {name:.100}: {error}") from None
        name = _NAME
        while name in linker.files:
            name = f"_{name}"
        draft, encoded = _draft(text, name)
        schema = cls(text, references, linker.add(draft), linker)
        if encoded:
            schema.text = schema.canonical
        schema.canonical.encode()
        return schema

    @property
    def name(self) -> str | None:
        """The full name of the first message."""
        return next((name for name, _ in self.messages()), None)

    @cached_property
    def canonical(self) -> str:
        return write(self.file, self.linker)

    def normalized(self) -> ProtobufSchema:
        return ProtobufSchema.parse(write(normalize(self.file), self.linker, full_names=True), self.references)

    def serialized(self) -> str:
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def messages(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The full name of every message and its indexes: its place in the file, and so on inwards.

        Entries of maps are messages to descriptors and count, as they do for clients that use descriptors."""
        yield from _messages(self.file.message_type, self.file.package, ())

    def message_indexes(self, full_name: str) -> tuple[int, ...]:
        return dict(self.messages())[full_name]

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        return compare(self.file, self.linker.files, writer.file, writer.linker.files)


def _draft(text: str, name: str) -> tuple[Draft, bool]:
    """A .proto text, or a serialized descriptor in base64."""
    if not is_base64(text):
        return read(text, name), False
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise InvalidSchema(f"the schema is neither a .proto text nor base64: {error}") from None
    return decode(data, name), True


def _messages(
    messages: Sequence[pb.DescriptorProto], scope: str, indexes: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for index, message in enumerate(messages):
        name = f"{scope}.{message.name}" if scope else message.name
        yield name, (*indexes, index)
        yield from _messages(message.nested_type, name, (*indexes, index))
