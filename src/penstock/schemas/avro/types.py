"""The types of an Avro schema as a graph: a type that is used by its name is the same object wherever it is used."""

from __future__ import annotations

from dataclasses import dataclass, field

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


# Types are compared by identity: the graph may have cycles.
@dataclass(slots=True, eq=False)
class Type:
    """`properties` are those that Avro keeps but does not know, and those of logical types."""

    kind: str
    properties: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Primitive(Type):
    pass


@dataclass(slots=True, eq=False)
class Array(Type):
    items: Type = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Map(Type):
    values: Type = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Union(Type):
    branches: list[Type] = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Named(Type):
    """`aliases` are full names."""

    name: str = field(kw_only=True)
    namespace: str | None = field(kw_only=True)
    aliases: list[str] = field(default_factory=list, kw_only=True)
    doc: str | None = field(default=None, kw_only=True)

    @property
    def full_name(self) -> str:
        return full_name(self.name, self.namespace)


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: list[str] = field(kw_only=True)
    default: str | None = field(default=None, kw_only=True)


class NoDefault:
    """A field without a default: `null` is a default, too."""

    def __repr__(self) -> str:
        return "no default"


NO_DEFAULT = NoDefault()


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: Type
    default: object = NO_DEFAULT
    doc: str | None = None
    order: str = "ascending"
    aliases: list[str] = field(default_factory=list)
    properties: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record(Named):
    """`fields` is empty until the record is read to its end: its fields may use its name. An `error` of a protocol is a
    record with another word."""

    fields: list[Field] = field(default_factory=list)
    error: bool = False


def full_name(name: str, namespace: str | None) -> str:
    return f"{namespace}.{name}" if namespace else name
