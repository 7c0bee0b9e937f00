"""JSON: plain values, or instances of a given class.

    Json()           dicts, lists, strings, numbers
    Json(Order)      a dataclass, a pydantic model, a msgspec.Struct, or anything made of them: list[Order]

Text is UTF-8 and compact, without escapes for non-ASCII characters. NaN and infinities, which JSON lacks, are errors.
`structures` reads and writes dataclasses; pydantic and msgspec convert their own classes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from penstock.serializers.base import Serde
from penstock.serializers.structures import plain, reader

T = TypeVar("T")

_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain).encode


def to_json(value: object) -> bytes:
    return _dumps(value).encode()


class Json(Serde[T]):
    @overload
    def __init__(self: Json[Any], type: None = None) -> None: ...
    @overload
    def __init__(self, type: type[T]) -> None: ...
    def __init__(self, type: type[T] | None = None) -> None:  # noqa: A002  # what it is
        self._type = type
        if type is None:
            self.encode, self.decode = to_json, _loads
        else:
            self.encode, self.decode = _msgspec(type) or _pydantic(type) or _annotated(type)

    def __repr__(self) -> str:
        return f"Json({getattr(self._type, '__name__', self._type or '')})"


def _loads(data: bytes) -> Any:
    # json.loads would also detect UTF-16 and UTF-32.
    return json.loads(data.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _annotated(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]]:
    read = reader(kind)
    expected = kind if isinstance(kind, type) else None

    def encode(value: T) -> bytes:
        if expected is not None and not isinstance(value, expected):
            raise TypeError(f"a {type(value).__name__} is not a {expected.__name__}: {value!r:.80}")
        return to_json(value)

    return encode, lambda data: cast(T, read(_loads(data)))


def _msgspec(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]] | None:
    # A pydantic or msgspec class cannot exist before its package is imported, so nothing is imported for this check.
    msgspec = sys.modules.get("msgspec")
    if msgspec is None or not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    encode = msgspec.json.Encoder().encode

    def checked(value: T) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}: {value!r:.80}")
        return cast(bytes, encode(value))

    return checked, msgspec.json.Decoder(kind).decode


def _pydantic(kind: type[T]) -> tuple[Callable[[T], bytes], Callable[[bytes], T]] | None:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)):
        return None
    adapter = pydantic.TypeAdapter(kind)

    def encode(value: T) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}: {value!r:.80}")
        return cast(bytes, adapter.dump_json(value))

    return encode, adapter.validate_json
