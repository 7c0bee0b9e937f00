"""Reads the metrics that clients send: OpenTelemetry's MetricsData (version 1), a message of Protocol Buffers.

Only numbers are read, which is what Kafka's clients send: gauges and sums, with their attributes. Histograms and
summaries are skipped, and so is every unknown field. The message comes from anybody who may connect, so everything is
limited: points, attributes, the length of names and values. The message is at most four levels deep for us: nothing
here follows the nesting of the input.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

POINTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 16
NAME_LENGTH_MAX: Final = 200
VALUE_LENGTH_MAX: Final = 200

_DELTA: Final = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS_MAX: Final = 64

_read_double = struct.Struct("<d").unpack_from
_read_int = struct.Struct("<q").unpack_from

Attributes = tuple[tuple[str, str], ...]


class InvalidMetrics(Exception):
    """The bytes are no MetricsData, or too much of it."""


class Point(NamedTuple):
    name: str
    attributes: Attributes
    value: float
    is_monotonic: bool = False
    """Whether it only grows, until the client starts anew."""
    is_delta: bool = False
    """Whether it is the growth since the last push."""


def read_metrics(data: bytes) -> list[Point]:
    points: list[Point] = []
    for resource_metrics in _messages(memoryview(data), 1):
        shared: Attributes = ()
        for resource in _messages(resource_metrics, 1):
            shared = _attributes(resource, 1)
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                for point in _points(metric, shared):
                    if len(points) >= POINTS_MAX:
                        raise InvalidMetrics(f"more than {POINTS_MAX} data points")
                    points.append(point)
    return points


def _points(metric: memoryview, shared: Attributes) -> Iterator[Point]:
    name = ""
    for number, _, value in _fields(metric):
        if number == 1 and isinstance(value, memoryview):
            name = _text(value, NAME_LENGTH_MAX)
    for gauge in _messages(metric, 5):
        for each in _messages(gauge, 1):
            yield from _point(name, each, shared, is_monotonic=False, is_delta=False)
    for total in _messages(metric, 7):
        flags = {number: value for number, _, value in _fields(total) if isinstance(value, int)}
        for each in _messages(total, 1):
            yield from _point(name, each, shared, is_monotonic=bool(flags.get(3)), is_delta=flags.get(2) == _DELTA)


def _point(name: str, data: memoryview, shared: Attributes, *, is_monotonic: bool, is_delta: bool) -> Iterator[Point]:
    """No point if it has no value of a type we know."""
    value: float | None = None
    for number, wire_type, field in _fields(data):
        if wire_type == _FIXED64 and isinstance(field, memoryview):
            if number == 4:
                (value,) = _read_double(field)
            elif number == 6:
                (value,) = _read_int(field)
    if value is not None and name:
        yield Point(name, (*shared, *_attributes(data, 7)), value, is_monotonic, is_delta)


def _attributes(data: memoryview, number: int) -> Attributes:
    found: list[tuple[str, str]] = []
    for pair in _messages(data, number):
        if len(found) >= ATTRIBUTES_MAX:
            raise InvalidMetrics(f"more than {ATTRIBUTES_MAX} attributes")
        key, text = "", None
        for field, _, value in _fields(pair):
            if field == 1 and isinstance(value, memoryview):
                key = _text(value, NAME_LENGTH_MAX)
            elif field == 2 and isinstance(value, memoryview):
                text = _any_value(value)
        if key and text is not None:
            found.append((key, text))
    return tuple(found)


def _any_value(data: memoryview) -> str | None:
    """A string, boolean or number as text; None for lists and the like, which nothing here needs."""
    for number, wire_type, value in _fields(data):
        if number == 1 and wire_type == _BYTES and isinstance(value, memoryview):
            return _text(value, VALUE_LENGTH_MAX)
        if number == 2 and isinstance(value, int):
            return "true" if value else "false"
        if number == 3 and isinstance(value, int):
            return str(value - (1 << 64) if value >= 1 << 63 else value)
        if number == 4 and wire_type == _FIXED64 and isinstance(value, memoryview):
            return repr(_read_double(value)[0])
    return None


def _text(data: memoryview, length_max: int) -> str:
    """At most `length_max` characters; what is cut off is not checked."""
    start = bytes(data[: 4 * length_max])
    try:
        return start.decode(errors="strict" if len(start) == len(data) else "ignore")[:length_max]
    except UnicodeDecodeError as error:
        raise InvalidMetrics("a string that is not UTF-8") from error


# -- Protocol Buffers --------------------------------------------------------------------------------------------------


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, wire_type, value in _fields(data):
        if number == wanted and wire_type == _BYTES and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field: an integer for a varint, else its bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise InvalidMetrics("field 0")
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise InvalidMetrics(f"wire type {wire_type}")
        if size > end - position:
            raise InvalidMetrics("a field that ends after its message")
        yield number, wire_type, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < _VARINT_BITS_MAX:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
    raise InvalidMetrics("a number that does not end")
