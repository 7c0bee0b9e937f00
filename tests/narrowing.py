"""What a test expects of a value, said to the reader, to the type checker and to the run alike."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which must not be None."""
    assert value is not None
    return value


def expect(kind: type[T], value: object) -> T:
    """The value, which must be of this type."""
    assert isinstance(value, kind), f"{value!r} is not a {kind.__name__}"
    return value
