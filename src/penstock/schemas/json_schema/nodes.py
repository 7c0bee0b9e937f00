"""A JSON Schema as a graph of nodes, each about one kind of value.

A schema in JSON may say several things at once; here it is then `Combined("allOf", ...)` of nodes that say one thing
each. The comparison knows kinds only, so it is the same for all drafts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Criterion = Literal["allOf", "anyOf", "oneOf"]
Number = int | float


# Nodes are compared by identity: the graph may have cycles.
@dataclass(slots=True, eq=False)
class Node:
    has_default: bool = field(default=False, kw_only=True)
    # Kafka Connect says in a property what it means by a type.
    connect_type: str | None = field(default=None, kw_only=True)


@dataclass(slots=True, eq=False)
class Anything(Node):
    """`true`, or a schema that says nothing."""


@dataclass(slots=True, eq=False)
class Nothing(Node):
    """`false`."""


@dataclass(slots=True, eq=False)
class Boolean(Node):
    pass


@dataclass(slots=True, eq=False)
class Null(Node):
    pass


@dataclass(slots=True, eq=False)
class Text(Node):
    max_length: Number | None
    min_length: Number | None
    pattern: str | None


@dataclass(slots=True, eq=False)
class Numeric(Node):
    maximum: Number | None
    minimum: Number | None
    exclusive_maximum: Number | None
    exclusive_minimum: Number | None
    multiple_of: Number | None
    integer: bool


@dataclass(slots=True, eq=False)
class Enumeration(Node):
    """`values` are JSON texts; a `const` is an enumeration of one value that says so."""

    values: frozenset[str]
    const: bool


@dataclass(slots=True, eq=False)
class Not(Node):
    schema: Node


@dataclass(slots=True, eq=False)
class Combined(Node):
    criterion: Criterion
    parts: list[Node]


@dataclass(slots=True, eq=False)
class Conditional(Node):
    """`if`, `then` and `else` as JSON text."""

    text: str


@dataclass(slots=True, eq=False)
class Reference(Node):
    """`target` is set when everything is loaded: a schema may refer to itself."""

    ref: str
    target: Node | None = None


@dataclass(slots=True, eq=False)
class Content:
    """What may be in an object or an array beside what is named: anything, values of a schema, or nothing.

    `unevaluated` decides where `additional` is not said."""

    permitted: bool
    schema: Node | None  # of what is permitted; None is anything
    unevaluated: Node | None = None

    @property
    def open(self) -> bool:
        return self.permitted and self.schema is None and isinstance(self.unevaluated, Anything | None)

    @property
    def partial(self) -> Node | None:
        """The schema of what is not named, if there is one."""
        if self.schema is not None:
            return self.schema
        if self.permitted and not isinstance(self.unevaluated, Anything | Nothing | None):
            return self.unevaluated
        return None


@dataclass(slots=True, eq=False)
class Object(Node):
    properties: dict[str, Node]
    patterns: dict[str, Node]
    required: frozenset[str]
    content: Content
    max_properties: Number | None
    min_properties: Number | None
    dependent_required: dict[str, frozenset[str]]
    dependent_schemas: dict[str, Node]
    property_names: Node | None

    @property
    def open(self) -> bool:
        return self.content.open and not self.patterns


@dataclass(slots=True, eq=False)
class Array(Node):
    all_items: Node | None
    items: list[Node]  # by position
    content: Content  # of further items
    max_items: Number | None
    min_items: Number | None
    unique: bool
    contains: Node | None
    max_contains: Number | None
    min_contains: Number | None
