"""An Avro schema as text: the form that Java's `Schema.toString` has, which Confluent's registry stores and compares.

It keeps everything (docs, defaults, aliases, unknown properties) but puts attributes into one order, says a
namespace only where it changes, and writes a named type once. The normalized form also sorts what has no order of its
own: properties and aliases.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Type,
    Union,
)
from penstock.schemas.model import sorted_json

# The order in which a logical type is written, before all other properties.
_LOGICAL = ("logicalType", "precision", "scale")


class Writer:
    """`known` are the types of other schemas: they are written by name only."""

    def __init__(self, known: Iterable[Named], *, normalize: bool = False) -> None:
        self._written = set(known)
        self._normalize = normalize

    def write(self, schema: Type, namespace: str | None = None) -> object:
        match schema:
            case Union():
                return [self.write(branch, namespace) for branch in schema.branches]
            case Array():
                items = self.write(schema.items, namespace)
                return {"type": "array", "items": items, **self._properties(schema.properties)}
            case Map():
                values = self.write(schema.values, namespace)
                return {"type": "map", "values": values, **self._properties(schema.properties)}
            case Named():
                return self._named(schema, namespace)
        if not schema.properties:
            return schema.kind
        return {"type": schema.kind, **self._properties(schema.properties)}

    def _named(self, schema: Named, namespace: str | None) -> object:
        if schema in self._written:
            return _relative(schema.full_name, namespace)
        self._written.add(schema)
        result: dict[str, object] = {"type": schema.kind, "name": schema.name}
        if schema.namespace != namespace:
            result["namespace"] = schema.namespace or ""
        if schema.doc or (schema.doc is not None and not self._normalize):
            result["doc"] = schema.doc
        match schema:
            case Record():
                result["type"] = "error" if schema.error else "record"
                result["fields"] = [self._field(field, schema.namespace) for field in schema.fields]
            case Enum():
                result["symbols"] = schema.symbols
                if schema.default is not None:
                    result["default"] = schema.default
            case Fixed():
                result["size"] = schema.size
        result |= self._properties(schema.properties)
        if schema.aliases:
            result["aliases"] = [_relative(alias, schema.namespace) for alias in self._ordered(schema.aliases)]
        return result

    def _field(self, field: Field, namespace: str | None) -> object:
        result: dict[str, object] = {"name": field.name, "type": self.write(field.type, namespace)}
        if field.doc is not None:
            result["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            result["default"] = sorted_json(field.default) if self._normalize else field.default
        if field.order != "ascending":
            result["order"] = field.order
        if field.aliases:
            result["aliases"] = self._ordered(field.aliases)
        return result | self._properties(field.properties)

    def _properties(self, properties: dict[str, object]) -> dict[str, object]:
        if not self._normalize:
            return properties
        keys = sorted(properties, key=lambda key: (_LOGICAL.index(key) if key in _LOGICAL else len(_LOGICAL), key))
        result = {key: sorted_json(properties[key]) for key in keys}
        if result.get("logicalType") == "decimal" and result.get("scale") == 0:
            del result["scale"]
        return result

    def _ordered(self, aliases: list[str]) -> list[str]:
        # Java keeps aliases in a set.
        return sorted(set(aliases)) if self._normalize else list(dict.fromkeys(aliases))


def _relative(full_name: str, namespace: str | None) -> str:
    space, _, name = full_name.rpartition(".")
    return name if space == (namespace or "") and name not in PRIMITIVES else full_name
