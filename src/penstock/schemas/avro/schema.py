"""A parsed Avro schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from penstock.schemas.avro.reading import Reader
from penstock.schemas.avro.resolution import resolve
from penstock.schemas.avro.types import Named, Record, Type
from penstock.schemas.avro.writing import Writer
from penstock.schemas.model import InvalidSchema, ParsedSchema, SchemaType, dump_json


class AvroSchema(ParsedSchema):
    schema_type = SchemaType.AVRO

    def __init__(self, text: str, references: Sequence[tuple[str, str]], root: Type, known: Sequence[Named]) -> None:
        super().__init__(text, references)
        self.root = root
        self._known = known

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]], *, new: bool) -> AvroSchema:
        reader = Reader(new=new)
        for name, part in references:
            try:
                reader.read(part)
            except InvalidSchema as error:
                raise InvalidSchema(f"the reference {name:.100}: {error}") from None
        known = list(reader.names.values())
        schema = cls(text, references, reader.read(text), known)
        schema.canonical.encode()
        return schema

    @property
    def name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, Record) else None

    @cached_property
    def canonical(self) -> str:
        return dump_json(Writer(self._known).write(self.root))

    def normalized(self) -> AvroSchema:
        text = dump_json(Writer(self._known, normalize=True).write(self.root))
        return AvroSchema.parse(text, self.references, new=False)

    def resolved(self) -> str:
        """The schema in one text, with the types of other schemas where they are first used."""
        return dump_json(Writer(()).write(self.root))

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, AvroSchema)
        return resolve(self.root, writer.root)
