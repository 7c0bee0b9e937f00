"""Reads Avro schemas as Java's parser does for a registry.

Names of new schemas are ASCII and their defaults fit their types; a schema that was stored by an older registry may
lack both. A `{"type": {...}}` around a type is an error here as it is in Java, though other readers unwrap it.
"""

from __future__ import annotations

import re

from penstock.schemas.avro.defaults import Defaults
from penstock.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
    full_name,
)
from penstock.schemas.model import InvalidSchema, load_json

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEMA_ATTRIBUTES = frozenset(
    {"aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "type", "values"}
)
_FIELD_ATTRIBUTES = frozenset({"aliases", "default", "doc", "name", "order", "type"})
_ORDERS = frozenset({"ascending", "descending", "ignore"})
_MAX_FIXED_SIZE = 2**31 - 1
_NO_OBJECT = "is neither a name, an object nor a list"

Attributes = dict[str, object]


class Reader:
    """Reads one schema after another; each may use the names of those before it."""

    def __init__(self, *, new: bool) -> None:
        self.names: dict[str, Named] = {}
        self._new = new
        self._namespace: str | None = None

    def read(self, text: str) -> Type:
        self._namespace = None
        defaults: list[tuple[Field, str]] = []
        result = self._type(load_json(text), "", defaults)
        if self._new:
            # Only now: a default may be of a type that its field is part of.
            known = Defaults()
            for field, path in defaults:
                if not known.fits(field.default, field.type):
                    raise InvalidSchema(f"{path}/default: the default {field.default!r:.100} does not fit the type")
        return result

    def _type(self, schema: object, path: str, defaults: list[tuple[Field, str]]) -> Type:
        match schema:
            case str():
                return self._reference(schema, path)
            case list():
                return self._union(schema, path, defaults)
            case dict():
                return self._object(schema, path, defaults)
        raise InvalidSchema(f"{path or '/'}: {schema!r:.100} {_NO_OBJECT}")

    def _reference(self, name: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self.names.get(name if "." in name else full_name(name, self._namespace)) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"{path or '/'}: there is no type {name!r:.100}")
        return found

    def _union(self, schemas: list[object], path: str, defaults: list[tuple[Field, str]]) -> Type:
        branches: dict[str, Type] = {}
        for position, schema in enumerate(schemas):
            branch = self._type(schema, f"{path}/{position}", defaults)
            if isinstance(branch, Union):
                raise InvalidSchema(f"{path}/{position}: a union in a union")
            name = branch.full_name if isinstance(branch, Named) else branch.kind
            if name in branches:
                raise InvalidSchema(f"{path}/{position}: the union has {name} twice")
            branches[name] = branch
        return Union("union", branches=list(branches.values()))

    def _object(self, schema: Attributes, path: str, defaults: list[tuple[Field, str]]) -> Type:
        kind = schema.get("type")
        properties = {key: value for key, value in schema.items() if key not in _SCHEMA_ATTRIBUTES}
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._named(kind, schema, properties, path, defaults)
            case "array":
                items = self._type(_required(schema, "items", path), f"{path}/items", defaults)
                return Array("array", properties, items=items)
            case "map":
                values = self._type(_required(schema, "values", path), f"{path}/values", defaults)
                return Map("map", properties, values=values)
            case str() if kind in PRIMITIVES:
                return Primitive(kind, properties)
            case str():
                return self._reference(kind, path)
        raise InvalidSchema(f"{path or '/'}: no type" if kind is None else f"{path}/type: {kind!r:.100} is not a name")

    def _named(
        self, kind: str, schema: Attributes, properties: Attributes, path: str, defaults: list[tuple[Field, str]]
    ) -> Type:
        name, namespace = self._own_name(schema, path)
        aliases = [
            alias if "." in alias else full_name(alias, namespace) for alias in _strings(schema, "aliases", path)
        ]
        doc = _text(schema, "doc")
        if kind == "fixed":
            size = _size(schema, path)
            fixed = Fixed(kind, properties, name=name, namespace=namespace, aliases=aliases, doc=doc, size=size)
            return self._define(fixed, path)
        if kind == "enum":
            default = properties.pop("default", None)
            symbols = self._symbols(schema, default, path)
            enum = Enum(
                kind,
                properties,
                name=name,
                namespace=namespace,
                aliases=aliases,
                doc=doc,
                symbols=symbols,
                default=default if isinstance(default, str) else None,
            )
            return self._define(enum, path)
        record = Record(
            "record", properties, name=name, namespace=namespace, aliases=aliases, doc=doc, error=kind == "error"
        )
        self._define(record, path)
        outer, self._namespace = self._namespace, namespace
        record.fields = self._fields(schema, path, defaults)
        self._namespace = outer
        return record

    def _own_name(self, schema: Attributes, path: str) -> tuple[str, str | None]:
        given = _required(schema, "name", path)
        if not isinstance(given, str):
            raise InvalidSchema(f"{path}/name: {given!r:.100} is not a string")
        space = schema.get("namespace")
        if space is not None and not isinstance(space, str):
            raise InvalidSchema(f"{path}/namespace: {space!r:.100} is not a string")
        qualifier, _, name = given.rpartition(".")
        namespace = qualifier if "." in given else self._namespace if space is None else space
        self._check_name(name, f"{path}/name")
        for part in namespace.split(".") if namespace else ():
            self._check_name(part, f"{path}/namespace")
        return name, namespace or None

    def _check_name(self, name: str, path: str) -> None:
        if not (_NAME.fullmatch(name) if self._new else name):
            raise InvalidSchema(f"{path}: {name!r:.100} is not an Avro name")

    def _define(self, named: Named, path: str) -> Type:
        if named.full_name in PRIMITIVES or named.full_name in self.names:
            raise InvalidSchema(f"{path}/name: {named.full_name!r:.100} is defined already")
        self.names[named.full_name] = named
        return named

    def _symbols(self, schema: Attributes, default: object, path: str) -> list[str]:
        _required(schema, "symbols", path)
        symbols = _strings(schema, "symbols", path)
        for symbol in symbols:
            self._check_name(symbol, f"{path}/symbols")
        _check_distinct(symbols, f"{path}/symbols")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"{path}/default: {default!r:.100} is none of the symbols")
        return symbols

    def _fields(self, schema: Attributes, path: str, defaults: list[tuple[Field, str]]) -> list[Field]:
        listed = _required(schema, "fields", path)
        if not isinstance(listed, list):
            raise InvalidSchema(f"{path}/fields: not a list")
        fields = []
        for position, attributes in enumerate(listed):
            at = f"{path}/fields/{position}"
            if not isinstance(attributes, dict):
                raise InvalidSchema(f"{at}: {attributes!r:.100} is not an object")
            fields.append(self._field(attributes, at, defaults))
        _check_distinct([field.name for field in fields], f"{path}/fields")
        return fields

    def _field(self, attributes: Attributes, path: str, defaults: list[tuple[Field, str]]) -> Field:
        name = _required(attributes, "name", path)
        if not isinstance(name, str):
            raise InvalidSchema(f"{path}/name: {name!r:.100} is not a string")
        self._check_name(name, f"{path}/name")
        order = str(attributes.get("order", "ascending")).lower()
        if order not in _ORDERS:
            raise InvalidSchema(f"{path}/order: {order!r:.100} is not one of {', '.join(sorted(_ORDERS))}")
        field = Field(
            name=name,
            type=self._type(_required(attributes, "type", path), f"{path}/type", defaults),
            default=attributes.get("default", NO_DEFAULT),
            doc=_text(attributes, "doc"),
            order=order,
            aliases=_strings(attributes, "aliases", path),
            properties={key: value for key, value in attributes.items() if key not in _FIELD_ATTRIBUTES},
        )
        if field.default is not NO_DEFAULT:
            defaults.append((field, path))
        return field


def _required(attributes: Attributes, key: str, path: str) -> object:
    if attributes.get(key) is None:
        raise InvalidSchema(f"{path or '/'}: {key!r} is missing")
    return attributes[key]


def _text(attributes: Attributes, key: str) -> str | None:
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def _strings(attributes: Attributes, key: str, path: str) -> list[str]:
    value = attributes.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSchema(f"{path}/{key}: not a list of strings")
    return value


def _size(schema: Attributes, path: str) -> int:
    size = _required(schema, "size", path)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED_SIZE:
        raise InvalidSchema(f"{path}/size: {size!r:.100} is not a number of bytes")
    return size


def _check_distinct(names: list[str], path: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidSchema(f"{path}: {name!r:.100} is there twice")
        seen.add(name)
