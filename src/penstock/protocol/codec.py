"""Encodes messages to bytes and decodes bytes to messages.

    data = encode(HeartbeatRequest(group_id="g"), version=4)
    request = decode(HeartbeatRequest, data, version=4)

A codec for a message in one version is compiled on first use, as straight-line Python (about 1 ms), and kept with the
message's class. A field that the version cannot carry is an error unless the schema calls it ignorable, so handlers
check versions where Kafka's handlers do. Decoding accepts untrusted bytes: the result is always a message or
MalformedMessage, and memory stays within a constant factor of the input. A caller may also limit the elements of all
arrays and unknown tags together, which limits the time that a message takes, too.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Decoder, Encoder, Message, Schema
from penstock.protocol.decoder import holds_records, struct_decoder
from penstock.protocol.encoder import struct_encoder
from penstock.protocol.primitives import BUFFER_TYPES, PART_TYPES, Buffer, MalformedMessage, Part

__all__ = [
    "REQUEST_ELEMENTS_MAX",
    "MalformedMessage",
    "UnencodableMessage",
    "decode",
    "decode_from",
    "encode",
    "encode_into",
    "encode_parts",
    "splice",
]

M = TypeVar("M", bound=Message)

UNLIMITED = sys.maxsize
# Of one request. A request of a few megabytes could name a million partitions, and a broker would do nothing else for
# ten seconds.
REQUEST_ELEMENTS_MAX = 250_000

# The positions in an encoded message at which records are inserted, with the records.
Splices = list[tuple[int, Part | Sequence[Buffer]]]


class UnencodableMessage(ValueError):
    """A message with a value that its fields cannot carry: a null where none is allowed, a number out of range."""


def encode(message: Message, version: int) -> bytes:
    out = bytearray()
    splices: Splices = []
    encode_into(message, version, out, splices)
    if not splices:
        return bytes(out)
    parts: list[Part] = []
    splice(out, splices, parts)
    return join(parts)


def join(parts: Iterable[Part]) -> bytes:
    return b"".join(part if isinstance(part, BUFFER_TYPES) else part.read() for part in parts)


def encode_parts(message: Message, version: int, out: list[Part]) -> None:
    """Append the buffers whose concatenation is the message. Long records are among them without a copy."""
    encoded = bytearray()
    splices: Splices = []
    encode_into(message, version, encoded, splices)
    splice(encoded, splices, out)


def encode_into(message: Message, version: int, out: bytearray, splices: Splices) -> None:
    """Append the message to `out`, except for its records; `splices` gets their positions."""
    schema = message.__schema__
    encoder = schema.encoders.get(version) or _compile_encoder(schema, version)
    try:
        encoder(message, out, splices)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise UnencodableMessage(f"{type(message).__name__} v{version}: {error}") from error


def splice(encoded: bytearray, splices: Splices, out: list[Part]) -> None:
    """Cut an encoded message at the positions of records, and append pieces and records in order."""
    if not splices:
        out.append(encoded)
        return
    view = memoryview(encoded)
    start = 0
    for position, records in splices:
        out.append(view[start:position])
        if isinstance(records, PART_TYPES):
            out.append(records)
        else:
            out.extend(records)
        start = position
    if start < len(encoded):
        out.append(view[start:])


def decode(cls: type[M], buffer: Buffer, version: int, position: int = 0) -> M:
    """Decode the message that fills the buffer from `position` to its end."""
    schema = cls.__schema__
    decoder = schema.decoders.get(version) or _compile_decoder(schema, version)
    if schema.holds_records:
        if type(buffer) is not memoryview:
            buffer = memoryview(buffer)
    elif type(buffer) is not bytes:
        # Slices of bytes are the cheapest to turn into strings, and this message keeps no reference to its buffer.
        buffer = bytes(buffer[position:])
        position = 0
    message: M
    message, position = _run(cls, decoder, buffer, version, position, UNLIMITED)
    if position != len(buffer):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(buffer) - position} bytes too many")
    return message


def decode_from(
    cls: type[M], buffer: Buffer, version: int, position: int, elements_max: int = UNLIMITED
) -> tuple[M, int]:
    """Decode the message at `position`; return it and the position after it.

    Brokers decode requests with it and ignore bytes after a request, as Kafka does, because librdkafka sends some.
    Missing or malformed bytes raise MalformedMessage, which closes the connection.
    """
    schema = cls.__schema__
    decoder = schema.decoders.get(version) or _compile_decoder(schema, version)
    if schema.holds_records and type(buffer) is not memoryview:
        buffer = memoryview(buffer)
    return _run(cls, decoder, buffer, version, position, elements_max)


def _run(
    cls: type[M], decoder: Decoder, buffer: Buffer, version: int, position: int, elements_max: int
) -> tuple[Any, int]:
    try:
        return decoder(buffer, position, len(buffer), [elements_max])
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: ends too early") from error
    except ValueError as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error


def _compile_encoder(schema: Schema, version: int) -> Encoder:
    _require_version(schema, version)
    encoder = schema.encoders[version] = struct_encoder(schema.cls, version, version in schema.flexible)
    return encoder


def _compile_decoder(schema: Schema, version: int) -> Decoder:
    _require_version(schema, version)
    schema.holds_records = holds_records(schema.cls)
    decoder = schema.decoders[version] = struct_decoder(schema.cls, version, version in schema.flexible)
    return decoder


def _require_version(schema: Schema, version: int) -> None:
    if schema.versions is None:
        raise TypeError(f"{schema.cls.__name__} is a part of a message, not a message")
    if version not in schema.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{schema.cls.__name__} has no version {version}")
