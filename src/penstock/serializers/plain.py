"""Bytes, text, numbers and UUIDs, in the format of Java's serializers, which any Kafka client reads."""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar, TypeVar

from penstock.serializers.base import Serde

Number = TypeVar("Number", int, float)


class Bytes(Serde[bytes]):
    """Bytes, unchanged."""

    as_is = True

    @staticmethod
    def encode(value: bytes) -> bytes:
        return value

    @staticmethod
    def decode(data: bytes) -> bytes:
        return data


class String(Serde[str]):
    """Text in UTF-8."""

    def __init__(self) -> None:
        self.encode = str.encode
        self.decode = bytes.decode


class _Number(Serde[Number]):
    """A number in big-endian order."""

    _format: ClassVar[struct.Struct]
    _kind: ClassVar[str]

    def encode(self, value: Number) -> bytes:
        try:
            return self._format.pack(value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value!r} is not {self._kind}") from error

    def decode(self, data: bytes) -> Number:
        try:
            (value,) = self._format.unpack(data)
        except struct.error:
            raise ValueError(f"{self._kind} has {self._format.size} bytes, not {len(data)}") from None
        return value  # type: ignore[no-any-return]


class Int32(_Number[int]):
    """Java's IntegerSerializer."""

    _format, _kind = struct.Struct(">i"), "an integer of 32 bits"


class Int64(_Number[int]):
    """Java's LongSerializer."""

    _format, _kind = struct.Struct(">q"), "an integer of 64 bits"


class Float32(_Number[float]):
    """Java's FloatSerializer; a value that a 32-bit float cannot hold exactly is rounded."""

    _format, _kind = struct.Struct(">f"), "a float of 32 bits"


class Float64(_Number[float]):
    """Java's DoubleSerializer."""

    _format, _kind = struct.Struct(">d"), "a float of 64 bits"


class Uuid(Serde[uuid.UUID]):
    """Java's UUIDSerializer: the 36 characters of the text form."""

    def encode(self, value: uuid.UUID) -> bytes:
        if not isinstance(value, uuid.UUID):
            raise TypeError(f"{value!r} is not a uuid.UUID")
        return str(value).encode("ascii")

    def decode(self, data: bytes) -> uuid.UUID:
        return uuid.UUID(data.decode("ascii"))
