"""A parsed JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from penstock.schemas.json_schema.comparison import compare
from penstock.schemas.json_schema.documents import Documents
from penstock.schemas.json_schema.loading import load
from penstock.schemas.json_schema.nodes import Node
from penstock.schemas.json_schema.policy import Policy
from penstock.schemas.model import ParsedSchema, SchemaType, dump_json, load_json, sorted_json


class JsonSchema(ParsedSchema):
    schema_type = SchemaType.JSON

    def __init__(self, text: str, references: Sequence[tuple[str, str]], document: object, root: Node) -> None:
        super().__init__(text, references)
        self.document = document
        self.root = root

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]]) -> JsonSchema:
        document = load_json(text)
        schema = cls(text, references, document, load(Documents(document, references)))
        schema.canonical.encode()
        return schema

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    @cached_property
    def canonical(self) -> str:
        return dump_json(self.document)

    def normalized(self) -> JsonSchema:
        return JsonSchema.parse(dump_json(sorted_json(self.document)), self.references)

    def incompatibilities(self, writer: ParsedSchema, policy: Policy = Policy.STRICT) -> list[str]:
        assert isinstance(writer, JsonSchema)
        return compare(self.root, writer.root, policy)
