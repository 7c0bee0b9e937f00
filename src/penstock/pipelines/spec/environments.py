"""Applies environments to a file: overlays, then parameters.

    parameters:
      bootstrap: {type: string, default: "127.0.0.1:9092"}
    environments:
      prod:
        parameters: {bootstrap: "kafka-1:9092"}
        checkpoints: s3a://pipelines/checkpoints
    bootstrap: ${bootstrap}

The laws: fields that an overlay does not mention stay; mappings are merged, anything else is replaced, and `null`
removes. `--set` overrides the environment's value of a parameter, which overrides the default; a parameter without any
value is an error. A value that is only `${name}` has the parameter's type; inside a longer text it is text. `$${`
stands for `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Pairs
from dataclasses import replace

from penstock.pipelines.spec.documents import Entry, Mapping, Node, Scalar, Sequence, Value
from penstock.pipelines.spec.problems import Location, Path, Problem, nearest

_REFERENCE = re.compile(r"\$(\$)?\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

# These sections cannot contain parameters, because they define them.
_DECLARATIONS = ("parameters", "environments")

TYPES = ("string", "int", "float", "bool")


def overlay(base: Mapping, over: Mapping) -> Mapping:
    entries = dict(base.entries)
    for name, entry in over.entries.items():
        there = entries.get(name)
        if isinstance(entry.value, Scalar) and entry.value.value is None:
            entries.pop(name, None)
        elif there is not None and isinstance(there.value, Mapping) and isinstance(entry.value, Mapping):
            entries[name] = Entry(entry.key, overlay(there.value, entry.value))
        else:
            entries[name] = entry
    return Mapping(entries, base.location)


def environment_names(document: Mapping) -> list[str]:
    section = document.entries.get("environments")
    return list(section.value.entries) if section is not None and isinstance(section.value, Mapping) else []


class Resolution:
    """A document as one environment sees it; `problems` has the errors."""

    def __init__(self, document: Mapping, file: str, environment: str | None, given: Pairs[str, str]) -> None:
        self._file = file
        self.problems: list[Problem] = []
        over, values = self._environment(document, environment)
        self._values = self._parameters(document, values, given)
        merged = overlay(document, over) if over is not None else document
        entries = {
            name: entry if name in _DECLARATIONS else Entry(entry.key, self._filled(entry.value, (name,)))
            for name, entry in merged.entries.items()
        }
        self.document = Mapping(entries, merged.location)

    def _environment(self, document: Mapping, name: str | None) -> tuple[Mapping | None, dict[str, Scalar]]:
        section = document.entries.get("environments")
        if name is None:
            return None, {}
        known = environment_names(document)
        if name not in known:
            at = section.key if section is not None else document.location
            self.problems.append(
                Problem(f'no environment "{name}"; {nearest(name, known)}', ("environments",), at, self._file)
            )
            return None, {}
        assert section is not None and isinstance(section.value, Mapping)
        chosen = section.value.entries[name]
        path: Path = ("environments", name)
        if not isinstance(chosen.value, Mapping):
            if isinstance(chosen.value, Scalar) and chosen.value.value is None:
                return None, {}
            self._problem("an environment is a mapping of what differs in it", path, chosen.key)
            return None, {}
        values: dict[str, Scalar] = {}
        rest = dict(chosen.value.entries)
        for forbidden in ("name", "environments"):
            if forbidden in rest:
                self._problem(f'"{forbidden}" is the same in all environments', path, rest.pop(forbidden).key)
        parameters = rest.pop("parameters", None)
        if parameters is not None and isinstance(parameters.value, Mapping):
            for parameter, entry in parameters.value.entries.items():
                if isinstance(entry.value, Scalar):
                    values[parameter] = entry.value
                else:
                    message = f'the value of parameter "{parameter}" must be a single value'
                    self._problem(message, (*path, "parameters", parameter), entry.key)
        elif parameters is not None:
            self._problem("parameters of an environment are a mapping of values", path, parameters.key)
        return Mapping(rest, chosen.value.location), values

    def _parameters(
        self, document: Mapping, environment: Pairs[str, Scalar], given: Pairs[str, str]
    ) -> dict[str, Value]:
        """The values; a parameter without a valid value is absent and a problem."""
        section = document.entries.get("parameters")
        declared = section.value.entries if section is not None and isinstance(section.value, Mapping) else {}
        for name, scalar in environment.items():
            if name not in declared:
                self._problem(f'no parameter "{name}"; {nearest(name, declared)}', ("parameters",), scalar.location)
        for name in given:
            if name not in declared:
                at = section.key if section is not None else document.location
                self._problem(f'--set {name}: no parameter "{name}"; {nearest(name, declared)}', ("parameters",), at)
        values: dict[str, Value] = {}
        for name, entry in declared.items():
            path: Path = ("parameters", name)
            kind, default = _declaration(entry.value)
            chosen = environment.get(name, default)
            if kind not in TYPES:
                continue  # reported where the section itself is checked
            if name in given:
                chosen = replace(chosen or Scalar(None, entry.key), value=given[name], text=given[name])
            if chosen is None or chosen.value is None:
                self._problem(
                    f'parameter "{name}" has no value; give it a default, or --set {name}=...', path, entry.key
                )
                continue
            try:
                values[name] = _typed(chosen, kind)
            except ValueError as error:
                said = f"--set {name}: " if name in given else ""
                self._problem(f'{said}parameter "{name}": {error}', path, chosen.location)
        return values

    def _filled(self, node: Node, path: Path) -> Node:
        if isinstance(node, Mapping):
            filled = {
                name: Entry(entry.key, self._filled(entry.value, (*path, name))) for name, entry in node.entries.items()
            }
            return Mapping(filled, node.location)
        if isinstance(node, Sequence):
            items = (self._filled(item, (*path, index)) for index, item in enumerate(node.items))
            return Sequence(tuple(items), node.location)
        return self._scalar(node, path) if isinstance(node.value, str) and "${" in node.value else node

    def _scalar(self, scalar: Scalar, path: Path) -> Scalar:
        text = str(scalar.value)
        whole = _REFERENCE.fullmatch(text)
        if whole is not None and not whole[1] and not whole[2].startswith("secret:"):
            value = self._value(whole[2], scalar, 0, path)
            return replace(scalar, value=value, text=_text(value), offsets=(scalar.at(0),), unknown=value is None)
        made, places, end, unknown = "", [], 0, False
        for reference in _REFERENCE.finditer(text):
            before = text[end : reference.start()]
            end = reference.end()
            if reference[1]:
                inserted = reference[0][1:]
            elif reference[2].startswith("secret:"):
                inserted = reference[0]
            else:
                value = self._value(reference[2], scalar, reference.start(), path)
                inserted, unknown = _text(value), unknown or value is None
            places += [scalar.at(end - len(reference[0]) - len(before) + index) for index in range(len(before))]
            places += [scalar.at(reference.start())] * len(inserted)
            made += before + inserted
        places += [scalar.at(end + index) for index in range(len(text) - end + 1)]
        made += text[end:]
        return replace(scalar, value=made, text=made, offsets=tuple(places), unknown=unknown)

    def _value(self, name: str, scalar: Scalar, index: int, path: Path) -> Value:
        """None if there is none, which is reported."""
        if name in self._values:
            return self._values[name]
        if not any(problem.path == ("parameters", name) for problem in self.problems):
            hint = nearest(name, self._values) if _NAME.fullmatch(name) else "write $${ where ${ is meant"
            self._problem(f'no parameter "{name}"; {hint}', path, scalar.at(index))
        return None

    def _problem(self, message: str, path: Path, location: Location) -> None:
        self.problems.append(Problem(message, path, location, self._file))


def _declaration(node: Node) -> tuple[str, Scalar | None]:
    """Type and default of a parameter, in long (`{type: int, default: 3}`) or short form (`3`)."""
    if isinstance(node, Scalar):
        return _type_of(node.value), node
    if not isinstance(node, Mapping):
        return "", None
    kinds, defaults = (_scalar_of(node, "type"), _scalar_of(node, "default"))
    return (str(kinds.value) if kinds is not None else _type_of(defaults.value if defaults else "")), defaults


def _scalar_of(node: Mapping, name: str) -> Scalar | None:
    entry = node.entries.get(name)
    return entry.value if entry is not None and isinstance(entry.value, Scalar) else None


def _type_of(value: Value) -> str:
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "string")


def _typed(scalar: Scalar, kind: str) -> Value:
    text = scalar.text if scalar.text or isinstance(scalar.value, str) else _text(scalar.value)
    if kind == "string":
        return text
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in ("int", "float"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            pass
    raise ValueError(f'"{text}" is not of type {kind}')


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else "" if value is None else str(value)
