"""Hypothesis strategies for protocol messages, derived from their declarations."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from hypothesis import strategies as st

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol import messages
from penstock.protocol.declaration import Message, TypedField
from penstock.protocol.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    UINT16,
    UUID,
    Scalar,
)


def _integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.sampled_from((0, 1, 7, high, low)) | st.integers(low, high)


SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT8: _integers(8),
    INT16: _integers(16),
    UINT16: _integers(16, signed=False),
    INT32: _integers(32),
    INT64: _integers(64),
    FLOAT64: st.floats(allow_nan=False),
    UUID: st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
}
# Lengths of 127 and more take a second byte as a varint; records above 1024 bytes are spliced in, not copied.
STRINGS = st.text(max_size=5) | st.sampled_from(("", "topic", "größer", "x" * 126, "x" * 127, "x" * 20_000))
BLOBS = st.binary(max_size=5) | st.sampled_from((b"", b"y" * 127, b"y" * 200))
RECORD_DATA = st.binary(max_size=5) | st.sampled_from((b"", b"r" * 1024, b"r" * 1025, b"r" * 5000))
UNKNOWN_TAGS = st.dictionaries(st.integers(50, 1 << 20), st.binary(max_size=3), min_size=1, max_size=2)

# kio reads an error code as a member of its enum, and times as datetime and timedelta.
_KIO_ERROR_CODES = st.sampled_from([code.value for code in ErrorCode if code.value < 130])
_KIO_TIMES = st.integers(0, 4_000_000_000_000)
_KIO_DURATIONS = st.integers(0, 1_000_000_000)


def all_messages() -> list[type[Message]]:
    """Every message with versions of its own, in a stable order."""
    found = set()
    for module_info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__schema__.versions is not None:
                found.add(value)
    return sorted(found, key=lambda cls: cls.__name__)


def versions_of(cls: type[Message]) -> range:
    assert cls.__schema__.versions is not None
    first, last = cls.__schema__.versions
    return range(first, last + 1)


def message(cls: type[Message], version: int, *, for_kio: bool = False) -> st.SearchStrategy[Message]:
    return _struct(cls, version, version in cls.__schema__.flexible, for_kio)


@cache
def _struct(cls: type[Message], version: int, flexible: bool, for_kio: bool) -> st.SearchStrategy[Message]:
    fields = {
        field.name: _value(field, version, flexible, for_kio)
        for field in cls.__schema__.fields
        if version in field.versions
    }
    strategy = st.builds(cls, **fields)
    if flexible and not for_kio:
        return st.builds(_with_unknown_tags, strategy, st.none() | st.none() | UNKNOWN_TAGS)
    return strategy


def _with_unknown_tags(message: Message, tags: dict[int, bytes] | None) -> Message:
    message.unknown_tags = tags
    return message


def _value(field: TypedField, version: int, flexible: bool, for_kio: bool) -> st.SearchStrategy[Any]:
    if isinstance(field.type, type):
        strategy: st.SearchStrategy[Any] = _struct(field.type, version, flexible, for_kio)
    elif isinstance(field.type, Scalar):
        strategy = _kio_scalar(field, field.type) if for_kio else SCALARS[field.type]
    else:
        strategy = {BYTES: BLOBS, RECORDS: RECORD_DATA}.get(field.type, STRINGS)
    if field.is_array:
        strategy = st.lists(strategy, max_size=2)
        if isinstance(field.type, Scalar):
            default = field.type.default
            strategy = strategy | st.sampled_from((16, 17, 130)).map(lambda length: [default] * length)
    elif isinstance(field.type, type) and field.tag is not None and not field.nullable.is_some:
        # A tagged struct full of defaults is not sent, and comes back as None.
        empty = field.type()
        strategy = st.none() | strategy.map(lambda struct: None if struct == empty else struct)
    if version in field.nullable:
        strategy = st.none() | strategy
    return strategy


def _kio_scalar(field: TypedField, kind: Scalar) -> st.SearchStrategy[Any]:
    if kind is INT16 and field.name.endswith("error_code"):
        return _KIO_ERROR_CODES
    if kind is INT32 and field.name.endswith("_ms"):
        return _KIO_DURATIONS
    if kind is INT64 and field.name.endswith(("_ms", "timestamp")):
        return _KIO_TIMES
    return SCALARS[kind]
