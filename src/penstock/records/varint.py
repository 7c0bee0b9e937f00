"""Zigzag varints: the lengths and deltas inside a record."""

from __future__ import annotations

from collections.abc import Sequence

# A varlong has at most ten bytes of seven bits.
_MAX_BYTES = 10


def read_unsigned(data: Sequence[int], position: int) -> tuple[int, int]:
    """The raw (still zigzagged) value at `position` and the position after it.

    IndexError if the data ends first, ValueError if it has more bytes than 64 bits can need.
    """
    value = 0
    shift = 0
    for _ in range(_MAX_BYTES):
        byte = data[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("varint of more than ten bytes")


def write_unsigned(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# Almost every length and delta is small: a table has these.
_SMALL = 2048
_TABLE = tuple(write_unsigned(value) for value in range(_SMALL))


def varint(value: int) -> bytes:
    """Encode a signed value, zigzagged so that small negatives stay short."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    return _TABLE[value] if value < _SMALL else write_unsigned(value)
