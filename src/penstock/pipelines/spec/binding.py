"""Binds the nodes of a file to the classes of the model, and reports all errors at once.

The annotations of the classes are the rules. A value that does not fit is a problem at its position; its field keeps
the default, so that checking can continue.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

from penstock.pipelines.spec import secrets
from penstock.pipelines.spec.documents import Entry, Mapping, Node, Scalar, Sequence, plain
from penstock.pipelines.spec.durations import Duration
from penstock.pipelines.spec.model import FILE_NAMES
from penstock.pipelines.spec.problems import Location, Path, Problem, nearest
from penstock.pipelines.spec.secrets import Secret

T = TypeVar("T")

_MISSING: Any = object()
_SCALARS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Secret: "text"}


class Places:
    """The positions of a pipeline's parts in its file."""

    def __init__(self) -> None:
        self.keys: dict[Path, Location] = {}
        self.nodes: dict[Path, Node] = {}

    def find(self, path: Path, index: int | None = None) -> Location | None:
        """The position of a value (or of one character of it), else of the nearest parent."""
        node = self.nodes.get(path)
        if isinstance(node, Scalar):
            return node.at(index) if index is not None else node.location
        if path in self.keys:
            return self.keys[path]
        if node is not None:
            return node.location
        return self._inside(path) or (self.find(path[:-1]) if path else None)

    def _inside(self, path: Path) -> Location | None:
        """The key of a field of a value that has no class, such as a row of a test."""
        depth = next((depth for depth in range(len(path) - 1, -1, -1) if path[:depth] in self.nodes), 0)
        node: Node | None = self.nodes.get(path[:depth])
        location: Location | None = None
        for part in path[depth:]:
            if isinstance(node, Mapping) and part in node.entries:
                entry = node.entries[str(part)]
                node, location = entry.value, entry.key
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                location = node.location
            else:
                return None
        return location


