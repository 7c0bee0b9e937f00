"""Decodes keys and values to Arrow arrays: as bytes, text, numbers or JSON, or with a user's deserializer.

Compiled kernels decode text and numbers (big-endian, as Java's serializers write them). Arrow's parser decodes JSON,
with the requested struct type. A deserializer is called once per record.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json
from numpy.typing import NDArray

from penstock.arrow.errors import BadColumn
from penstock.records.columnar import Bytes as ByteArray
from penstock.records.columnar import Ints, SpanColumn
from penstock.records.columnar_decoding import gather, gather_fixed
from penstock.serializers import Avro, Bytes, Context, Float32, Float64, Int32, Int64, String
from penstock.serializers.base import is_plain

_NUMBERS = (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
_TYPES_OF_SERDES = {
    Bytes: pa.binary(),
    String: pa.utf8(),
    Int32: pa.int32(),
    Int64: pa.int64(),
    Float32: pa.float32(),
    Float64: pa.float64(),
}

Deserialize = Callable[[bytes, str], Any]


class BadRow(ValueError):
    """The index of the row whose bytes do not fit, among those being decoded; the reader knows its offset."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


class Decoder(Protocol):
    @property
    def type(self) -> Any:
        """The Arrow type of the column; None if only the values determine it."""

    def decode(self, buffer: ByteArray, column: SpanColumn, topic: str) -> Any:
        """An Arrow array of the spans; BadRow for one that does not fit."""


def decoder_of(what: Any, column: str, topics: Sequence[str] = ()) -> Decoder:
    """`what` is None (bytes as they are), an Arrow type or its name, a deserializer, or (deserializer, Arrow type)."""
    if what is None:
        return Plain(pa.binary())
    if isinstance(what, str):
        try:
            what = pa.type_for_alias(what)
        except ValueError:
            raise BadColumn(f"{column}={what!r} is no Arrow type; say e.g. 'utf8', 'int64' or 'float64'") from None
    if isinstance(what, pa.DataType):
        return _decoder_of_type(what, column)
    if type(what) in _TYPES_OF_SERDES:
        return _decoder_of_type(_TYPES_OF_SERDES[type(what)], column)
    if isinstance(what, Avro) and what.framing is not None:
        from penstock.arrow.registry import RegisteredAvro  # its kernel is loaded where it is needed

        return RegisteredAvro(what, topics, is_key=column == "key")
    if isinstance(what, tuple) and len(what) == 2 and isinstance(what[1], pa.DataType):
        return Deserialized(_deserializer(what[0], column), what[1])
    return Deserialized(_deserializer(what, column), None)


def _decoder_of_type(wanted: Any, column: str) -> Decoder:
    if wanted in (pa.binary(), pa.utf8()):
        return Plain(wanted)
    if wanted in _NUMBERS:
        return Number(wanted)
    if pa.types.is_struct(wanted):
        return Json(wanted)
    raise BadColumn(
        f"{column} cannot be read as {wanted}; types are binary, string, int16, int32, int64, float32, float64 "
        f"(big-endian), struct (JSON), or give a deserializer"
    )


def _deserializer(given: Any, column: str) -> Deserialize:
    """A deserializer of `penstock.serializers`, or any function of bytes."""
    if is_plain(given):
        return lambda data, topic: given.decode(data)
    if hasattr(given, "deserialize"):
        return lambda data, topic: given.deserialize(data, Context(topic, column == "key"))
    if callable(given):
        return lambda data, topic: given(data)
    raise BadColumn(f"{column}={given!r} is neither an Arrow type nor a deserializer")


class Plain:
    """Bytes unchanged, or text that is checked to be UTF-8."""

    def __init__(self, wanted: Any) -> None:
        self.type = wanted

    def decode(self, buffer: ByteArray, column: SpanColumn, topic: str) -> Any:
        array = gathered(buffer, column, self.type)
        if self.type == pa.utf8():
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                raise self._culprit(array) from None
        return array

    def _culprit(self, array: Any) -> BadRow:
        for row, data in enumerate(array.cast(pa.binary()).to_pylist()):
            try:
                data is not None and data.decode()
            except UnicodeDecodeError as error:
                return BadRow(row, f"not UTF-8: {error.reason} in {data[:40]!r}")
        raise AssertionError("Arrow found text that is no UTF-8, Python did not")


