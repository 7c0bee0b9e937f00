"""What the three formats have in common: a parsed schema, and the error of a schema that cannot be one.

Schemas come from clients, so everything here is bounded: the size of a text, its nesting, and the number of comparisons
between two schemas (`penstock.schemas.steps`). Only `InvalidSchema` leaves `parse`.
"""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# A schema is one record of `_schemas`, and a topic takes 1 MiB a record unless its settings say otherwise.
MAX_SCHEMA_BYTES = 1024 * 1024
# Of brackets in JSON, or braces in .proto. A nested Avro record takes three.
MAX_NESTING = 200
# The text of a schema and of all that it refers to.
MAX_RESOLVED_BYTES = 8 * MAX_SCHEMA_BYTES
MAX_REFERENCES = 1000
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


class SchemaType(StrEnum):
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class InvalidSchema(ValueError):
    """The text is no schema of its type; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: by the name it uses, and the subject and version where it is stored."""

    name: str
    subject: str
    version: int


class ParsedSchema(abc.ABC):
    """A schema that its format accepts."""

    schema_type: SchemaType

    def __init__(self, text: str, references: Sequence[tuple[str, str]]) -> None:
        self.text = text
        self.references = tuple(references)

    @property
    @abc.abstractmethod
    def canonical(self) -> str:
        """The text without what does not matter: two texts with the same canonical form are one schema."""

    @property
    def name(self) -> str | None:
        """The full name of the record (Avro), of the first message (Protobuf), or the title (JSON Schema)."""
        return None

    @abc.abstractmethod
    def normalized(self) -> ParsedSchema:
        """The same schema with everything in one order, so that more texts are one schema."""

    def serialized(self) -> str:
        """The schema in the format's own binary form, in base64, where it has one; else its canonical text."""
        return self.canonical

    @abc.abstractmethod
    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        """Why this schema cannot read all that `writer`, a schema of the same type, wrote."""


def is_base64(text: str) -> bool:
    """Whether it is a serialized Protobuf schema: no .proto text is one word of these letters."""
    return _BASE64.fullmatch(text.strip()) is not None


def load_json(text: str) -> object:
    """JSON as the specification has it: no NaN, and no deeper than `MAX_NESTING`."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidSchema(f"the schema is nested deeper than {MAX_NESTING} levels") from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    check_nesting(value)
    return value


def dump_json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except ValueError as error:  # half a surrogate pair, or a number beyond a double's range
        raise InvalidSchema(f"the schema cannot be written as JSON in UTF-8: {error}") from None
    return text


def sorted_json(value: object) -> object:
    """The same value with the keys of all objects in one order."""
    if isinstance(value, dict):
        return {key: sorted_json(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sorted_json(item) for item in value]
    return value


def check_nesting(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_NESTING + 1):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise InvalidSchema(f"the schema is nested deeper than {MAX_NESTING} levels")


def check_size(text: str, references: Sequence[tuple[str, str]]) -> None:
    for what, part in [("the schema", text), *((f"the reference {name:.100}", part) for name, part in references)]:
        if len(part) > MAX_SCHEMA_BYTES or len(part.encode(errors="replace")) > MAX_SCHEMA_BYTES:
            raise InvalidSchema(f"{what} is larger than {MAX_SCHEMA_BYTES} bytes")
    if len(references) > MAX_REFERENCES:
        raise InvalidSchema(f"the schema refers to more than {MAX_REFERENCES} schemas")
    if len(text) + sum(len(part) for _, part in references) > MAX_RESOLVED_BYTES:
        raise InvalidSchema(f"the schema and those it refers to are larger than {MAX_RESOLVED_BYTES} bytes together")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")
