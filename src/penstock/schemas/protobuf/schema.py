"""A parsed Protobuf schema."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schemas.model import InvalidSchema, ParsedSchema, SchemaType


class ProtobufSchema(ParsedSchema):
    schema_type = SchemaType.PROTOBUF

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]]) -> ProtobufSchema:
        if "message" not in text:
            raise InvalidSchema("no message")
        return cls(text, references)

    @property
    def canonical(self) -> str:
        return self.text

    def normalized(self) -> ProtobufSchema:
        return self

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        return []