class Number:
    """Big-endian numbers of one width."""

    def __init__(self, wanted: Any) -> None:
        self.type = wanted

    def decode(self, buffer: ByteArray, column: SpanColumn, topic: str) -> Any:
        width = self.type.bit_width // 8
        data = np.empty(len(column.starts) * width, np.uint8)
        bad = gather_fixed(buffer, column.starts, column.lengths, width, data)
        if bad >= 0:
            raise BadRow(int(bad), f"{column.lengths[bad]} bytes, {self.type} needs {width}")
        return pa.Array.from_buffers(self.type, len(column.starts), [validity(column.lengths), pa.py_buffer(data)])


class Json:
    """JSON objects as structs: fields that are not in the type are omitted, missing ones are null."""

    def __init__(self, wanted: Any) -> None:
        self.type = wanted

    def decode(self, buffer: ByteArray, column: SpanColumn, topic: str) -> Any:
        rows = gathered(buffer, column, pa.binary())
        present = rows.drop_null()
        if not len(present):
            return pa.nulls(len(rows), self.type)
        options = pa_json.ParseOptions(
            explicit_schema=pa.schema(list(self.type)), newlines_in_values=True, unexpected_field_behavior="ignore"
        )
        lines = b"\n".join(present.to_pylist())
        try:
            table = pa_json.read_json(
                io.BytesIO(lines),
                read_options=pa_json.ReadOptions(use_threads=False, block_size=max(len(lines) + 1, 1024)),
                parse_options=options,
            )
        except pa.ArrowInvalid as error:
            raise self._culprit(rows, str(error)) from None
        if len(table) != len(present):
            raise self._culprit(rows, "not one JSON object")
        array = table.to_struct_array().combine_chunks().cast(self.type)
        if len(present) == len(rows):
            return array
        places = np.cumsum(column.lengths >= 0) - 1
        return array.take(numbers(places, column.lengths))

    def _culprit(self, rows: Any, problem: str) -> BadRow:
        for row, data in enumerate(rows.to_pylist()):
            try:
                if data is not None and not isinstance(json.loads(data), dict):
                    return BadRow(row, f"not a JSON object: {data[:40]!r}")
            except ValueError as error:
                return BadRow(row, f"not JSON: {error}")
        return BadRow(0, f"does not fit {self.type} (this record, or one soon after it): {problem}")


class Deserialized:
    """The result of a function for each record."""

    def __init__(self, deserialize: Deserialize, wanted: Any) -> None:
        self.type = wanted
        self._deserialize = deserialize

    def decode(self, buffer: ByteArray, column: SpanColumn, topic: str) -> Any:
        made: list[Any] = []
        for row, data in enumerate(gathered(buffer, column, pa.binary()).to_pylist()):
            try:
                made.append(None if data is None else self._deserialize(data, topic))
            except Exception as error:
                raise BadRow(row, f"{type(error).__name__}: {error}") from error
        try:
            return pa.array(made, self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise BadRow(_first_bad(made, self.type), str(error)) from None


def _first_bad(values: list[Any], wanted: Any) -> int:
    for row, value in enumerate(values):
        try:
            pa.array([value], wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            return row
    return 0  # each value alone is valid, together they have no type


def gathered(buffer: ByteArray, column: SpanColumn, wanted: Any) -> Any:
    """The spans, copied together, as an array of `wanted`: binary or string."""
    offsets = np.empty(len(column.starts) + 1, np.int32)
    data = np.empty(column.size, np.uint8)
    gather(buffer, column.starts, column.lengths, offsets, data)
    buffers = [validity(column.lengths), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(wanted, len(column.starts), buffers)


def validity(lengths: Ints) -> Any:
    """Arrow's bitmap of the values that are not null; None if all are."""
    present = lengths >= 0
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def numbers(values: NDArray[np.int32] | NDArray[np.int64], lengths: Ints | None = None) -> Any:
    """An array over the numbers, without a copy; null where a length is negative. (`pa.array` would import pandas.)"""
    wanted = pa.int32() if values.dtype == np.int32 else pa.int64()
    bitmap = None if lengths is None else validity(lengths)
    return pa.Array.from_buffers(wanted, len(values), [bitmap, pa.py_buffer(values)])