class Binder:
    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []
        self.places = Places()

    def bind(self, kind: type[T], node: Node) -> T | None:
        """None only if nothing can be constructed from the node; there is a problem then."""
        made = self._value(kind, node, ())
        return None if made is _MISSING else made

    # -- By kind of annotation.

    def _value(self, kind: Any, node: Node, path: Path) -> Any:
        self.places.nodes[path] = node
        if isinstance(node, Scalar) and node.unknown:
            return _MISSING
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return plain(node)
        if dataclasses.is_dataclass(kind) and kind not in (Duration, Secret):
            return self._class(kind, node, path)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, node, path)
        if origin is typing.Literal:
            return self._choice(arguments, node, path)
        if origin is dict:
            return self._dictionary(arguments[1], node, path)
        if origin in (tuple, list):
            return self._items(origin, arguments[0], node, path)
        if kind is Duration:
            return self._duration(node, path)
        return self._scalar(kind, node, path)

    def _class(self, kind: Any, node: Node, path: Path) -> Any:
        what = described(kind)
        if not isinstance(node, Mapping):
            return self._wrong(f"{what} is a mapping of fields, not {_shown(node)}", node, path)
        fields = fields_of(kind)
        arguments: dict[str, Any] = {}
        for name, entry in node.entries.items():
            self.places.keys[*path, name] = entry.key
            if name not in fields:
                self._problem(f'unknown field "{name}" of {what}; {_way_out(name, entry, fields)}', path, entry.key)
                continue
            declared, annotation = fields[name]
            if _is_empty(entry.value) and not _takes_none(annotation):
                self._problem(f'"{name}" has no value; write one, or remove the field', (*path, name), entry.key)
                continue
            value = self._value(annotation, entry.value, (*path, name))
            if value is not _MISSING:
                arguments[declared.name] = value
        missing = [
            name
            for name, (declared, _) in fields.items()
            if declared.default is dataclasses.MISSING
            and declared.default_factory is dataclasses.MISSING
            and declared.name not in arguments
        ]
        misspelt = _meant([name for name in node.entries if name not in fields], fields)
        for name in missing:
            if name not in node.entries and name not in misspelt:
                self._problem(f'{what} needs the field "{name}"', path, self._key(path, node))
        return _MISSING if missing else kind(**arguments)

    def _union(self, kinds: tuple[Any, ...], node: Node, path: Path) -> Any:
        rest = tuple(kind for kind in kinds if kind is not types.NoneType)
        if len(rest) < len(kinds) and isinstance(node, Scalar) and node.value is None:
            return None
        if len(rest) == 1:
            return self._value(rest[0], node, path)
        classes = [kind for kind in rest if hasattr(kind, "SIGNS")]
        if classes:
            return self._variant(classes, node, path)
        if Secret in rest and isinstance(node, Scalar) and secrets.REFERENCE.search(str(node.value)):
            wrong = secrets.syntax_error(str(node.value))
            return Secret(str(node.value)) if wrong is None else self._wrong(wrong, node, path)
        if not isinstance(node, Scalar):
            wanted = list if isinstance(node, Sequence) else dict
            for kind in rest:
                if typing.get_origin(kind) is wanted:
                    return self._value(kind, node, path)
        if isinstance(node, Scalar) and type(node.value) in rest:
            return self._scalar(type(node.value), node, path)
        return self._scalar(str, node, path)

    def _variant(self, classes: list[Any], node: Node, path: Path) -> Any:
        """The class whose distinctive field is present: a source with `topic` is a source of topics."""
        family = described(classes[0]).rsplit(" ", 1)[-1]
        if not isinstance(node, Mapping):
            return self._wrong(f"a {family} is a mapping of fields, not {_shown(node)}", node, path)
        for kind in classes:
            if any(sign in node.entries for sign in kind.SIGNS):
                return self._class(kind, node, path)
        signs = [sign for kind in classes for sign in kind.SIGNS]
        known = {name for kind in classes for name in fields_of(kind)}
        unknown = [name for name in node.entries if name not in known]
        for name in unknown:
            entry = node.entries[name]
            self._problem(f'unknown field "{name}" of a {family}; {nearest(name, known)}', path, entry.key)
        if _meant(unknown, known) & set(signs):
            return _MISSING
        self._problem(f"a {family} needs one of the fields {', '.join(signs)}", path, self._key(path, node))
        return _MISSING

    def _choice(self, choices: tuple[Any, ...], node: Node, path: Path) -> Any:
        if isinstance(node, Scalar) and node.value in choices:
            return node.value
        names = [str(choice) for choice in choices if choice != ""]
        if isinstance(node, Scalar) and isinstance(node.value, str):
            message = f'"{node.value}" is not one of {", ".join(names)}'
            hint = nearest(node.value, names)
            return self._wrong(f"{message}; {hint}" if hint.startswith("did") else message, node, path)
        return self._wrong(f"{_shown(node)} is not one of {', '.join(names)}", node, path)

    def _dictionary(self, kind: Any, node: Node, path: Path) -> Any:
        if isinstance(node, Scalar) and node.value is None:
            return {}
        if not isinstance(node, Mapping):
            return self._wrong(f"a mapping is needed here, not {_shown(node)}", node, path)
        made = {}
        for name, entry in node.entries.items():
            self.places.keys[*path, name] = entry.key
            value = self._value(kind, entry.value, (*path, name))
            if value is not _MISSING:
                made[name] = value
        return made

    def _items(self, make: Callable[[Any], Any], kind: Any, node: Node, path: Path) -> Any:
        if isinstance(node, Scalar) and kind is str and node.value is not None:
            value = self._scalar(str, node, path)
            return _MISSING if value is _MISSING else make([value])
        if not isinstance(node, Sequence):
            return self._wrong(f"a list is needed here, not {_shown(node)}", node, path)
        values = [self._value(kind, item, (*path, index)) for index, item in enumerate(node.items)]
        return make(value for value in values if value is not _MISSING)

    def _duration(self, node: Node, path: Path) -> Any:
        if not isinstance(node, Scalar):
            return self._wrong(f"a length of time is needed here, such as 10s, not {_shown(node)}", node, path)
        try:
            return Duration.parse(str(node.value))
        except ValueError as error:
            return self._wrong(str(error), node, path)

    def _scalar(self, kind: Any, node: Node, path: Path) -> Any:
        if isinstance(node, Scalar):
            value = node.value
            if kind is float and type(value) is int:
                return float(value)
            if kind is str and value is not None and not isinstance(value, str):
                return node.text or str(value)
            if isinstance(value, str) and secrets.REFERENCE.search(value):
                return self._wrong("a secret can only stand in options", node, path)
            if type(value) is kind or (kind is Secret and isinstance(value, str)):
                return value
        return self._wrong(f"{_SCALARS.get(kind, 'a value')} is needed here, not {_shown(node)}", node, path)

    def _wrong(self, message: str, node: Node, path: Path) -> Any:
        self._problem(message, path, node.location)
        return _MISSING

    def _key(self, path: Path, node: Node) -> Location:
        return self.places.keys.get(path, node.location)

    def _problem(self, message: str, path: Path, location: Location) -> None:
        self.problems.append(Problem(message, path, location, self._file))


@cache
def fields_of(kind: Any) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The fields of a class by their names in files, with their annotations."""
    hints = typing.get_type_hints(kind)
    return {FILE_NAMES.get(each.name, each.name): (each, hints[each.name]) for each in dataclasses.fields(kind)}


def described(kind: Any) -> str:
    """With an article: "a topic source"."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).strip()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _meant(unknown: Iterable[str], known: Iterable[str]) -> set[str]:
    """The fields that misspelt ones stand for: they are not missing, too."""
    names = set(known)
    hints = (nearest(each, names) for each in unknown)
    return {name for hint in hints for name in names if hint == f'did you mean "{name}"?'}


def _way_out(name: str, entry: Entry, fields: Iterable[str]) -> str:
    """A field without a value is usually the rest of a text that was cut at a comma."""
    meant = nearest(name, fields)
    if _is_empty(entry.value) and not meant.startswith("did you mean"):
        return "if it is a part of the text before it: between braces, text with commas needs quotes"
    return meant


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None and not node.unknown


def _takes_none(annotation: Any) -> bool:
    arguments = typing.get_args(annotation)
    return annotation is Any or types.NoneType in arguments or typing.get_origin(annotation) is dict


def _shown(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.value is None:
        return "nothing"
    return f'"{node.value}"' if isinstance(node.value, str) else str(node.value).lower()
