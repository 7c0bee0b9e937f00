"""Parses YAML into a tree of nodes in which each key and value knows its line and column.

The schema of scalars is YAML 1.2's: `no`, `on` and dates are text, and so are numbers that begin with 0. A duplicate
key is an error, and so is a tree that aliases would make infinite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from penstock.pipelines.spec.problems import Location, PipelineInvalid, Problem

NODES_MAX = 200_000

Value = str | int | float | bool | None

_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", [*"-+0123456789"]),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", [*"-+.0123456789"]),
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
)


def _resolving(base: Any) -> Any:
    """A loader or dumper that converts these scalars, and treats everything else as text."""
    made: Any = type(base.__name__, (base,), {"yaml_implicit_resolvers": {}})
    for tag, pattern, first in _RESOLVERS:
        made.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)
    return made


_Loader = _resolving(yaml.SafeLoader)
_QuickLoader = _resolving(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_Dumper = _resolving(yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Scalar:
    value: Value
    location: Location
    text: str = ""
    """As written, before conversion to a number or another type."""
    offsets: tuple[Location, ...] = field(default=(), compare=False)
    """The position of each character of a multi-line or quoted text; empty if `location` is sufficient."""
    unknown: bool = False
    """Its parameter has no value; that is reported already."""

    def at(self, index: int) -> Location:
        """The position of one character of the text."""
        if self.offsets:
            return self.offsets[min(max(index, 0), len(self.offsets) - 1)]
        return Location(self.location.line, self.location.column + max(index, 0))


@dataclass(frozen=True, slots=True)
class Entry:
    key: Location
    value: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    entries: dict[str, Entry]
    location: Location


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]
    location: Location


Node = Scalar | Mapping | Sequence


def parse(text: str, file: str) -> Mapping:
    """The document of a file; PipelineInvalid if it is not one, or not a mapping."""
    try:
        root = _composed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise PipelineInvalid([Problem(f"not YAML: {reason}", (), _location(mark), file)]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise PipelineInvalid([Problem(f"not YAML: {error}", (), Location(1, 1), file)]) from None
    if not isinstance(root, yaml.MappingNode):
        message = "the file is empty" if root is None else "a pipeline is a mapping of fields"
        raise PipelineInvalid([Problem(f'{message}; it begins with "name: ..."', (), Location(1, 1), file)])
    composer = _Composer(text, file)
    tree = composer.node(root)
    if composer.problems:
        raise PipelineInvalid(composer.problems)
    assert isinstance(tree, Mapping)
    return tree


def _composed(text: str) -> Any:
    """The slow parser has the better error messages."""
    try:
        return yaml.compose(text, Loader=_QuickLoader)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=_Loader)


def dumped(value: Any) -> str:
    """YAML that `parse` reads back unchanged."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000))


def plain(node: Node) -> Any:
    """Without positions: dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {name: plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return node.value


class _Composer:
    def __init__(self, text: str, file: str) -> None:
        self._lines = text.split("\n")
        self._file = file
        self._open: set[int] = set()
        self._count = 0
        self.problems: list[Problem] = []

    def node(self, node: Any) -> Node:
        location = _location(node.start_mark)
        self._count += 1
        if self._count > NODES_MAX or id(node) in self._open:
            why = "an alias that contains itself" if id(node) in self._open else f"more than {NODES_MAX} values"
            raise PipelineInvalid([Problem(f"{why}; write it out", (), location, self._file)])
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return Sequence(tuple(self.node(item) for item in node.value), location)
            return Mapping(dict(self._entries(node)), location)
        finally:
            self._open.discard(id(node))

    def _entries(self, node: Any) -> Iterator[tuple[str, Entry]]:
        seen: dict[str, Location] = {}
        for key, value in node.value:
            location = _location(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append(Problem("a key must be a word", (), location, self._file))
                continue
            if key.value in seen:
                first = seen[key.value].line
                message = f'"{key.value}" is given twice, first in line {first}; remove one'
                self.problems.append(Problem(message, (), location, self._file))
                continue
            seen[key.value] = location
            yield key.value, Entry(location, self.node(value))

    def _scalar(self, node: Any, location: Location) -> Scalar:
        kind = node.tag.rpartition(":")[2]
        text: str = node.value
        value: Value = text
        if kind == "null":
            value = None
        elif kind == "bool":
            value = text.lower() == "true"
        elif kind == "int":
            value = int(text)
        elif kind == "float":
            value = float(text)
        return Scalar(value, location, text, self._offsets(node, location) if kind == "str" else ())

    def _offsets(self, node: Any, location: Location) -> tuple[Location, ...]:
        """Characters are located line by line: each line of the text appears, without its indentation, in the lines of
        the file, in order. Escapes and folding shift a column at most within its line."""
        if node.style is None and "\n" not in node.value and node.start_mark.line == node.end_mark.line:
            return ()
        places: list[Location] = []
        line = node.start_mark.line + (1 if node.style in ("|", ">") else 0)
        column = 0 if node.style in ("|", ">") else node.start_mark.column + (1 if node.style else 0)
        for piece in node.value.split("\n"):
            if piece.strip():
                while line < min(node.end_mark.line, len(self._lines) - 1) and not self._lines[line].strip():
                    line, column = line + 1, 0
                found = self._lines[line].find(piece[:20].rstrip(), column) if line < len(self._lines) else -1
                column = found if found >= 0 else column
            places += [Location(line + 1, column + index + 1) for index in range(len(piece) + 1)]
            line, column = line + 1, 0
        return tuple(places)


def _location(mark: Any) -> Location:
    return Location(mark.line + 1, mark.column + 1) if mark is not None else Location(1, 1)
