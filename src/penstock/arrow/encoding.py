"""Encodes Arrow arrays as columns of bytes, the input of the kernels that write records.

Bytes and text are unchanged, numbers are big-endian as Java's serializers write them. Any other type needs a
serializer, or is refused with a list of the types that are possible.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.errors import BadColumn
from penstock.records.columnar import Bytes, Ints, Longs
from penstock.serializers import Context

_BIG_ENDIAN = {
    pa.int16(): ">i2",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
}
_NEEDED = "binary, string, int16, int32, int64, float32 or float64"
_HEADERS_NEEDED = "list<struct<key: string, value: binary>> or map<string, binary>"

Serializer = Callable[[Any, str], bytes | None]


class ByteColumn(NamedTuple):
    """Bytes, and for each row the start and the length of its own; -1 for null."""

    data: Bytes
    starts: Longs
    lengths: Ints


class HeaderColumns(NamedTuple):
    firsts: Longs  # the index of each row's first header
    counts: Ints
    keys: ByteColumn
    values: ByteColumn


NO_BYTES = ByteColumn(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int32))


def nulls(rows: int) -> ByteColumn:
    return ByteColumn(NO_BYTES.data, np.zeros(rows, np.int64), np.full(rows, -1, np.int32))


def column(batch: Any, name: str, what: str) -> Any:
    """The array of that name in a record batch."""
    if name not in batch.schema.names:
        raise BadColumn(f"{what}={name!r}: the table has no such column, only {', '.join(batch.schema.names)}")
    array = batch.column(name)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def serializer_of(given: Any, what: str) -> Serializer | None:
    """A serializer of `penstock.serializers`, any function to bytes, or "json"; None for none."""
    if given is None:
        return None
    if given == "json":
        return lambda value, topic: None if value is None else json.dumps(value, separators=(",", ":")).encode()
    if hasattr(given, "serialize"):
        return lambda value, topic: given.serialize(value, Context(topic, what == "key"))
    if callable(given):
        return lambda value, topic: given(value)
    raise BadColumn(f"{what}_serializer={given!r} is neither a serializer nor 'json'")


def serialized(array: Any, name: str, serialize: Serializer, topic: str, first_row: int) -> ByteColumn:
    made: list[bytes | None] = []
    for row, value in enumerate(array.to_pylist(), first_row):
        try:
            made.append(None if value is None else serialize(value, topic))
        except Exception as error:
            raise BadColumn(f"column {name!r}, row {row}: {type(error).__name__}: {error}") from error
    return byte_column(pa.array(made, pa.binary()), name)


def byte_column(array: Any, name: str) -> ByteColumn:
    """For keys, values and the like; BadColumn for a type that has no bytes of its own."""
    kind = array.type
    if pa.types.is_null(kind):
        return nulls(len(array))
    if kind in _BIG_ENDIAN:
        return _numbers(array, _BIG_ENDIAN[kind])
    if pa.types.is_fixed_size_binary(kind) or kind in (pa.binary_view(), pa.string_view()):
        array = array.cast(pa.binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_string(kind)) and kind not in (
        pa.large_binary(),
        pa.large_string(),
    ):
        raise BadColumn(
            f"column {name!r} has the type {kind}; it needs {_NEEDED}. "
            f"Cast it, or give a serializer ('json' for structs and lists)"
        )
    return _binary(array)


def _binary(array: Any) -> ByteColumn:
    wide = array.type in (pa.large_binary(), pa.large_string())
    _, offsets_buffer, data_buffer = array.buffers()
    rows = len(array)
    if rows == 0 or offsets_buffer is None:
        return nulls(rows)
    whole: Any = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    offsets = whole[array.offset : array.offset + rows + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(_valid(array), lengths, -1)
    if wide and lengths.max() > 2**31 - 1:
        raise BadColumn(f"a value of {lengths.max()} bytes is too large for a record")
    data = NO_BYTES.data if not data_buffer else np.frombuffer(data_buffer, np.uint8)
    return ByteColumn(data, offsets[:-1], lengths.astype(np.int32))


def _numbers(array: Any, big_endian: str) -> ByteColumn:
    width = np.dtype(big_endian).itemsize
    native = np.frombuffer(array.buffers()[1], np.dtype(big_endian).newbyteorder("="))
    data = native[array.offset : array.offset + len(array)].astype(big_endian).view(np.uint8)
    lengths = np.full(len(array), width, np.int32)
    if array.null_count:
        lengths[~_valid(array)] = -1
    return ByteColumn(data, np.arange(len(array), dtype=np.int64) * width, lengths)


def header_columns(array: Any, name: str, first_row: int) -> HeaderColumns:
    kind = array.type
    if pa.types.is_map(kind):
        keys, values = array.keys, array.items
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_pair(kind.value_type):
        keys, values = array.values.flatten()
    elif pa.types.is_null(kind):
        return no_headers(len(array))
    else:
        raise BadColumn(f"column {name!r} has the type {kind}; headers need {_HEADERS_NEEDED}")
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = (offsets[1:] - offsets[:-1]).astype(np.int32)
    if array.null_count:
        counts[~_valid(array)] = 0
    key_bytes, value_bytes = byte_column(keys, name), byte_column(values, name)
    keyless = np.flatnonzero(key_bytes.lengths < 0)
    for header in keyless:  # a null in a list that is null itself belongs to no row
        row = int(np.searchsorted(offsets, header, side="right")) - 1
        if 0 <= row < len(counts) and header < offsets[row] + counts[row]:
            raise BadColumn(f"column {name!r}, row {first_row + row}: a header without a key")
    return HeaderColumns(np.ascontiguousarray(offsets[:-1]), counts, key_bytes, value_bytes)


def no_headers(rows: int) -> HeaderColumns:
    return HeaderColumns(np.zeros(rows, np.int64), np.zeros(rows, np.int32), NO_BYTES, NO_BYTES)


def _is_pair(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind)) and [field.name for field in kind] == ["key", "value"]


def timestamps(array: Any, name: str, now_ms: int) -> Longs:
    """Milliseconds; a row without a time gets the current one."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ms", kind.tz), safe=False).view(pa.int64())
    elif kind != pa.int64():
        raise BadColumn(f"column {name!r} has the type {kind}; timestamps need timestamp, or int64 (milliseconds)")
    return _filled(array, now_ms)


def partition_numbers(array: Any, name: str, partitions: int, first_row: int) -> Ints:
    """The partition of each row, -1 if the key decides."""
    if not pa.types.is_integer(array.type):
        raise BadColumn(f"column {name!r} has the type {array.type}; partitions need int32")
    numbers = _filled(array.cast(pa.int64()), -1)
    given = _valid(array)
    wrong = np.flatnonzero(given & ((numbers < 0) | (numbers >= partitions)))
    if len(wrong):
        row = int(wrong[0])
        raise BadColumn(
            f"column {name!r}, row {first_row + row}: there is no partition {numbers[row]}, only 0 to {partitions - 1}"
        )
    return numbers.astype(np.int32)


def _filled(array: Any, value: int) -> Longs:
    filled: Longs = pc.fill_null(array, value).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return np.require(filled, requirements=["C", "W"])


def _valid(array: Any) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)
