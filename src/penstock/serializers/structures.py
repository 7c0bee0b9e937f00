"""Converts dataclasses to plain JSON values and back, by their annotations.

`plain` is for `json.dumps(default=...)`: it converts one object that JSON cannot represent into one that it can.
`reader` compiles an annotation into a function that builds the value, so that annotations are examined once and an
unsupported type is an error when the serializer is created, not when a record arrives.

Unknown fields are ignored, so that a writer may add one before its readers know it; a missing field takes its default,
and is an error without one. Values are checked, not converted: `"7"` is not an int.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

Reader = Callable[[Any], Any]

_TEXT_FORMS: dict[type, Reader] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
}


def plain(value: Any) -> Any:
    """Return the JSON value for an object that `json` does not support."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON: {value!r:.80}")


def reader(annotation: Any) -> Reader:
    """Return a function from a JSON value to a value of the annotated type; it raises ValueError for other values."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation is object:
        return lambda value: value
    if origin is typing.Annotated:
        return reader(arguments[0])
    if origin in (Union, types.UnionType):
        return _union([reader(each) for each in arguments])
    if origin is Literal:
        return _one_of(arguments)
    kind = origin or annotation
    if kind is None or kind is type(None):
        return _one_of((None,))
    if not isinstance(kind, type):
        raise TypeError(f"no JSON is known for the type {annotation!r}")
    if kind is float:
        return _float
    if kind in (bool, int, str):
        return _exactly(kind)
    if kind in _TEXT_FORMS:
        return _text(kind, _TEXT_FORMS[kind])
    if issubclass(kind, enum.Enum):
        return lambda value: value if isinstance(value, kind) else kind(value)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    return _container(annotation, kind, arguments)


def _exactly(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r:.80} is not {kind.__name__}")
        return value

    return read


def _float(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise ValueError(f"{value!r:.80} is not float")
    return float(value)


def _text(kind: type, parse: Reader) -> Reader:
    """Read text, or accept a value that the format (Avro's logical types) has already converted."""

    def read(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, str):
            raise ValueError(f"{value!r:.80} is not {kind.__name__}")
        try:
            return parse(value)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"{value!r:.80} is not {kind.__name__}") from error

    return read


def _one_of(choices: Sequence[Any]) -> Reader:
    def read(value: Any) -> Any:
        for choice in choices:
            if value == choice and type(value) is type(choice):
                return value
        raise ValueError(f"{value!r:.80} is not {' or '.join(map(repr, choices))}")

    return read


def _union(readers: Sequence[Reader]) -> Reader:
    def read(value: Any) -> Any:
        problems = []
        for each in readers:
            try:
                return each(value)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError("; ".join(problems))

    return read


def _container(annotation: Any, kind: type, arguments: tuple[Any, ...]) -> Reader:
    if issubclass(kind, Mapping):
        if arguments and arguments[0] is not str:
            raise TypeError(f"keys of a JSON object are strings: {annotation!r}")
        return _mapping(reader(arguments[1]) if arguments else _anything)
    if kind is tuple and arguments and arguments[-1] is not ...:
        return _fixed_tuple([reader(each) for each in arguments])
    made: Callable[[list[Any]], Any]
    if kind in (list, tuple, set, frozenset):
        made = kind
    elif kind is Sequence:
        made = list
    else:
        raise TypeError(f"no JSON is known for the type {annotation!r}")
    item = reader(arguments[0]) if arguments else _anything

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{value!r:.80} is not a list")
        return made([item(each) for each in value])

    return read


def _anything(value: Any) -> Any:
    return value


def _mapping(item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.80} is not an object")
        return {key: item(each) for key, each in value.items()}

    return read


def _fixed_tuple(items: Sequence[Reader]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(items):
            raise ValueError(f"{value!r:.80} is not a list of {len(items)}")
        return tuple(item(each) for item, each in zip(items, value, strict=True))

    return read


def _dataclass(kind: type) -> Reader:
    """Read a dataclass. Fields are compiled on the first value, so that a class may contain its own type."""
    fields: list[tuple[str, Reader, bool]] = []

    def compile_fields() -> None:
        annotations = typing.get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            if field.init:
                required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
                fields.append((field.name, reader(annotations[field.name]), required))

    _check_annotations(kind, set())

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.80} is not an object, as a {kind.__name__} is")
        if not fields:
            compile_fields()
        given = {}
        for name, read_field, required in fields:
            if name in value:
                try:
                    given[name] = read_field(value[name])
                except ValueError as error:
                    raise ValueError(f"{kind.__name__}.{name}: {error}") from error
            elif required:
                raise ValueError(f"{kind.__name__}.{name} is missing")
        return kind(**given)

    return read


def _check_annotations(kind: type, seen: set[type]) -> None:
    """Raise TypeError for an unsupported type in this class and those it refers to."""
    seen.add(kind)

    def check(annotation: Any) -> None:
        if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
            if annotation not in seen:
                _check_annotations(annotation, seen)
        elif arguments := typing.get_args(annotation):
            if typing.get_origin(annotation) is not Literal:
                for each in arguments:
                    if each is not ...:
                        check(each)
        else:
            reader(annotation)

    for name, annotation in typing.get_type_hints(kind, include_extras=True).items():
        try:
            check(annotation)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{name}: {error}") from error
