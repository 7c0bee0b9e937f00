"""The wire types of the Kafka protocol, and the byte-level functions that compiled codecs call.

A message declares its fields with the aliases below: to a type checker `Int32` is an `int`, to the codec compiler it is
four big-endian bytes. `str`, `bytes` and `bool` need no alias, since each has exactly one form on the wire.

A type of fixed size is a `Scalar` and names its `struct` format, so that the compiler can combine adjacent fields into
one `Struct`. The others are `Variable`: a length, then the bytes. In flexible versions the length is an unsigned varint
of length + 1 (0 is null); before, an int16 or int32 (-1 is null).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from penstock.model.file_range import FileRange
from penstock.model.ids import ZERO_UUID

Buffer = bytes | bytearray | memoryview
# What responses consist of.
Part = Buffer | FileRange
# isinstance() is twice as fast with a tuple as with a union.
BUFFER_TYPES = (bytes, bytearray, memoryview)
PART_TYPES = (*BUFFER_TYPES, FileRange)


class MalformedMessage(ValueError):
    """The bytes are not a valid message: truncated, implausible lengths, bad UTF-8, bad tags."""


class Scalar(NamedTuple):
    """A type whose values all have the same size."""

    name: str
    format: str
    size: int
    default: bool | int | float | bytes


class Variable(NamedTuple):
    """A type whose values carry their length."""

    name: str
    default: str | bytes | None


BOOLEAN = Scalar("bool", "?", 1, False)
INT8 = Scalar("int8", "b", 1, 0)
INT16 = Scalar("int16", "h", 2, 0)
UINT16 = Scalar("uint16", "H", 2, 0)
INT32 = Scalar("int32", "i", 4, 0)
INT64 = Scalar("int64", "q", 8, 0)
FLOAT64 = Scalar("float64", "d", 8, 0.0)
UUID = Scalar("uuid", "16s", 16, ZERO_UUID)
STRING = Variable("string", "")
# The client id in a request header keeps its int16 length in flexible versions too: a broker must be able to read the
# header of a request whose version it does not know.
INT16_STRING = Variable("int16 string", "")
BYTES = Variable("bytes", b"")
RECORDS = Variable("records", None)

Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Uint16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[bytes, UUID]
Int16String = Annotated[str, INT16_STRING]
# Record batches pass through unchanged. The decoder returns a memoryview of its input; the encoder takes any buffer, or
# several that are consecutive on the wire, or a range of a file that the kernel sends.
Records = Annotated[Part | Sequence[Buffer] | None, RECORDS]

PLAIN_KINDS: dict[Any, Scalar | Variable] = {str: STRING, bytes: BYTES, bool: BOOLEAN}

# A string's length must fit an int16 in flexible versions too: Kafka's clients and brokers require it.
STRING_SIZE_MAX = 32767

# Five bytes of seven bits hold any unsigned 32-bit number.
UVARINT_SIZE_MAX = 5


def uvarint(value: int) -> bytes:
    """Encode a non-negative number as unsigned LEB128."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint after its first byte; return the value and the next position."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_SIZE_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage(f"a varint longer than {UVARINT_SIZE_MAX} bytes")


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value at `position` and the position after it. IndexError if the buffer ends too early."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint_rest(buffer, position + 1, first)


def read_tag(buffer: Buffer, position: int, end: int, previous: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: return its tag and the start and end of its value. Tags must ascend."""
    tag, position = read_uvarint(buffer, position)
    if tag <= previous:
        raise MalformedMessage(f"tag {tag} after tag {previous}")
    size, position = read_uvarint(buffer, position)
    if size > end - position:
        raise MalformedMessage(f"tag {tag} of {size} bytes with {end - position} left")
    return tag, position, position + size


def read_unknown_tags(buffer: Buffer, position: int, end: int, count: int) -> tuple[dict[int, bytes], int]:
    """Read the `count` tagged fields of a struct that declares none."""
    unknown: dict[int, bytes] = {}
    tag = -1
    for _ in range(count):
        tag, position, stop = read_tag(buffer, position, end, tag)
        unknown[tag] = bytes(buffer[position:stop])
        position = stop
    return unknown, position


def put_tags(out: bytearray, tags: Mapping[int, bytes | bytearray]) -> None:
    """Append a whole tag section, in ascending order of tags."""
    out += uvarint(len(tags))
    for tag in sorted(tags):
        value = tags[tag]
        out += uvarint(tag)
        out += uvarint(len(value))
        out += value


def records_size(records: Part | Sequence[Buffer]) -> int:
    if isinstance(records, PART_TYPES):
        return len(records)
    return sum(map(len, records))


# Short arrays of scalars (replicas, ISR, partition lists) are so common that their Structs are cached.
_KEPT_LENGTH_MAX = 16


def _kept_structs(scalar: Scalar) -> tuple[struct.Struct, ...]:
    return tuple(struct.Struct(f">{length}{scalar.format}") for length in range(_KEPT_LENGTH_MAX + 1))


def array_packer(scalar: Scalar) -> Callable[[Sequence[Any]], bytes]:
    """Return a function from a sequence of scalars (except uuids) to their bytes."""
    kept = tuple(packer.pack for packer in _kept_structs(scalar))

    def pack(values: Sequence[Any]) -> bytes:
        length = len(values)
        if length <= _KEPT_LENGTH_MAX:
            return kept[length](*values)
        return struct.pack(f">{length}{scalar.format}", *values)

    return pack


def array_unpacker(scalar: Scalar) -> Callable[[Buffer, int, int], list[Any]]:
    """Return a function from buffer, position and length to that many scalars (except uuids)."""
    kept = tuple(unpacker.unpack_from for unpacker in _kept_structs(scalar))

    def unpack(buffer: Buffer, position: int, length: int) -> list[Any]:
        if length <= _KEPT_LENGTH_MAX:
            return list(kept[length](buffer, position))
        return list(struct.unpack_from(f">{length}{scalar.format}", buffer, position))

    return unpack


PACK_ARRAY = {kind.name: array_packer(kind) for kind in (BOOLEAN, INT8, INT16, UINT16, INT32, INT64, FLOAT64)}
UNPACK_ARRAY = {kind.name: array_unpacker(kind) for kind in (BOOLEAN, INT8, INT16, UINT16, INT32, INT64, FLOAT64)}


def pack_uuids(values: Sequence[bytes]) -> bytes:
    for value in values:
        if len(value) != 16:
            raise ValueError(f"a UUID of {len(value)} bytes")
    return b"".join(values)


def unpack_uuids(buffer: Buffer, position: int, length: int) -> list[bytes]:
    return [bytes(buffer[start : start + 16]) for start in range(position, position + 16 * length, 16)]
