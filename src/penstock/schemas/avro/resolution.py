"""Whether a reader's schema resolves everything that a writer's schema can write.

The rules are the specification's as Java checks them for a registry: `SchemaCompatibility` in Apache Avro. The checker
of the Python package `avro` is not used: it takes an alias for a full name whatever the namespace is, remembers
verdicts that rest on assumptions which proved wrong, fails on types of protocols, and gives no path inside a union.
Logical types have no say: the types below them decide, as everywhere in Avro.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schemas.avro.types import NO_DEFAULT, Array, Enum, Field, Fixed, Map, Named, Record, Type, Union
from penstock.schemas.steps import Comparison, Found, Incompatibility, Pairs, run, shortened

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


def resolve(reader: Type, writer: Type) -> list[str]:
    return [str(found) for found in run(_Resolution().pair(reader, writer, ""))]


class _Resolution:
    def __init__(self) -> None:
        self._pairs = Pairs()
        self._branches: dict[Union, dict[str, list[int]]] = {}

    def pair(self, reader: Type, writer: Type, path: str) -> Comparison[Found]:
        """Paths are the reader's."""
        return self._pairs.verdict((reader, writer), lambda: self._compare(reader, writer, shortened(path)))

    def _compare(self, reader: Type, writer: Type, path: str) -> Comparison[Found]:
        if isinstance(writer, Union):
            return (yield self._writer_union(reader, writer, path))
        if isinstance(reader, Union):
            return (yield self._reader_union(reader, writer, path))
        match reader, writer:
            case Array(), Array():
                return (yield self.pair(reader.items, writer.items, f"{path}/items"))
            case Map(), Map():
                return (yield self.pair(reader.values, writer.values, f"{path}/values"))
            case Record(), Record():
                return [*_names(reader, writer, path), *(yield self._fields(reader, writer, path))]
            case Enum(), Enum():
                return [*_names(reader, writer, path), *_symbols(reader, writer, path)]
            case Fixed(), Fixed():
                return [*_names(reader, writer, path), *_size(reader, writer, path)]
        if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        return [Incompatibility(path, "TYPE_MISMATCH", f"{_name(reader)} does not read {_name(writer)}")]

    def _writer_union(self, reader: Type, writer: Union, path: str) -> Comparison[Found]:
        found: list[Incompatibility] = []
        for branch in writer.branches:
            found += yield self.pair(reader, branch, path)
        return found

    def _reader_union(self, reader: Union, writer: Type, path: str) -> Comparison[Found]:
        reasons: list[Incompatibility] = []
        for position in self._candidates(reader, writer):
            found = yield self.pair(reader.branches[position], writer, f"{path}/{position}")
            if not found:
                return []
            reasons += found
        lacking = Incompatibility(path, "MISSING_UNION_BRANCH", f"no branch of the union reads {_name(writer)}")
        return [lacking, *reasons]

    def _candidates(self, reader: Union, writer: Type) -> Iterable[int]:
        """The branches that are not out of the question by their kind or name alone: unions of thousands of records
        exist, and comparing each branch with each takes too long."""
        if reader not in self._branches:
            index = self._branches[reader] = {}
            for position, branch in enumerate(reader.branches):
                names = [branch.name, *branch.aliases] if isinstance(branch, Named) else [branch.kind]
                for name in dict.fromkeys(names):
                    index.setdefault(name, []).append(position)
        index = self._branches[reader]
        if isinstance(writer, Named):
            names = [writer.name, writer.full_name]
        else:
            names = [kind for kind in index if kind == writer.kind or writer.kind in _PROMOTIONS.get(kind, ())]
        return sorted({position for name in names for position in index.get(name, ())})

    def _fields(self, reader: Record, writer: Record, path: str) -> Comparison[Found]:
        by_name = {field.name: field for field in writer.fields}
        found: list[Incompatibility] = []
        for position, field in enumerate(reader.fields):
            at = f"{path}/fields/{position}"
            written = _written(field, by_name)
            if len(written) > 1:
                detail = f"{field.name!r} and its aliases are several fields of the writer: {', '.join(written)}"
                found.append(Incompatibility(at, "AMBIGUOUS_ALIASES", detail))
            elif written:
                found += yield self.pair(field.type, by_name[written[0]].type, f"{at}/type")
            elif field.default is NO_DEFAULT:
                detail = f"the field {field.name!r} has no default, and the writer {writer.full_name} has no such field"
                found.append(Incompatibility(at, "READER_FIELD_MISSING_DEFAULT_VALUE", detail))
        return found


def _written(field: Field, by_name: dict[str, Field]) -> list[str]:
    return [name for name in dict.fromkeys((field.name, *field.aliases)) if name in by_name]


def _names(reader: Named, writer: Named, path: str) -> Found:
    """The namespace does not matter, as in Java, unless it is an alias that matches."""
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    detail = f"{reader.full_name} is neither called {writer.name} nor has the alias {writer.full_name}"
    return [Incompatibility(f"{path}/name", "NAME_MISMATCH", detail)]


def _symbols(reader: Enum, writer: Enum, path: str) -> Found:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not None:
        return []
    detail = f"{reader.full_name} has no default and lacks {', '.join(missing)}"
    return [Incompatibility(f"{path}/symbols", "MISSING_ENUM_SYMBOLS", f"{detail:.1000}")]


def _size(reader: Fixed, writer: Fixed, path: str) -> Found:
    if reader.size == writer.size:
        return []
    detail = f"{reader.full_name} has {reader.size} bytes, the writer's {writer.size}"
    return [Incompatibility(f"{path}/size", "FIXED_SIZE_MISMATCH", detail)]


def _name(schema: Type) -> str:
    return f"{schema.kind} {schema.full_name}" if isinstance(schema, Named) else schema.kind
