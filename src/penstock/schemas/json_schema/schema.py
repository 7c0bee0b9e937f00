"""A parsed JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schemas.model import InvalidSchema, ParsedSchema, SchemaType, dump_json, load_json


class JsonSchema(ParsedSchema):
    schema_type = SchemaType.JSON

    def __init__(self, text: str, references: Sequence[tuple[str, str]], root: object) -> None:
        super().__init__(text, references)
        self.root = root

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]]) -> JsonSchema:
        root = load_json(text)
        if not isinstance(root, (dict, bool)):
            raise InvalidSchema("a JSON schema is an object or a boolean")
        schema = cls(text, references, root)
        schema.canonical.encode()
        return schema

    @property
    def canonical(self) -> str:
        return dump_json(self.root)

    def normalized(self) -> JsonSchema:
        return self

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        return []
