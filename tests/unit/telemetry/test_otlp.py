"""The decoder of OpenTelemetry's metrics, against messages built by hand, and against rubbish."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry import otlp
from penstock.telemetry.otlp import InvalidMetrics, Point, read_metrics


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, value: int | bytes | float | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(number: int, key: str, value: bytes) -> bytes:
    return field(number, field(1, key) + field(2, value))


def fixed(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def data_of(*metrics: bytes, resource: bytes = b"") -> bytes:
    return field(1, field(1, resource) + field(2, field(1, b"") + b"".join(field(2, metric) for metric in metrics)))


def metric(name: str, kind: int, *points: bytes, flags: bytes = b"") -> bytes:
    return field(1, name) + field(2, "described") + field(kind, b"".join(field(1, each) for each in points) + flags)


GAUGE, SUM, HISTOGRAM = 5, 7, 9


def test_gauges_and_sums() -> None:
    data = data_of(
        metric("size", GAUGE, field(4, 2.5) + attribute(7, "topic", field(1, "orders"))),
        metric("sent", SUM, fixed(6, 7), flags=field(2, 2) + field(3, 1)),
        metric("grown", SUM, fixed(6, -3), flags=field(2, 1)),
        metric("spread", HISTOGRAM, field(4, 1.0)),
        metric("empty", GAUGE, b""),
        resource=attribute(1, "group_id", field(1, "g")),
    )
    shared = (("group_id", "g"),)
    assert read_metrics(data) == [
        Point("size", (*shared, ("topic", "orders")), 2.5),
        Point("sent", shared, 7, is_monotonic=True),
        Point("grown", shared, -3, is_delta=True),
    ]


def test_values_of_attributes() -> None:
    values = field(2, 1), field(2, 0), field(3, 17), field(3, -17), field(4, 0.5), field(5, b"a list"), b""
    attributes = b"".join(attribute(7, f"k{number}", value) for number, value in enumerate(values))
    (point,) = read_metrics(data_of(metric("m", GAUGE, fixed(6, 1) + attributes)))
    assert point.attributes == (("k0", "true"), ("k1", "false"), ("k2", "17"), ("k3", "-17"), ("k4", "0.5"))


def test_long_names_are_cut() -> None:
    (point,) = read_metrics(data_of(metric("n" * 5000, GAUGE, fixed(6, 1) + attribute(7, "k", field(1, "ä" * 5000)))))
    assert (len(point.name), len(point.attributes[0][1])) == (otlp.NAME_LENGTH_MAX, otlp.VALUE_LENGTH_MAX)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05",
        b"\xff" * 11,
        b"\x0b",
        b"\x00\x00",
        data_of(metric("m", GAUGE, fixed(6, 1) + b"".join(attribute(7, f"k{n}", field(1, "v")) for n in range(17)))),
        data_of(metric("m", GAUGE, *[fixed(6, 1)] * (otlp.POINTS_MAX + 1))),
        data_of(field(1, b"\xff\xfe")),
    ],
    ids=["short", "endless number", "group", "field 0", "attributes", "points", "no text"],
)
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(InvalidMetrics):
        read_metrics(data)


@given(st.binary(max_size=300), st.integers(0, 300), st.binary(max_size=5))
def test_rubbish_is_refused_or_read(rubbish: bytes, position: int, patch: bytes) -> None:
    good = data_of(metric("sent", SUM, fixed(6, 7) + attribute(7, "k", field(1, "v")), flags=field(2, 2) + field(3, 1)))
    changed = good[:position] + patch + good[position + len(patch) :]
    for data in (rubbish, data_of(rubbish), changed):
        try:
            read_metrics(data)
        except InvalidMetrics:
            continue
