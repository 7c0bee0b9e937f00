"""Makes nodes of JSON, and refuses what no draft allows: `properties` that are no object, a `type` that is none.

Subschemas are loaded once for each place that they stand at. What a `$ref` leads to is loaded after everything else,
from a list: a chain of references may be longer than Python's stack. Keywords of all drafts are known at once: a schema
says `prefixItems` or a list of `items`, `dependencies` or `dependentRequired`, and means the same.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.schemas.json_schema.documents import Documents, Place, base_of
from penstock.schemas.json_schema.nodes import (
    Anything,
    Array,
    Boolean,
    Combined,
    Conditional,
    Content,
    Criterion,
    Enumeration,
    Node,
    Not,
    Nothing,
    Null,
    Number,
    Numeric,
    Object,
    Reference,
    Text,
)
from penstock.schemas.model import InvalidSchema, dump_json

_COMBINATIONS: tuple[Criterion, ...] = ("allOf", "anyOf", "oneOf")
_TEXT = frozenset({"maxLength", "minLength", "pattern"})
_NUMERIC = frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"})
_OBJECT = frozenset(
    {
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("required", "maxProperties", "minProperties"),
        *("dependencies", "dependentRequired", "dependentSchemas"),
    }
)
_ARRAY = frozenset(
    {
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
        *("maxItems", "minItems", "uniqueItems", "maxContains", "minContains"),
    }
)
# Since draft 2019-09, what stands beside a `$ref` counts.
_LATER_DRAFTS = ("2019-09", "2020-12")

Keywords = dict[str, object]


def load(documents: Documents) -> Node:
    return _Loader(documents).load()


class _Loader:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._loaded: dict[tuple[int, str], Node] = {}
        self._unresolved: list[tuple[Reference, Place, str]] = []
        root = documents.root.schema
        draft = root.get("$schema") if isinstance(root, dict) else None
        self._siblings_count = isinstance(draft, str) and any(later in draft for later in _LATER_DRAFTS)
        self._kinds: dict[str, Callable[[Keywords, str, str], Node]] = {
            "string": self._text,
            "number": self._number,
            "integer": self._number,
            "object": self._object,
            "array": self._array,
            "boolean": lambda *_: Boolean(),
            "null": lambda *_: Null(),
        }

    def load(self) -> Node:
        root = self._node(self._documents.root.schema, self._documents.root.base, "#")
        while self._unresolved:
            reference, place, path = self._unresolved.pop()
            reference.target = self._node(place.schema, place.base, path)
        return self._without_cycles(root)

    def _without_cycles(self, root: Node) -> Node:
        """References to references are followed once, here. One that leads to itself says nothing."""
        for node in self._loaded.values():
            if isinstance(node, Reference):
                seen = {node}
                target = node.target
                while isinstance(target, Reference):
                    if target in seen:
                        raise InvalidSchema(f"the $ref {node.ref!r:.200} leads to itself")
                    seen.add(target)
                    target = target.target
                for passed in seen:
                    passed.target = target
        return root

    def _node(self, schema: object, base: str, path: str) -> Node:
        if isinstance(schema, bool):
            return Anything() if schema else Nothing()
        if not isinstance(schema, dict):
            raise InvalidSchema(f"{path}: a schema is an object or a boolean, not {schema!r:.100}")
        key = (id(schema), base)
        if key not in self._loaded:
            self._loaded[key] = self._load(schema, base_of(schema, base), path)
        return self._loaded[key]

    def _load(self, schema: Keywords, base: str, path: str) -> Node:
        parts = []
        ref = schema.get("$ref", schema.get("$dynamicRef", schema.get("$recursiveRef")))
        if ref is not None:
            parts.append(self._reference(ref, base, path))
        if ref is None or self._siblings_count:
            parts += self._parts(schema, base, path)
        node = parts[0] if len(parts) == 1 else Combined("allOf", parts) if parts else Anything()
        node.has_default = "default" in schema
        connect_type = schema.get("connect.type")
        node.connect_type = connect_type if isinstance(connect_type, str) else None
        return node

    def _reference(self, ref: object, base: str, path: str) -> Node:
        if not isinstance(ref, str):
            raise InvalidSchema(f"{path}/$ref: {ref!r:.100} is not a string")
        reference = Reference(ref)
        self._unresolved.append((reference, self._documents.resolve(ref, base), f"{ref:.100}"))
        # Its place may be that of a combination, which is another node.
        self._loaded[id(reference), path] = reference
        return reference

    def _parts(self, schema: Keywords, base: str, path: str) -> list[Node]:
        parts = self._typed(schema, base, path)
        if "enum" in schema:
            values = schema["enum"]
            if not isinstance(values, list):
                raise InvalidSchema(f"{path}/enum: not a list")
            parts.append(Enumeration(frozenset(_comparable(value) for value in values), const=False))
        if "const" in schema:
            parts.append(Enumeration(frozenset({_comparable(schema["const"])}), const=True))
        for criterion in _COMBINATIONS:
            if criterion in schema:
                nodes = self._list(schema[criterion], base, f"{path}/{criterion}")
                parts.append(Combined(criterion, _distinct(nodes, schema[criterion])))
        if "not" in schema:
            parts.append(Not(self._node(schema["not"], base, f"{path}/not")))
        conditional = {key: schema[key] for key in ("if", "then", "else") if key in schema}
        if "if" in conditional and len(conditional) > 1:
            for key, branch in conditional.items():
                self._node(branch, base, f"{path}/{key}")
            parts.append(Conditional(_comparable(conditional)))
        for definitions in ("definitions", "$defs"):
            self._map(schema, definitions, base, path)
        return parts

    def _typed(self, schema: Keywords, base: str, path: str) -> list[Node]:
        given = schema.get("type")
        if given is None:
            implied = [("string", _TEXT), ("number", _NUMERIC), ("object", _OBJECT), ("array", _ARRAY)]
            return [
                self._kinds[kind](schema, base, path) for kind, keywords in implied if not keywords.isdisjoint(schema)
            ]
        kinds = given if isinstance(given, list) else [given]
        for kind in kinds:
            if not isinstance(kind, str) or kind not in self._kinds:
                raise InvalidSchema(f"{path}/type: there is no type {kind!r:.100}")
        nodes = []
        for kind in dict.fromkeys(kinds):
            node = self._kinds[kind](schema, base, path)
            if isinstance(node, Numeric):
                node.integer = kind == "integer"
            nodes.append(node)
        return nodes if len(nodes) == 1 else [Combined("anyOf", nodes)]

    # Kinds

    def _text(self, schema: Keywords, base: str, path: str) -> Node:
        pattern = schema.get("pattern")
        if pattern is not None and not isinstance(pattern, str):
            raise InvalidSchema(f"{path}/pattern: {pattern!r:.100} is not a string")
        return Text(_number(schema, "maxLength", path), _number(schema, "minLength", path), pattern)

    def _number(self, schema: Keywords, base: str, path: str) -> Node:
        limits = {}
        for limit, exclusive in [("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")]:
            limits[limit] = _number(schema, limit, path)
            flag = schema.get(exclusive)
            # In draft 4, it is a flag beside the limit.
            limits[exclusive] = (
                (limits[limit] if flag else None) if isinstance(flag, bool) else _number(schema, exclusive, path)
            )
        return Numeric(
            limits["maximum"],
            limits["minimum"],
            limits["exclusiveMaximum"],
            limits["exclusiveMinimum"],
            _number(schema, "multipleOf", path),
            integer=False,
        )

    def _object(self, schema: Keywords, base: str, path: str) -> Node:
        dependent_required = _names_by_key(schema, "dependentRequired", path)
        dependent_schemas = self._map(schema, "dependentSchemas", base, path)
        for key, value in _mapping(schema, "dependencies", path).items():
            at = f"{path}/dependencies/{key:.100}"
            if isinstance(value, list):
                dependent_required[key] = _names(value, at)
            else:
                dependent_schemas[key] = self._node(value, base, at)
        return Object(
            properties=self._map(schema, "properties", base, path),
            patterns=self._map(schema, "patternProperties", base, path),
            # In draft 3, `required` was a flag of a property; some still write it.
            required=_names(schema["required"], f"{path}/required")
            if not isinstance(schema.get("required", False), bool)
            else frozenset(),
            content=self._content(schema, "additionalProperties", "unevaluatedProperties", base, path),
            max_properties=_number(schema, "maxProperties", path),
            min_properties=_number(schema, "minProperties", path),
            dependent_required=dependent_required,
            dependent_schemas=dependent_schemas,
            property_names=self._optional(schema, "propertyNames", base, path),
        )

    def _array(self, schema: Keywords, base: str, path: str) -> Node:
        items = schema.get("items")
        additional = "additionalItems"
        all_items = None
        by_position: list[Node] = []
        if "prefixItems" in schema:
            by_position = self._list(schema["prefixItems"], base, f"{path}/prefixItems")
            additional = "items"
        elif isinstance(items, list):
            by_position = self._list(items, base, f"{path}/items") if items else []
        elif isinstance(items, bool):
            additional = "items"
        elif items is not None:
            all_items = self._node(items, base, f"{path}/items")
        unique = schema.get("uniqueItems", False)
        if not isinstance(unique, bool):
            raise InvalidSchema(f"{path}/uniqueItems: {unique!r:.100} is not a boolean")
        return Array(
            all_items=all_items,
            items=by_position,
            content=self._content(schema, additional, "unevaluatedItems", base, path),
            max_items=_number(schema, "maxItems", path),
            min_items=_number(schema, "minItems", path),
            unique=unique,
            contains=self._optional(schema, "contains", base, path),
            max_contains=_number(schema, "maxContains", path),
            min_contains=_number(schema, "minContains", path),
        )

    def _content(self, schema: Keywords, additional: str, unevaluated: str, base: str, path: str) -> Content:
        rest = self._optional(schema, additional, base, path)
        return Content(
            permitted=not isinstance(rest, Nothing),
            schema=None if isinstance(rest, Anything | Nothing | None) else rest,
            unevaluated=self._optional(schema, unevaluated, base, path),
        )

    # Schemas in schemas

    def _optional(self, schema: Keywords, keyword: str, base: str, path: str) -> Node | None:
        return self._node(schema[keyword], base, f"{path}/{keyword}") if keyword in schema else None

    def _list(self, schemas: object, base: str, path: str) -> list[Node]:
        if not isinstance(schemas, list) or not schemas:
            raise InvalidSchema(f"{path}: not a list of schemas")
        return [self._node(schema, base, f"{path}/{position}") for position, schema in enumerate(schemas)]

    def _map(self, schema: Keywords, keyword: str, base: str, path: str) -> dict[str, Node]:
        at = f"{path}/{keyword}"
        return {
            key: self._node(value, base, f"{at}/{key:.100}") for key, value in _mapping(schema, keyword, path).items()
        }


def _distinct(nodes: list[Node], schemas: object) -> list[Node]:
    """Without those that say the same as one before."""
    assert isinstance(schemas, list)
    by_text: dict[str, Node] = {}
    for node, schema in zip(nodes, schemas, strict=True):
        by_text.setdefault(_comparable(schema), node)
    return list(by_text.values())


def _comparable(value: object) -> str:
    """JSON text that is the same for the same value: 1 is 1.0, and the order of keys does not matter."""
    return dump_json(_plain(value))


def _plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return value


def _mapping(schema: Keywords, keyword: str, path: str) -> Keywords:
    value = schema.get(keyword, {})
    if not isinstance(value, dict):
        raise InvalidSchema(f"{path}/{keyword}: {value!r:.100} is not an object")
    return value


def _names_by_key(schema: Keywords, keyword: str, path: str) -> dict[str, frozenset[str]]:
    return {
        key: _names(value, f"{path}/{keyword}/{key:.100}") for key, value in _mapping(schema, keyword, path).items()
    }


def _names(value: object, path: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidSchema(f"{path}: not a list of strings")
    return frozenset(value)


def _number(schema: Keywords, keyword: str, path: str) -> Number | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidSchema(f"{path}/{keyword}: {value!r:.100} is not a number")
    return value
