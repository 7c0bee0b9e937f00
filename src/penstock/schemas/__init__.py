"""Avro, Protobuf and JSON schemas: their texts, their identity, and whether one reads what another wrote."""

from penstock.schemas.compatibility import Compatibility, check, incompatibilities
from penstock.schemas.json_schema.policy import Policy
from penstock.schemas.model import InvalidSchema, ParsedSchema, Reference, SchemaType, is_base64
from penstock.schemas.parsing import parse

__all__ = [
    "Compatibility",
    "InvalidSchema",
    "ParsedSchema",
    "Policy",
    "Reference",
    "SchemaType",
    "check",
    "incompatibilities",
    "is_base64",
    "parse",
]
