"""From a schema's text to a parsed schema, by its type."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schemas.avro.schema import AvroSchema
from penstock.schemas.json_schema.schema import JsonSchema
from penstock.schemas.model import InvalidSchema, ParsedSchema, SchemaType, check_size


def parse(
    schema_type: SchemaType, text: str, references: Sequence[tuple[str, str]] = (), *, new: bool = True
) -> ParsedSchema:
    """The schema of a text; `InvalidSchema` if it is none.

    `references` are the names and texts of the schemas that it refers to, directly and indirectly, those that others
    need first. A schema that is already stored (`new=False`) may have what is refused in a new one: Avro names and
    defaults that older registries let pass.
    """
    check_size(text, references)
    try:
        match schema_type:
            case SchemaType.AVRO:
                return AvroSchema.parse(text, references, new=new)
            case SchemaType.JSON:
                return JsonSchema.parse(text, references)
            case SchemaType.PROTOBUF:
                # It needs packages that the other two do not.
                from penstock.schemas.protobuf.schema import ProtobufSchema

                return ProtobufSchema.parse(text, references)
    except RecursionError:
        raise InvalidSchema("the schema is nested too deeply") from None
